//! Ranking of a catalog for a text, for features other than search answers.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{Query, SearchHit, ToolIndex, grade_answer};

use super::ToolSearch;
use crate::experiments::AssignedArm;
use crate::learning::Intent;
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

/// Time limit of the ranking for a fit, in addition to the deadline of the encoders.
const RANKING_TIMEOUT: Duration = Duration::from_millis(250);

/// The fit of tools for a text, as evidence of the tools needed next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextFit {
    /// Scores by position in the catalog, the largest first.
    pub fits: Vec<(usize, f64)>,
    /// The vector of the text, if an encoder was available.
    pub vector: Option<Embedding>,
}

impl TextFit {
    /// Returns the intent of a session, with `text` as its words.
    #[must_use]
    pub fn intent<'a>(&'a self, text: &'a str) -> Intent<'a> {
        Intent {
            text,
            fits: &self.fits,
            vector: self.vector.as_ref(),
        }
    }
}

impl ToolSearch {
    /// Returns the fit of the tools of a catalog for a text, ranked as for a search of this
    /// session. Records nothing. Returns an empty fit if the text is empty, or if this takes longer
    /// than the deadline of the encoders plus 250 ms.
    pub async fn fits(
        &self,
        catalog: &Arc<Catalog>,
        text: &str,
        principal: &Principal,
        session: SessionId,
    ) -> TextFit {
        let text = Query::readable_part(text.trim());
        if text.is_empty() {
            return TextFit::default();
        }
        let core = self.core();
        let fitting = async {
            self.refresh_history(&core, principal).await;
            let prepared = self.index_and_embed(&core, catalog).await;
            let turn = core.turns.take(principal).await;
            let asking = core.prepare_query(text, None, &prepared).await;
            let (shared, principal) = (Arc::clone(&core), principal.clone());
            let query = asking.query;
            let ranking = tokio::task::spawn_blocking(move || {
                let index = prepared.index();
                let ranking = &shared.rules.ranking;
                let hits = shared.rank(&principal, session, &query, &index, ranking);
                drop(turn);
                fits_of(&hits)
            });
            TextFit {
                fits: ranking.await.unwrap_or_default(),
                vector: (asking.vectors.into_iter().next()).map(|vector| vector.raw),
            }
        };
        let limit = core.rules.encoder_deadline + RANKING_TIMEOUT;
        let fitted = tokio::time::timeout(limit, fitting).await;
        fitted.unwrap_or_default()
    }

    /// Ranks the tools of a catalog for a text in the same way as a search of this session. `arm`
    /// can change the ranking rules. Records and learns nothing.
    pub async fn ranking(
        &self,
        catalog: &Arc<Catalog>,
        text: &str,
        principal: &Principal,
        session: SessionId,
        arm: Option<&AssignedArm>,
    ) -> CatalogRanking {
        let text = Query::readable_part(text.trim());
        let core = self.core();
        self.refresh_history(&core, principal).await;
        let prepared = self.index_and_embed(&core, catalog).await;
        let is_known = core.memories.has_history(principal);
        let turn = core.turns.take(principal).await;
        let asking = core.prepare_query(text, None, &prepared).await;
        let index = prepared.index();
        let is_whole = is_known && asking.vectors.len() == core.encoders.all().len();
        let vector = asking.vectors.into_iter().next().map(|vector| vector.raw);
        let (shared, own, query) = (Arc::clone(&core), index.clone(), asking.query);
        let (whose, rules) = (principal.clone(), core.rules.ranking_in(arm));
        let ranking = tokio::task::spawn_blocking(move || {
            let hits = shared.rank(&whose, session, &query, &own, &rules);
            drop(turn);
            hits
        });
        // A join error means that the runtime is shutting down.
        let hits = ranking.await.unwrap_or_default();
        let (_, quality) = grade_answer(&hits, &core.rules.quality);
        CatalogRanking {
            fits: fits(&hits, core.rules.min_fit),
            index,
            quality,
            hits,
            is_whole,
            vector,
        }
    }
}

/// Returns the scores of hits by their positions.
pub(super) fn fits_of(hits: &[SearchHit]) -> Vec<(usize, f64)> {
    hits.iter().map(|hit| (hit.position, hit.score)).collect()
}
