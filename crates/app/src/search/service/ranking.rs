//! Tools ranked for a text, for who does more with them than to answer a search.

use std::sync::Arc;

use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{Hit, Query, ToolIndex, grade};
use riglm_domain::search::SearchQuality;

use super::ToolSearch;
use crate::experiments::AssignedArm;
use crate::search::judging::fits;
use crate::search::offer::Offer;

/// The tools of an offer, ranked for a text.
#[derive(Clone, Debug)]
pub struct OfferRanking {
    /// The tools in the order of their positions.
    pub index: ToolIndex,
    /// All of them, best first.
    pub hits: Vec<Hit>,
    /// How good the ranking is.
    pub quality: SearchQuality,
    /// Whether any of them fits.
    pub fits: bool,
    /// Whether it was made with the vectors of all encoders and with what is known of the principal.
    pub is_whole: bool,
    /// The vector of the text, where an encoder was there.
    pub vector: Option<Embedding>,
}

impl ToolSearch {
    /// Returns the tools of an offer, ranked for a text as a search of this session does, for who is in
    /// an arm of an experiment as that says. Nothing is recorded or learned.
    pub async fn ranking(
        &self,
        offer: &Arc<Offer>,
        text: &str,
        (principal, session): (&Principal, SessionId),
        arm: Option<&AssignedArm>,
    ) -> OfferRanking {
        let text = Query::cut(text.trim());
        self.remember(principal).await;
        let prepared = self.prepared(offer).await;
        let is_known = self.shared.memories.knows(principal);
        let turn = self.shared.turns.take(principal).await;
        let asking = self.shared.asking(text, &prepared).await;
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
        // Where there is none, the runtime is ending.
        let hits = ranking.await.unwrap_or_default();
        let (_, quality) = grade(&hits, &self.shared.rules.quality);
        OfferRanking {
            fits: fits(&hits, self.shared.rules.min_fit),
            index,
            quality,
            hits,
            is_whole,
            vector,
        }
    }
}
