//! Search of tools that can replace another one, for callers that may not call it.

use riglm_domain::retrieval::{Query, fit_probability};

use super::SearchRules;
use crate::search::index_cache::SearchIndex;

/// Minimum fit between the description of a tool and a similar tool.
const MIN_FIT: f64 = 0.5;
const MAX_SIMILAR: usize = 50;

/// Returns the positions of tools similar to the one at `wanted`: duplicates on other servers, then
/// tools that match the words of its name and description.
pub(super) fn similar_tools(
    prepared: &SearchIndex,
    wanted: usize,
    rules: &SearchRules,
) -> Option<Vec<usize>> {
    let text = prepared.by_words.tools().get(wanted)?.text();
    let text = format!("{} {}", text.name, text.description);
    let query = Query::new(Query::readable_part(&text), &rules.synonyms);
    let hits = (prepared.by_words).rank(&query, &rules.ranking, None, MAX_SIMILAR);
    let near = hits.iter().filter(|hit| fit_probability(hit) >= MIN_FIT);
    let mut similar = prepared.alike.others(wanted);
    for hit in near {
        if hit.position != wanted && !similar.contains(&hit.position) {
            similar.push(hit.position);
        }
    }
    Some(similar)
}
