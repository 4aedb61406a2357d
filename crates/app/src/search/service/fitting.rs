//! How well tools fit a text that nobody asked to be answered.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{Hit, Query};

use super::{Shared, ToolSearch};
use crate::learning::Intent;
use crate::search::offer::Offer;

/// How long ranking may take, beside the encoders.
const RANKING: Duration = Duration::from_millis(250);

/// How well tools fit a text: evidence of what is needed next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextFit {
    /// Scores by the position of a tool in the offer, the largest first.
    pub fits: Vec<(usize, f64)>,
    /// The vector of the text, where an encoder was there.
    pub vector: Option<Embedding>,
}

impl TextFit {
    /// Returns it as what a session is doing, in the words of `text`.
    #[must_use]
    pub fn intent<'a>(&'a self, text: &'a str) -> Intent<'a> {
        Intent {
            text,
            fits: &self.fits,
            vector: self.vector.as_ref(),
        }
    }
}

/// A text, ready for tools to be ranked by it.
pub(super) struct Asking {
    pub(super) query: Query,
    /// The vectors of the encoders that answered, the better ones first.
    pub(super) vectors: Vec<super::Encoded>,
}

impl ToolSearch {
    /// Returns how well the tools of an offer fit a text, ranked as for a search of this session,
    /// of which nothing is remembered. Nothing where there is nothing to look for, or it takes longer
    /// than the deadline of the encoders and 250 ms.
    pub async fn fits(
        &self,
        offer: &Arc<Offer>,
        text: &str,
        (principal, session): (&Principal, SessionId),
    ) -> TextFit {
        let text = Query::cut(text.trim());
        if text.is_empty() {
            return TextFit::default();
        }
        let fitting = async {
            self.remember(principal).await;
            let prepared = self.prepared(offer).await;
            let turn = self.shared.turns.take(principal).await;
            let asking = self.shared.asking(text, &prepared).await;
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
        let limit = self.shared.rules.encoder_deadline + RANKING;
        let fitted = tokio::time::timeout(limit, fitting).await;
        fitted.unwrap_or_default()
    }
}

impl Shared {
    /// Makes a text ready for tools to be ranked by it.
    pub(super) async fn asking(
        &self,
        text: &str,
        prepared: &crate::search::prepared::Prepared,
    ) -> Asking {
        let vectors = self.encoded(text, prepared).await;
        let query = Query::new(text, &self.rules.synonyms);
        let query = (vectors.iter()).fold(query, |query, vector| {
            query.with_vector(vector.centred.clone())
        });
        Asking { query, vectors }
    }
}

/// Returns the scores of hits by their positions.
pub(super) fn fits_of(hits: &[Hit]) -> Vec<(usize, f64)> {
    hits.iter().map(|hit| (hit.position, hit.score)).collect()
}
