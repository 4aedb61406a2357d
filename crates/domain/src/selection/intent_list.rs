//! The list of a session with a stated intent: the tools that match it, then predicted tools.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::access::Access;
use super::bounds::ListBounds;
use super::choice::{Candidates, ListChoice, choose_tools};
use super::topic::Topic;

/// Factor of `min_tools` up to which a list is filled with the best fitting tools, if fewer tools
/// than `min_tools` match the text. Few matches mean that the match is probably incomplete.
const FILL_FACTOR: usize = 2;

/// The tools that a text asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedTools {
    /// Tools that match the topic of the text, the best first.
    pub about: Vec<usize>,
    /// Other tools that fit the text, the best first.
    pub fitting: Vec<usize>,
    /// The access that the text asks for; `None` if unknown.
    pub access: Option<Access>,
}

impl RequestedTools {
    /// Returns the tools for a text with this topic. `fits` has positions with scores of how well
    /// tools fit the text; larger is better. Tools with equal numbers of matching words are ordered
    /// by this score.
    #[must_use]
    pub fn of(topic: &Topic, fits: &[(usize, f64)]) -> Self {
        let fit_of: HashMap<usize, f64> = fits.iter().copied().collect();
        let better = |a: usize, b: usize| -> Ordering {
            let fit = |at: usize| fit_of.get(&at).copied().unwrap_or(0.0);
            fit(b).total_cmp(&fit(a)).then(a.cmp(&b))
        };
        let mut about: Vec<(usize, usize)> = topic
            .tools
            .iter()
            .copied()
            .zip(topic.n_said.iter().copied())
            .collect();
        about.sort_by(|(a, n_of_a), (b, n_of_b)| {
            Reverse(n_of_a)
                .cmp(&Reverse(n_of_b))
                .then_with(|| better(*a, *b))
        });
        let is_other = |at: &usize| !topic.tools.contains(at);
        let mut fitting: Vec<usize> = fits.iter().map(|(at, _)| *at).filter(is_other).collect();
        fitting.sort_by(|a, b| better(*a, *b));
        Self {
            about: about.into_iter().map(|(at, _)| at).collect(),
            fitting,
            access: topic.access,
        }
    }
}

/// Chooses the tools of a list by the intent of a text.
///
/// With a `forecast` (the most likely tools, and the list size), tools that match the text get up
/// to half of the places and the most likely tools the others. Without one, the text alone decides:
/// all matching tools are in the list, up to `max_tools`, and only a list below `min_tools` is
/// filled up. If the text asks only to read, tools that `may_write` do not fill a list.
pub fn choose_by_intent(
    candidates: &impl Candidates,
    asked: &RequestedTools,
    forecast: Option<(&[(usize, f64)], usize)>,
    bounds: &ListBounds,
    may_write: impl Fn(usize) -> bool,
) -> ListChoice {
    let n_about = asked.about.len();
    let only_reads = asked.access == Some(Access::Read);
    let is_wanted = |at: &usize| !(only_reads && may_write(*at));
    let mut ranked: Vec<usize> = Vec::new();
    let n = if let Some((likely, size)) = forecast {
        ranked.extend(asked.about.iter().take(size.div_ceil(2)));
        ranked.extend(likely.iter().map(|(at, _)| *at));
        size
    } else {
        ranked.extend(&asked.about);
        ranked.extend(asked.fitting.iter().filter(|at| is_wanted(at)));
        if n_about >= bounds.min_tools {
            n_about
        } else {
            let filled = bounds.min_tools.saturating_mul(FILL_FACTOR);
            filled.min(ranked.len()).max(bounds.min_tools)
        }
    };
    // Unknown tools come last. Writing tools are left out if the text asks only to read.
    ranked.extend((0..candidates.len()).filter(is_wanted));
    let mut seen = vec![false; candidates.len()];
    ranked.retain(|at| {
        seen.get_mut(*at)
            .is_some_and(|seen| !std::mem::replace(seen, true))
    });
    let max_tools = n.min(bounds.max_tools).min(ranked.len());
    let ranked: Vec<(usize, f64)> = ranked.into_iter().map(|at| (at, 0.0)).collect();
    let bounds = ListBounds {
        min_tools: bounds.min_tools.min(max_tools),
        max_tools,
        ..*bounds
    };
    choose_tools(candidates, &ranked, &bounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::ToolDecision;

    /// Thirty tools. The tools at odd positions write.
    struct Thirty;

    impl Candidates for Thirty {
        fn len(&self) -> usize {
            30
        }
        fn decision(&self, _position: usize) -> ToolDecision {
            ToolDecision::Free
        }
        fn tokens(&self, _position: usize) -> u64 {
            100
        }
    }

    const BOUNDS: ListBounds = ListBounds {
        min_tools: 5,
        max_tools: 12,
        token_budget: None,
    };

    fn shown_positions(
        asked: &RequestedTools,
        forecast: Option<usize>,
        bounds: &ListBounds,
    ) -> Vec<usize> {
        // The tools at high positions are the most likely ones.
        let likely: Vec<(usize, f64)> = (0..30).rev().map(|at| (at, 0.1)).collect();
        let forecast = forecast.map(|size| (likely.as_slice(), size));
        choose_by_intent(&Thirty, asked, forecast, bounds, |at| at % 2 == 1).shown
    }

    fn requested_tools(about: &[usize], access: Option<Access>) -> RequestedTools {
        RequestedTools {
            about: about.to_vec(),
            fitting: vec![21, 22, 23, 24],
            access,
        }
    }

    #[test]
    fn the_text_alone_decides_without_predictions() {
        let six = requested_tools(&[0, 2, 4, 6, 8, 9], None);
        assert_eq!(shown_positions(&six, None, &BOUNDS), [0, 2, 4, 6, 8, 9]);
        // Few matches are filled up with fitting tools.
        let two = requested_tools(&[3, 5], None);
        assert_eq!(shown_positions(&two, None, &BOUNDS), [3, 5, 21, 22, 23, 24]);
        let most = requested_tools(&(0..20).collect::<Vec<_>>(), None);
        assert_eq!(
            shown_positions(&most, None, &BOUNDS),
            (0..12).collect::<Vec<_>>()
        );
    }

    #[test]
    fn lists_of_read_requests_are_not_filled_with_writing_tools() {
        let read = requested_tools(&[0, 2], Some(Access::Read));
        assert_eq!(shown_positions(&read, None, &BOUNDS), [0, 2, 4, 22, 24]);
        // If only writing tools match the text, they are shown.
        let only = requested_tools(&[1, 3], Some(Access::Read));
        assert_eq!(shown_positions(&only, None, &BOUNDS)[..2], [0, 1]);
    }

    #[test]
    fn predicted_tools_fill_the_list_after_the_topic() {
        let two = requested_tools(&[3, 5], None);
        assert_eq!(shown_positions(&two, Some(5), &BOUNDS), [3, 5, 27, 28, 29]);
        // A text with many matches gets half of the places.
        let seven = requested_tools(&[0, 1, 2, 3, 4, 5, 6], None);
        assert_eq!(shown_positions(&seven, Some(5), &BOUNDS), [0, 1, 2, 28, 29]);
        // Likely tools are shown, even if they write.
        let read = requested_tools(&[0, 2], Some(Access::Read));
        assert_eq!(
            shown_positions(&read, Some(6), &BOUNDS),
            [0, 2, 26, 27, 28, 29]
        );
    }

    #[test]
    fn tools_with_equal_matches_are_ordered_by_fit() {
        let topic = Topic {
            tools: vec![4, 1, 2, 3],
            n_said: vec![2, 1, 1, 1],
            access: Some(Access::Write),
        };
        let asked = RequestedTools::of(&topic, &[(9, 0.1), (3, 0.2), (8, 0.4), (2, 0.1)]);
        assert_eq!(asked.about, [4, 3, 2, 1]);
        assert_eq!(asked.fitting, [8, 9]);
        assert_eq!(asked.access, Some(Access::Write));
    }

    #[test]
    fn the_token_budget_limits_the_list() {
        let budget = ListBounds {
            token_budget: Some(300),
            ..BOUNDS
        };
        let six = requested_tools(&[0, 2, 4, 6, 8, 9], None);
        assert_eq!(shown_positions(&six, None, &budget), [0, 2, 4]);
        assert_eq!(shown_positions(&six, Some(12), &budget), [0, 2, 4]);
    }
}
