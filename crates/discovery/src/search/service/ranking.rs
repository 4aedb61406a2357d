//! Ranking of a catalog for a text, for features other than search answers.

use std::sync::Arc;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{Query, SearchHit, ToolIndex, grade_answer};

use super::ToolSearch;
use crate::experiments::AssignedArm;
use crate::search::catalog::Catalog;
use crate::search::grading::fits;

/// The tools of a catalog, ranked for a text.
#[derive(Clone, Debug)]
pub struct CatalogRanking {
    /// The tools in the order of their positions.
    pub index: ToolIndex,
    /// All tools, best first.
    pub hits: Vec<SearchHit>,
    /// Grade of the ranking.
    pub quality: SearchQuality,
    /// Whether any tool fits.
    pub fits: bool,
    /// Whether the vectors of all encoders and the history of the principal were available.
    pub is_whole: bool,
    /// The vector of the text, if an encoder was available.
    pub vector: Option<Embedding>,
}

impl ToolSearch {
    /// Ranks the tools of a catalog for a text in the same way as a search of this session. `arm`
    /// can change the ranking rules. Records and learns nothing.
    pub async fn ranking(
        &self,
        offer: &Arc<Catalog>,
        text: &str,
        (principal, session): (&Principal, SessionId),
        arm: Option<&AssignedArm>,
    ) -> CatalogRanking {
        let text = Query::readable_part(text.trim());
        self.refresh_history(principal).await;
        let prepared = self.index_and_embed(offer).await;
        let is_known = self.shared.memories.has_history(principal);
        let turn = self.shared.turns.take(principal).await;
        let asking = self.shared.prepare_query(text, &prepared).await;
        let index = prepared.index();
        let is_whole = is_known && asking.vectors.len() == self.shared.tiers.len();
        let vector = asking.vectors.into_iter().next().map(|vector| vector.raw);
        let (shared, own, query) = (Arc::clone(&self.shared), index.clone(), asking.query);
        let (whose, rules) = (principal.clone(), self.shared.rules.ranking_in(arm));
        let ranking = tokio::task::spawn_blocking(move || {
            let hits = shared.rank((&whose, session), &query, (&own, &rules));
            drop(turn);
            hits
        });
        // A join error means that the runtime is shutting down.
        let hits = ranking.await.unwrap_or_default();
        let (_, quality) = grade_answer(&hits, &self.shared.rules.quality);
        CatalogRanking {
            fits: fits(&hits, self.shared.rules.min_fit),
            index,
            quality,
            hits,
            is_whole,
            vector,
        }
    }
}
