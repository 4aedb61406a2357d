//! The encoders of a search, the better one first, each with its caches and its error state.

use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::retrieval::Query;
use riglm_domain::retrieval::embedding::Embedding;

use super::{SearchEncoder, SearchRules};
use crate::search::encoders::{EncoderCondition, EncoderTier};
use crate::search::index_cache::SearchIndex;
use crate::search::memory::SearchStores;

/// The vector of a query, as encoded and centred.
#[derive(Clone, Debug)]
pub(super) struct EncodedQuery {
    pub(super) raw: Embedding,
    pub(super) centred: Embedding,
}

/// The vector of a query that a client computed, and the number of the encoder with its model.
#[derive(Debug)]
pub(super) struct GivenVector {
    number: usize,
    encoded: EncodedQuery,
}

/// The reason why the vector of a query that a client computed cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableVector {
    #[error("no encoder has the model {model:?}, only {known}")]
    UnknownModel {
        model: String,
        /// Names of the models of the encoders, separated by commas.
        known: String,
    },
    #[error("the tools have no vectors of {model} yet")]
    ToolsNotEmbedded { model: String },
    #[error("vectors of {model} do not have {components} components")]
    WrongLength { model: String, components: usize },
}

/// A text that is ready for ranking.
pub(super) struct PreparedQuery {
    pub(super) query: Query,
    /// Vectors of the encoders that answered, the better ones first.
    pub(super) vectors: Vec<EncodedQuery>,
}

/// The encoders of a search.
#[derive(Debug)]
pub(super) struct EncoderTiers {
    tiers: Vec<EncoderTier>,
    /// Lock by which catalogs are embedded one at a time.
    turn: tokio::sync::Mutex<()>,
}

impl EncoderTiers {
    /// Creates the tiers of some encoders, whose vectors are stored where they are configured so.
    pub(super) fn over(encoders: Vec<SearchEncoder>, stores: Option<&SearchStores>) -> Self {
        let embeddings = || stores.map(|stores| Arc::clone(&stores.embeddings));
        let tier = |it: SearchEncoder| {
            let store = embeddings().filter(|_| it.is_stored);
            EncoderTier::new(it.encoder, store)
        };
        Self {
            tiers: encoders.into_iter().map(tier).collect(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns the encoders, the better one first.
    pub(super) fn all(&self) -> &[EncoderTier] {
        &self.tiers
    }

    /// Returns the encoders by model name, each with its condition.
    pub(super) fn conditions(&self) -> Vec<(String, EncoderCondition)> {
        let tiers = self.tiers.iter();
        tiers
            .map(|tier| (tier.model().to_owned(), tier.condition()))
            .collect()
    }

    /// Returns whether every encoder has embedded a catalog.
    pub(super) fn have_embedded(&self, prepared: &SearchIndex) -> bool {
        (0..self.tiers.len()).all(|tier| prepared.is_embedded(tier))
    }

    /// Prepares a text for ranking: encodes it and analyses its words. A `given` vector replaces that
    /// of its encoder.
    pub(super) async fn prepare_query(
        &self,
        text: &str,
        given: Option<GivenVector>,
        prepared: &SearchIndex,
        rules: &SearchRules,
    ) -> PreparedQuery {
        let vectors = self.encode_query(text, given, prepared, rules).await;
        let query = Query::new(text, &rules.synonyms);
        let query = (vectors.iter()).fold(query, |query, vector| {
            query.with_vector(vector.centred.clone())
        });
        PreparedQuery { query, vectors }
    }

    /// Subtracts the mean of its model from a vector as encoded; `None` if no encoder has the model.
    pub(super) fn subtract_mean(&self, raw: &Embedding) -> Option<Embedding> {
        let mut tiers = self.tiers.iter();
        let tier = tiers.find(|tier| tier.model() == raw.model())?;
        tier.subtract_mean(raw.vector())
    }

    /// Returns the vector of a query that a client computed, for the encoder with its model.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot be used.
    pub(super) fn accept(
        &self,
        given: &Embedding,
        prepared: &SearchIndex,
    ) -> Result<GivenVector, UnusableVector> {
        let model = || given.model().to_owned();
        let mut tiers = self.tiers.iter().enumerate();
        let Some((number, tier)) = tiers.find(|(_, tier)| is_name_of(given.model(), tier)) else {
            let models: Vec<&str> = self.tiers.iter().map(EncoderTier::model).collect();
            return Err(UnusableVector::UnknownModel {
                model: model(),
                known: models.join(", "),
            });
        };
        if !prepared.is_embedded(number) {
            return Err(UnusableVector::ToolsNotEmbedded { model: model() });
        }
        let vector = given.vector();
        let raw = Embedding::new(tier.model(), vector.to_vec()).ok();
        let encoded = raw.zip(tier.subtract_mean(vector));
        let Some((raw, centred)) = encoded else {
            return Err(UnusableVector::WrongLength {
                model: model(),
                components: vector.len(),
            });
        };
        Ok(GivenVector {
            number,
            encoded: EncodedQuery { raw, centred },
        })
    }

    /// Computes the vectors of a catalog, with the fastest encoder first.
    pub(super) async fn embed(&self, prepared: &SearchIndex) {
        for (number, tier) in self.tiers.iter().enumerate().rev() {
            let _one_at_a_time = self.turn.lock().await;
            if prepared.is_embedded(number) || tier.is_backing_off() {
                continue;
            }
            let tools = prepared.by_words.tools();
            let model = tier.model();
            let progress = |done: usize, all: usize| {
                tracing::debug!(%model, "embedded {done} of {all} tool texts");
            };
            let started = std::time::Instant::now();
            match tier.tools(tools, &progress).await {
                Ok((vectors, centre)) => {
                    if let Some(notes) = &prepared.notes {
                        match tier.tools(notes.documents(), &|_, _| {}).await {
                            Ok((of_notes, _)) => {
                                notes.add_vectors(number, model, &vectors, &of_notes, &centre);
                            }
                            Err(error) => {
                                tier.report_failure(&error);
                                continue;
                            }
                        }
                    }
                    prepared.add_vectors(number, model, &vectors, &centre);
                    let n_tools = tools.len();
                    let took_ms = started.elapsed().as_millis();
                    tracing::debug!(%model, took_ms, "embedding complete: {n_tools} tools");
                }
                Err(error) => tier.report_failure(&error),
            }
        }
    }

    /// Returns the vectors of a query, one for each encoder that has embedded the catalog and
    /// answers in time, the better ones first. A given vector replaces that of its encoder.
    async fn encode_query(
        &self,
        text: &str,
        given: Option<GivenVector>,
        prepared: &SearchIndex,
        rules: &SearchRules,
    ) -> Vec<EncodedQuery> {
        let given = &given;
        let done = self.tiers.iter().enumerate();
        let done = done.filter(|(number, _)| prepared.is_embedded(*number));
        let encoding = done.map(|(number, tier)| async move {
            if let Some(given) = given.as_ref().filter(|given| given.number == number) {
                return Some(given.encoded.clone());
            }
            let vector = tier.query(text, rules.encoder_deadline).await?;
            Some(EncodedQuery {
                raw: Embedding::new(tier.model(), vector.to_vec()).ok()?,
                centred: tier.subtract_mean(&vector)?,
            })
        });
        let encoded = join_all(encoding).await;
        encoded.into_iter().flatten().collect()
    }
}

/// Returns whether a client names the model of an encoder: by its id, `NAME:FORM@DIGEST` or
/// `remote:NAME@DIGEST`, or by the name alone, which is all that other programs know.
fn is_name_of(name: &str, tier: &EncoderTier) -> bool {
    let id = tier.model();
    let without_digest = id.rsplit_once('@').map_or(id, |(rest, _)| rest);
    let model = match without_digest.strip_prefix("remote:") {
        Some(model) => model,
        None => without_digest.split(':').next().unwrap_or_default(),
    };
    name == id || name == model
}
