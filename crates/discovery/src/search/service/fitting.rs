//! The fit of tools for a text outside searches, as evidence for predictions.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{Query, SearchHit};

use super::{SearchCore, ToolSearch};
use crate::learning::Intent;
use crate::search::catalog::Catalog;

/// Time limit of the ranking, in addition to the deadline of the encoders.
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

/// A text that is ready for ranking.
pub(super) struct PreparedQuery {
    pub(super) query: Query,
    /// Vectors of the encoders that answered, the better ones first.
    pub(super) vectors: Vec<super::EncodedQuery>,
}

impl ToolSearch {
    /// Returns the fit of the tools of a catalog for a text, ranked as for a search of this
    /// session. Records nothing. Returns an empty fit if the text is empty, or if this takes longer
    /// than the deadline of the encoders plus 250 ms.
    pub async fn fits(
        &self,
        offer: &Arc<Catalog>,
        text: &str,
        (principal, session): (&Principal, SessionId),
    ) -> TextFit {
        let text = Query::readable_part(text.trim());
        if text.is_empty() {
            return TextFit::default();
        }
        let fitting = async {
            self.refresh_history(principal).await;
            let prepared = self.index_and_embed(offer).await;
            let turn = self.shared.turns.take(principal).await;
            let asking = self.shared.prepare_query(text, &prepared).await;
            let (shared, principal) = (Arc::clone(&self.shared), principal.clone());
            let query = asking.query;
            let ranking = tokio::task::spawn_blocking(move || {
                let index = prepared.index();
                let ranking = &shared.rules.ranking;
                let hits = shared.rank((&principal, session), &query, (&index, ranking));
                drop(turn);
                fits_of(&hits)
            });
            TextFit {
                fits: ranking.await.unwrap_or_default(),
                vector: (asking.vectors.into_iter().next()).map(|vector| vector.raw),
            }
        };
        let limit = self.shared.rules.encoder_deadline + RANKING_TIMEOUT;
        let fitted = tokio::time::timeout(limit, fitting).await;
        fitted.unwrap_or_default()
    }
}

impl SearchCore {
    /// Prepares a text for ranking: encodes it and analyses its words.
    pub(super) async fn prepare_query(
        &self,
        text: &str,
        prepared: &crate::search::index_cache::SearchIndex,
    ) -> PreparedQuery {
        let vectors = self.encode_query(text, prepared).await;
        let query = Query::new(text, &self.rules.synonyms);
        let query = (vectors.iter()).fold(query, |query, vector| {
            query.with_vector(vector.centred.clone())
        });
        PreparedQuery { query, vectors }
    }
}

/// Returns the scores of hits by their positions.
pub(super) fn fits_of(hits: &[SearchHit]) -> Vec<(usize, f64)> {
    hits.iter().map(|hit| (hit.position, hit.score)).collect()
}
