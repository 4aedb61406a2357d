//! Grading of search answers: whether hits are worth showing, and the fallbacks if they are not.

use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{
    NameLikeness, RankingTerm, SearchHit, fit_probability, nearest_names, words,
};

use super::catalog::{Catalog, CatalogTool};

/// The number of suggested names if nothing fits.
const N_NAMES: usize = 3;
/// The number of first hits that decide whether anything fits.
const N_JUDGED: usize = 5;

/// Hits with their grade and the notes about them.
#[derive(Debug)]
pub(super) struct GradedAnswer {
    pub(super) hits: Vec<SearchHit>,
    pub(super) quality: SearchQuality,
    pub(super) notes: Vec<String>,
}

impl GradedAnswer {
    /// Grades hits and chooses the order in which they are shown.
    ///
    /// A tool whose name is the query comes first. If the query looks like an identifier, or is a
    /// word that no tool has, tools with similar names come before the hits. If it is another word,
    /// they come after the hits. If nothing fits, only tools with similar names are shown. `fits`
    /// says whether any hit fits; see [`fits`].
    pub(super) fn new(
        text: &str,
        hits: Vec<SearchHit>,
        fits: bool,
        quality: SearchQuality,
        catalog: &Catalog,
    ) -> Self {
        let offered = catalog.tools();
        let exact = exact_names(text, offered, &hits);
        if !fits {
            return Self::without_fit(text, &exact, catalog);
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
        let is_first = |hit: &SearchHit| near.first() == Some(&hit.position);
        let is_unknown = || hits.iter().all(|hit| hit.coverage <= 0.0);
        let is_name = likeness == NameLikeness::Identifier || is_unknown();
        if is_name && !near.is_empty() && !hits.first().is_some_and(is_first) {
            return Self {
                hits: with_first(&near, hits),
                quality,
                notes: vec!["No tool has this name; the nearest names come first.".into()],
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

    /// Returns the answer if no hit fits: tools with exactly this name, or else tools with similar
    /// names.
    fn without_fit(text: &str, exact: &[usize], catalog: &Catalog) -> Self {
        if !exact.is_empty() {
            return Self {
                hits: exact.iter().copied().map(hit_by_name).collect(),
                quality: SearchQuality::Medium,
                notes: Vec::new(),
            };
        }
        // A query may write the parts of a name as separate words.
        let joined = text.split_whitespace().collect::<Vec<_>>().join("_");
        let near = match NameLikeness::of(&joined) {
            NameLikeness::None => Vec::new(),
            NameLikeness::Word | NameLikeness::Identifier => nearest(text, catalog.tools()),
        };
        Self {
            notes: vec![nothing_fits(text, catalog, !near.is_empty())],
            hits: near.into_iter().map(hit_by_name).collect(),
            quality: SearchQuality::Low,
        }
    }
}

/// Returns whether a query is a tool name. Such a query needs no model to interpret it.
pub(super) fn is_named(text: &str, offered: &[CatalogTool]) -> bool {
    NameLikeness::of(text) == NameLikeness::Identifier
        || !exact_names(text, offered, &[]).is_empty()
}

/// Moves the hits at these positions to the front.
pub(super) fn with_first(positions: &[usize], hits: Vec<SearchHit>) -> Vec<SearchHit> {
    let (by_name, others): (Vec<SearchHit>, Vec<SearchHit>) =
        (hits.into_iter()).partition(|hit| positions.contains(&hit.position));
    let first = positions.iter().map(|position| {
        let known = by_name.iter().find(|hit| hit.position == *position);
        known.cloned().unwrap_or_else(|| hit_by_name(*position))
    });
    first.chain(others).collect()
}

/// Appends tools at these positions that are not among the hits.
fn with_last(mut hits: Vec<SearchHit>, positions: &[usize]) -> Vec<SearchHit> {
    for position in positions {
        if hits.iter().all(|hit| hit.position != *position) {
            hits.push(hit_by_name(*position));
        }
    }
    hits
}

/// Returns the positions of the tools whose name equals the text, ignoring case. Both the name that
/// the client sees and the name at the upstream count. The order is the order of the hits.
fn exact_names(text: &str, offered: &[CatalogTool], hits: &[SearchHit]) -> Vec<usize> {
    let wanted = text.trim().to_lowercase();
    let is_same = |name: &str| name.len() <= 4 * wanted.len() && name.to_lowercase() == wanted;
    let is_it = |tool: &CatalogTool| is_same(&tool.name) || is_same(tool.tool.tool.as_str());
    let positions = 0..offered.len();
    let mut exact: Vec<usize> = positions.filter(|at| is_it(&offered[*at])).collect();
    let place = |position: &usize| hits.iter().position(|hit| hit.position == *position);
    exact.sort_by_cached_key(|position| place(position).unwrap_or(usize::MAX));
    exact
}

/// Returns whether one of the first hits fits. A hit fits if its words or its vector match with a
/// fit of at least `min_fit`, or if it was used for a similar query.
pub fn fits(hits: &[SearchHit], min_fit: f64) -> bool {
    let speaks =
        |hit: &SearchHit| hit.coverage > 0.0 || hit.cosine.is_some_and(|cosine| cosine > 0.0);
    let mut first = hits.iter().take(N_JUDGED);
    first.any(|hit| (speaks(hit) && fit_probability(hit) >= min_fit) || is_remembered(hit))
}

/// Returns the positions of at most `n` tools with the most similar names, most similar first.
pub fn nearest_tools(name: &str, catalog: &Catalog, n: usize) -> Vec<usize> {
    nearest_of(name, catalog.tools(), n)
}

fn nearest(text: &str, offered: &[CatalogTool]) -> Vec<usize> {
    nearest_of(text, offered, N_NAMES)
}

/// Returns the positions of the `n` tools whose names are most similar to a text. Both names that
/// clients see and names at upstreams are compared.
fn nearest_of(text: &str, offered: &[CatalogTool], n: usize) -> Vec<usize> {
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

/// Returns the note for an answer without a fitting hit.
fn nothing_fits(text: &str, catalog: &Catalog, has_names: bool) -> String {
    let n_tools = catalog.tools().len();
    let more_than = if catalog.is_truncated() {
        "more than "
    } else {
        ""
    };
    if n_tools == 0 {
        "There are no tools.".into()
    } else if has_names {
        "No matching tool found; these are the nearest names.".into()
    } else if words(text).is_empty() {
        "The query has no word to search for. Describe the task.".into()
    } else {
        format!(
            "No matching tool found among {more_than}{n_tools}. Try other words, or ask the user."
        )
    }
}

/// Returns a hit that was found by its name alone.
fn hit_by_name(position: usize) -> SearchHit {
    SearchHit {
        position,
        score: 0.0,
        terms: Vec::new(),
        coverage: 0.0,
        cosine: None,
    }
}

fn is_remembered(hit: &SearchHit) -> bool {
    hit.terms
        .iter()
        .any(|(term, value)| *term == RankingTerm::Memory && *value > 0.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::service::SearchRules;

    #[test]
    fn a_tool_fits_by_its_words_or_its_vector() {
        let hit = |coverage, cosine| SearchHit {
            coverage,
            cosine,
            ..hit_by_name(0)
        };
        let fits = |hit| fits(&[hit], SearchRules::default().min_fit);
        assert!(!fits(hit(0.0, None)), "no word, and no vectors");
        assert!(!fits(hit(0.0, Some(0.0))) && !fits(hit(0.0, Some(-0.5))));
        assert!(fits(hit(0.05, None)) && fits(hit(0.1, Some(0.0))));
        assert!(fits(hit(0.0, Some(0.2))), "it means something near");
    }
}
