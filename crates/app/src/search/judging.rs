//! Whether hits are worth showing, and what is shown where they are not.

use riglm_domain::retrieval::{Hit, NameLikeness, Term, fit, nearest_names, words};
use riglm_domain::search::SearchQuality;

use super::offer::{Offer, OfferedTool};

/// How many names are suggested where nothing fits.
const N_NAMES: usize = 3;
/// How many of the first hits say whether anything fits.
const N_JUDGED: usize = 5;

/// Hits, how good they are, and what is said about them.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) hits: Vec<Hit>,
    pub(super) quality: SearchQuality,
    pub(super) notes: Vec<String>,
}

impl Judged {
    /// Decides whether hits are worth showing, and what comes first.
    ///
    /// A tool of which the query is the name comes first. Those whose names are near come before
    /// the hits where the query is written as names are, or is a word that no tool has, and behind
    /// them where it is another word; where nothing fits, they are all there is.
    /// `fits` says whether any hit does; see [`fits`].
    pub(super) fn new(
        text: &str,
        (hits, fits): (Vec<Hit>, bool),
        quality: SearchQuality,
        offer: &Offer,
    ) -> Self {
        let offered = offer.tools();
        let exact = exact(text, offered, &hits);
        if !fits {
            return Self::unfit(text, &exact, offer);
        }
        if !exact.is_empty() {
            return Self {
                hits: with_first(&exact, hits),
                quality: quality.min(SearchQuality::Medium),
                notes: Vec::new(),
            };
        }
        let likeness = NameLikeness::of(text);
        let near = match likeness {
            NameLikeness::None => Vec::new(),
            NameLikeness::Word | NameLikeness::Identifier => nearest(text, offered),
        };
        let is_first = |hit: &Hit| near.first() == Some(&hit.position);
        let is_unknown = || hits.iter().all(|hit| hit.coverage <= 0.0);
        let is_name = likeness == NameLikeness::Identifier || is_unknown();
        if is_name && !near.is_empty() && !hits.first().is_some_and(is_first) {
            return Self {
                hits: with_first(&near, hits),
                quality,
                notes: vec![
                    "No tool has this name; those with the nearest names come first.".into(),
                ],
            };
        }
        let n_tools = offered.len();
        let note = format!("No tool is a certain match; these are the closest of {n_tools}.");
        let is_low = quality == SearchQuality::Low;
        Self {
            hits: with_last(hits, &near),
            quality,
            notes: is_low.then_some(note).into_iter().collect(),
        }
    }

    /// Returns what is shown where no hit fits: the tools that have this very name, or else those
    /// whose names are near.
    fn unfit(text: &str, exact: &[usize], offer: &Offer) -> Self {
        if !exact.is_empty() {
            return Self {
                hits: exact.iter().copied().map(named).collect(),
                quality: SearchQuality::Medium,
                notes: Vec::new(),
            };
        }
        // Some write the parts of a name as words.
        let joined = text.split_whitespace().collect::<Vec<_>>().join("_");
        let near = match NameLikeness::of(&joined) {
            NameLikeness::None => Vec::new(),
            NameLikeness::Word | NameLikeness::Identifier => nearest(text, offer.tools()),
        };
        Self {
            notes: vec![nothing_fits(text, offer, !near.is_empty())],
            hits: near.into_iter().map(named).collect(),
            quality: SearchQuality::Low,
        }
    }
}

/// Returns whether a query asks for a tool by its name, so that nobody else need be asked what it
/// means.
pub(super) fn is_named(text: &str, offered: &[OfferedTool]) -> bool {
    NameLikeness::of(text) == NameLikeness::Identifier || !exact(text, offered, &[]).is_empty()
}

/// Returns the hits with those at these positions first.
pub(super) fn with_first(positions: &[usize], hits: Vec<Hit>) -> Vec<Hit> {
    let (by_name, others): (Vec<Hit>, Vec<Hit>) =
        (hits.into_iter()).partition(|hit| positions.contains(&hit.position));
    let first = positions.iter().map(|position| {
        let known = by_name.iter().find(|hit| hit.position == *position);
        known.cloned().unwrap_or_else(|| named(*position))
    });
    first.chain(others).collect()
}

/// Returns the hits, and behind them those of these positions that are none.
fn with_last(mut hits: Vec<Hit>, positions: &[usize]) -> Vec<Hit> {
    for position in positions {
        if hits.iter().all(|hit| hit.position != *position) {
            hits.push(named(*position));
        }
    }
    hits
}

/// Returns the positions of the tools of which a text is the name, in whatever case: the name that
/// the client knows, or the one that the upstream knows. The order is that of the hits.
fn exact(text: &str, offered: &[OfferedTool], hits: &[Hit]) -> Vec<usize> {
    let wanted = text.trim().to_lowercase();
    let is_same = |name: &str| name.len() <= 4 * wanted.len() && name.to_lowercase() == wanted;
    let is_it = |tool: &OfferedTool| is_same(&tool.name) || is_same(tool.tool.tool.as_str());
    let positions = 0..offered.len();
    let mut exact: Vec<usize> = positions.filter(|at| is_it(&offered[*at])).collect();
    let place = |position: &usize| hits.iter().position(|hit| hit.position == *position);
    exact.sort_by_cached_key(|position| place(position).unwrap_or(usize::MAX));
    exact
}

/// Returns whether anything speaks for one of the first hits: its words or its meaning, where it fits at
/// least so well, or that it was used for something similar.
pub(super) fn fits(hits: &[Hit], min_fit: f64) -> bool {
    let speaks = |hit: &Hit| hit.coverage > 0.0 || hit.cosine.is_some_and(|cosine| cosine > 0.0);
    let mut first = hits.iter().take(N_JUDGED);
    first.any(|hit| (speaks(hit) && fit(hit) >= min_fit) || is_remembered(hit))
}

/// Returns the positions of at most `n` tools whose names are nearest to one, nearest first.
pub(crate) fn nearest_tools(name: &str, offer: &Offer, n: usize) -> Vec<usize> {
    nearest_of(name, offer.tools(), n)
}

fn nearest(text: &str, offered: &[OfferedTool]) -> Vec<usize> {
    nearest_of(text, offered, N_NAMES)
}

/// Returns the positions of the `n` tools whose names are nearest to a text: the names that the client
/// knows, and those that their upstreams know.
fn nearest_of(text: &str, offered: &[OfferedTool], n: usize) -> Vec<usize> {
    let shown = offered.iter().map(|tool| tool.name.as_str());
    let own = offered.iter().map(|tool| tool.tool.tool.as_str());
    let names: Vec<&str> = shown.chain(own).collect();
    let mut near: Vec<usize> = Vec::new();
    for at in nearest_names(text, &names, 2 * n) {
        let position = at % offered.len();
        if !near.contains(&position) {
            near.push(position);
        }
    }
    near.truncate(n);
    near
}

/// Returns what is said where nothing fits.
fn nothing_fits(text: &str, offer: &Offer, has_names: bool) -> String {
    let n_tools = offer.tools().len();
    let more_than = if offer.is_partial() { "more than " } else { "" };
    if n_tools == 0 {
        "There are no tools.".into()
    } else if has_names {
        "No matching tool found; these have the nearest names.".into()
    } else if words(text).is_empty() {
        "The query has no word to search for. Describe the task.".into()
    } else {
        format!(
            "No matching tool found among {more_than}{n_tools}. Try other words, or ask the user."
        )
    }
}

/// Returns a tool that was found by its name alone.
fn named(position: usize) -> Hit {
    Hit {
        position,
        score: 0.0,
        terms: Vec::new(),
        coverage: 0.0,
        cosine: None,
    }
}

fn is_remembered(hit: &Hit) -> bool {
    hit.terms
        .iter()
        .any(|(term, value)| *term == Term::Memory && *value > 0.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::service::SearchRules;

    #[test]
    fn nothing_matches_only_where_neither_words_nor_meaning_speak_for_a_tool() {
        let hit = |coverage, cosine| Hit {
            coverage,
            cosine,
            ..named(0)
        };
        let fits = |hit| fits(&[hit], SearchRules::default().min_fit);
        assert!(!fits(hit(0.0, None)), "no word, and no vectors");
        assert!(!fits(hit(0.0, Some(0.0))) && !fits(hit(0.0, Some(-0.5))));
        assert!(fits(hit(0.05, None)) && fits(hit(0.1, Some(0.0))));
        assert!(fits(hit(0.0, Some(0.2))), "it means something near");
    }
}
