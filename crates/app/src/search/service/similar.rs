//! Tools that are like another one, for who may not call that one.

use std::sync::Arc;

use riglm_domain::retrieval::{Query, fit};
use riglm_domain::tool::ToolRef;

use super::ToolSearch;
use crate::search::offer::Offer;

/// A tool that fits the description of another worse than this is not like it.
const MIN_FIT: f64 = 0.5;
/// The most tools that are returned.
const MAX_SIMILAR: usize = 50;

impl ToolSearch {
    /// Returns the positions of the tools that are like one of an offer: first those that are the same
    /// on another server, then those that the words of its name and description fit. `None` of an
    /// offer that was not made ready to be searched yet, and where the tool is none of it.
    pub(crate) fn similar(&self, offer: &Arc<Offer>, tool: &ToolRef) -> Option<Vec<usize>> {
        let prepared = self.shared.offers.get(offer)?;
        let wanted = offer.position_of(tool)?;
        let text = prepared.by_words.tools().get(wanted)?.text();
        let text = format!("{} {}", text.name, text.description);
        let query = Query::new(Query::cut(&text), &self.shared.rules.synonyms);
        let rules = &self.shared.rules.ranking;
        let hits = prepared.by_words.rank(&query, rules, None, MAX_SIMILAR);
        let near = hits.iter().filter(|hit| fit(hit) >= MIN_FIT);
        let mut similar = prepared.alike.others(wanted);
        for hit in near {
            if hit.position != wanted && !similar.contains(&hit.position) {
                similar.push(hit.position);
            }
        }
        Some(similar)
    }
}
