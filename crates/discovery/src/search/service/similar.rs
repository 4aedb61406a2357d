//! Search of tools that can replace another one, for callers that may not call it.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::retrieval::{Query, fit_probability};

use super::ToolSearch;
use crate::search::catalog::Catalog;

/// Minimum fit between the description of a tool and a similar tool.
const MIN_FIT: f64 = 0.5;
const MAX_SIMILAR: usize = 50;

impl ToolSearch {
    /// Returns the positions of tools similar to one of the catalog. Duplicates on other servers
    /// come first, then tools that match the words of its name and description. Returns `None` if
    /// the catalog is not indexed yet, or does not have the tool.
    pub fn similar(&self, offer: &Arc<Catalog>, tool: &ToolRef) -> Option<Vec<usize>> {
        let prepared = self.shared.offers.get(offer)?;
        let wanted = offer.position_of(tool)?;
        let text = prepared.by_words.tools().get(wanted)?.text();
        let text = format!("{} {}", text.name, text.description);
        let query = Query::new(Query::readable_part(&text), &self.shared.rules.synonyms);
        let rules = &self.shared.rules.ranking;
        let hits = prepared.by_words.rank(&query, rules, None, MAX_SIMILAR);
        let near = hits.iter().filter(|hit| fit_probability(hit) >= MIN_FIT);
        let mut similar = prepared.alike.others(wanted);
        for hit in near {
            if hit.position != wanted && !similar.contains(&hit.position) {
                similar.push(hit.position);
            }
        }
        Some(similar)
    }
}
