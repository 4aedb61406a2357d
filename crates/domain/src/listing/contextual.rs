//! The list of a session that says what it does: the tools of that first, then what is predicted.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::access::Access;
use super::bounds::ListBounds;
use super::choice::{Candidates, Choice, choose};
use super::topic::Topic;

/// Where fewer tools than `min_tools` are about a text, it is filled up to this many times as many
/// with those that fit it best: little that is found says that not all was found.
const FILLED: usize = 2;

/// The tools that a text asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedFor {
    /// The tools that it is about, the best first.
    pub about: Vec<usize>,
    /// Other tools that fit it, the best first.
    pub fitting: Vec<usize>,
    /// Whether it asks to read or to change something; `None` where it does not say.
    pub access: Option<Access>,
}

impl AskedFor {
    /// Returns the tools that a text asks for whose topic is known. `fits` says how well tools fit it, by their
    /// positions: the larger the better. Of tools that name as much of the text those come first that
    /// fit it better.
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

/// Chooses the tools of a list by what a text asks for.
///
/// With a `forecast`, the most likely tools with how many a list has, the tools that the text is about
/// have up to half of the places, and the most likely ones the others. Without one the text alone
/// decides: all that it is about are in the list, as far as `max_tools` goes, and only a list below
/// `min_tools` is filled up. Who only reads is not shown tools that `may_write` to fill a list.
pub fn contextual(
    candidates: &impl Candidates,
    asked: &AskedFor,
    forecast: Option<(&[(usize, f64)], usize)>,
    bounds: &ListBounds,
    may_write: impl Fn(usize) -> bool,
) -> Choice {
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
            let filled = bounds.min_tools.saturating_mul(FILLED);
            filled.min(ranked.len()).max(bounds.min_tools)
        }
    };
    // What nothing is known of comes last, and writers not at all where they are not wanted.
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
    choose(candidates, &ranked, &bounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Standing;

    /// Thirty tools, of which those with odd positions write.
    struct Thirty;

    impl Candidates for Thirty {
        fn len(&self) -> usize {
            30
        }
        fn standing(&self, _position: usize) -> Standing {
            Standing::Free
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

    fn shown(asked: &AskedFor, forecast: Option<usize>, bounds: &ListBounds) -> Vec<usize> {
        // The last ones are the most likely.
        let likely: Vec<(usize, f64)> = (0..30).rev().map(|at| (at, 0.1)).collect();
        let forecast = forecast.map(|size| (likely.as_slice(), size));
        contextual(&Thirty, asked, forecast, bounds, |at| at % 2 == 1).shown
    }

    fn asked(about: &[usize], access: Option<Access>) -> AskedFor {
        AskedFor {
            about: about.to_vec(),
            fitting: vec![21, 22, 23, 24],
            access,
        }
    }

    #[test]
    fn the_text_alone_decides_where_texts_were_not_learned() {
        let six = asked(&[0, 2, 4, 6, 8, 9], None);
        assert_eq!(shown(&six, None, &BOUNDS), [0, 2, 4, 6, 8, 9]);
        // Little that is found is filled with what fits.
        let two = asked(&[3, 5], None);
        assert_eq!(shown(&two, None, &BOUNDS), [3, 5, 21, 22, 23, 24]);
        let most = asked(&(0..20).collect::<Vec<_>>(), None);
        assert_eq!(shown(&most, None, &BOUNDS), (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn who_only_reads_is_shown_no_writers_to_fill_a_list() {
        let read = asked(&[0, 2], Some(Access::Read));
        assert_eq!(shown(&read, None, &BOUNDS), [0, 2, 4, 22, 24]);
        // Where the text is about nothing else it is about them.
        let only = asked(&[1, 3], Some(Access::Read));
        assert_eq!(shown(&only, None, &BOUNDS)[..2], [0, 1]);
    }

    #[test]
    fn what_is_predicted_fills_the_list_behind_the_topic() {
        let two = asked(&[3, 5], None);
        assert_eq!(shown(&two, Some(5), &BOUNDS), [3, 5, 27, 28, 29]);
        // A text that is about much has half of the places.
        let seven = asked(&[0, 1, 2, 3, 4, 5, 6], None);
        assert_eq!(shown(&seven, Some(5), &BOUNDS), [0, 1, 2, 28, 29]);
        // What is likely is shown, whatever it does.
        let read = asked(&[0, 2], Some(Access::Read));
        assert_eq!(shown(&read, Some(6), &BOUNDS), [0, 2, 26, 27, 28, 29]);
    }

    #[test]
    fn of_tools_that_name_as_much_those_come_first_that_fit_better() {
        let topic = Topic {
            tools: vec![4, 1, 2, 3],
            n_said: vec![2, 1, 1, 1],
            access: Some(Access::Write),
        };
        let asked = AskedFor::of(&topic, &[(9, 0.1), (3, 0.2), (8, 0.4), (2, 0.1)]);
        assert_eq!(asked.about, [4, 3, 2, 1]);
        assert_eq!(asked.fitting, [8, 9]);
        assert_eq!(asked.access, Some(Access::Write));
    }

    #[test]
    fn a_budget_holds() {
        let budget = ListBounds {
            token_budget: Some(300),
            ..BOUNDS
        };
        let six = asked(&[0, 2, 4, 6, 8, 9], None);
        assert_eq!(shown(&six, None, &budget), [0, 2, 4]);
        assert_eq!(shown(&six, Some(12), &budget), [0, 2, 4]);
    }
}
