//! The encoders of the search, the better one first, and vectors that are made once.

mod flights;
mod refusals;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use riglm_domain::embedding::Embedding;
use riglm_domain::retrieval::{Centre, IndexedTool, ToolVectors};
use riglm_ports::analytics::EmbeddingRepository;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

pub(super) use flights::Flights;
use refusals::Refusals;

/// How many vectors of queries are held.
const MAX_QUERIES: usize = 512;
/// How many texts are embedded and stored at a time, so that an end in between loses little.
const BATCH: usize = 16;
/// How many texts are looked up at a time.
const LOOKUP: usize = 500;
/// Ordinary requests; their mean is what vectors of queries have in common.
const SAMPLE_QUERIES: &str = include_str!("../../data/sample_queries.txt");
/// Ordinary tools; their mean stands beside that of a small catalog.
const SAMPLE_TOOLS: &str = include_str!("../../data/sample_tools.txt");
/// How many tools the mean of the ordinary ones counts for, beside that of the catalog.
const PRIOR_TOOLS: f64 = 10.0;

/// Whether searches have the vectors of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderCondition {
    /// Nothing was embedded yet.
    Unused,
    /// They have.
    Ready,
    /// It failed or was late the last time.
    Failing,
}

/// An encoder with what was made with it before.
#[derive(Debug)]
pub(super) struct Tier {
    encoder: Arc<dyn Encoder>,
    store: Option<Arc<dyn EmbeddingRepository>>,
    queries: Mutex<LruCache<String, Arc<[f32]>>>,
    centres: OnceCell<Centres>,
    /// The dimension of the vectors that it makes now: stored ones may be of another.
    dimension: OnceCell<usize>,
    has_told_of_dimension: AtomicBool,
    refusals: Refusals,
    is_failing: AtomicBool,
}

/// What vectors of a model have in common.
#[derive(Clone, Debug)]
struct Centres {
    queries: Centre,
    tools: Centre,
}

impl Tier {
    pub(super) fn new(
        encoder: Arc<dyn Encoder>,
        store: Option<Arc<dyn EmbeddingRepository>>,
    ) -> Self {
        let n = NonZeroUsize::new(MAX_QUERIES).unwrap_or(NonZeroUsize::MIN);
        Self {
            encoder,
            store,
            queries: Mutex::new(LruCache::new(n)),
            centres: OnceCell::new(),
            dimension: OnceCell::new(),
            has_told_of_dimension: AtomicBool::new(false),
            refusals: Refusals::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    pub(super) fn model(&self) -> &str {
        self.encoder.model()
    }

    /// Returns whether searches have its vectors.
    pub(super) fn condition(&self) -> EncoderCondition {
        if self.is_failing.load(Ordering::Relaxed) {
            EncoderCondition::Failing
        } else if self.centres.initialized() {
            EncoderCondition::Ready
        } else {
            EncoderCondition::Unused
        }
    }

    /// Returns the vector of a query within a deadline. Failures are reported once, until it
    /// works again.
    pub(super) async fn query(&self, text: &str, deadline: Duration) -> Option<Arc<[f32]>> {
        if let Some(known) = self.held().get(text) {
            return Some(Arc::clone(known));
        }
        let texts = vec![text.to_owned()];
        let encoding = self.encoder.encode(texts, TextRole::Query);
        let vector = match tokio::time::timeout(deadline, encoding).await {
            Ok(Ok(mut vectors)) => vectors.pop()?,
            Ok(Err(error)) => {
                self.failed(&error);
                return None;
            }
            Err(_) => {
                self.late(deadline);
                return None;
            }
        };
        if let Err(error) = Embedding::new(self.model(), vector.clone()) {
            self.failed(&EncoderError::Failed {
                model: self.model().to_owned(),
                source: error.into(),
            });
            return None;
        }
        self.works();
        let vector: Arc<[f32]> = vector.into();
        self.held().put(text.to_owned(), Arc::clone(&vector));
        Some(vector)
    }

    /// Returns the vector of a query, made anew.
    pub(super) async fn fresh_query(&self, text: &str) -> Result<Vec<f32>, EncoderError> {
        let texts = vec![text.to_owned()];
        let mut vectors = self.encoder.encode(texts, TextRole::Query).await?;
        Ok(vectors.pop().unwrap_or_default())
    }

    /// Returns the vector of a query without what queries have in common; `None` for one of another
    /// dimension. The vectors of the tools must have been made before.
    pub(super) fn centred(&self, vector: &[f32]) -> Option<Embedding> {
        let centres = self.centres.get()?;
        let dimension = centres.queries.dimension();
        if dimension != 0 && vector.len() != dimension {
            return None;
        }
        Embedding::new(self.model(), centres.queries.apply(vector)).ok()
    }

    /// Returns the vector of an earlier query of this model without what queries have in common.
    pub(super) async fn centred_when_ready(&self, query: &Embedding) -> Option<Embedding> {
        self.centres.get_or_try_init(|| self.sample()).await.ok()?;
        self.centred(query.vector())
    }

    /// Returns whether it refused the tools a short while ago and is left alone.
    pub(super) fn is_resting(&self) -> bool {
        self.refusals.is_resting()
    }

    /// Returns the vectors of the tools, in their order, and what is common to them. What the
    /// store has is not made again. A text that the encoder refuses has an empty vector.
    /// `progress` is told how many texts are done, of how many.
    ///
    /// # Errors
    ///
    /// Returns [`EncoderError`] when the encoder cannot be reached, and when it refuses every text;
    /// see [`Self::is_resting`].
    pub(super) async fn tools(
        &self,
        tools: &[IndexedTool],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Vec<ToolVectors>, Centre), EncoderError> {
        let made = self.tool_vectors(tools, progress).await;
        match &made {
            Ok(_) => self.refusals.end_rest(),
            Err(EncoderError::Failed { .. }) => self.refusals.rest(),
            // Encoders that cannot be reached or loaded know themselves when to try again.
            Err(_) => {}
        }
        made
    }

    async fn tool_vectors(
        &self,
        tools: &[IndexedTool],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Vec<ToolVectors>, Centre), EncoderError> {
        let centres = self
            .centres
            .get_or_try_init(|| self.sample())
            .await?
            .clone();
        let texts: Vec<String> = (tools.iter())
            .flat_map(|tool| [tool.text().full_text(), tool.text().short_text()])
            .collect();
        let vectors = self.passages(texts, progress).await?;
        let vectors: Vec<ToolVectors> = (vectors.chunks_exact(2))
            .map(|pair| ToolVectors {
                full: pair[0].clone(),
                short: pair[1].clone(),
            })
            .collect();
        let all = vectors
            .iter()
            .flat_map(|both| [&both.full[..], &both.short[..]])
            .filter(|vector| !vector.is_empty());
        let centre = Centre::of(all).map_or(centres.tools.clone(), |own| {
            own.shrunk(tools.len(), &centres.tools, PRIOR_TOOLS)
        });
        Ok((vectors, centre))
    }

    /// Embeds the ordinary texts.
    async fn sample(&self) -> Result<Centres, EncoderError> {
        let lines = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        let silent = |_, _| {};
        if self.store.is_some() {
            let text = lines(SAMPLE_QUERIES).swap_remove(0);
            let dimension = self.dimension.get_or_try_init(|| self.measured(text));
            dimension.await?;
        }
        let queries = self
            .vectors(lines(SAMPLE_QUERIES), TextRole::Query, &silent)
            .await?;
        let tools = self
            .vectors(lines(SAMPLE_TOOLS), TextRole::Passage, &silent)
            .await?;
        let mean = |vectors: &[Vec<f32>]| {
            let made = vectors.iter().filter(|vector| !vector.is_empty());
            Centre::of(made.map(Vec::as_slice))
        };
        Ok(Centres {
            queries: mean(&queries).unwrap_or_else(Centre::none),
            tools: mean(&tools).unwrap_or_else(Centre::none),
        })
    }

    /// Returns the dimension of the vectors that the encoder makes, of a text if need be.
    async fn measured(&self, text: String) -> Result<usize, EncoderError> {
        match self.encoder.dimension() {
            Some(dimension) => Ok(dimension),
            None => Ok(self.fresh_query(&text).await?.len()),
        }
    }

    async fn passages(
        &self,
        texts: Vec<String>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        self.vectors(texts, TextRole::Passage, progress).await
    }

    /// Returns the vectors of texts from the store, and makes those that are not there; empty ones
    /// for texts that are refused.
    async fn vectors(
        &self,
        texts: Vec<String>,
        role: TextRole,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let hashes: Vec<String> = texts.iter().map(|text| text_hash(role, text)).collect();
        let mut known = self.stored(&hashes).await;
        let missing: BTreeMap<&String, &String> = (hashes.iter().zip(&texts))
            .filter(|(hash, _)| !known.contains_key(*hash) && !self.refusals.has(hash))
            .collect();
        let missing: Vec<(&String, &String)> = missing.into_iter().collect();
        let n_missing = missing.len();
        for (number, batch) in missing.chunks(BATCH).enumerate() {
            let made = refusals::encoded(&*self.encoder, batch, role, !known.is_empty()).await?;
            self.refusals.add(made.refused);
            self.store(&made.vectors).await;
            known.extend(made.vectors);
            progress((number * BATCH + batch.len()).min(n_missing), n_missing);
        }
        self.works();
        Ok(hashes
            .iter()
            .map(|hash| known.get(hash).cloned().unwrap_or_default())
            .collect())
    }

    /// Returns what the store has of the texts, of the dimension that the encoder makes now.
    async fn stored(&self, hashes: &[String]) -> BTreeMap<String, Vec<f32>> {
        let mut known = BTreeMap::new();
        let Some(store) = &self.store else {
            return known;
        };
        for hashes in hashes.chunks(LOOKUP) {
            match store.embeddings(self.model(), hashes).await {
                Ok(found) => known.extend(
                    (found.into_iter())
                        .filter(|(_, embedding)| self.is_current(embedding))
                        .map(|(hash, embedding)| (hash, embedding.vector().to_vec())),
                ),
                Err(error) => {
                    tracing::debug!("stored vectors could not be read: {error}");
                    return known;
                }
            }
        }
        known
    }

    /// Returns whether a stored vector can be compared with those that the encoder makes now, and
    /// says once when one cannot.
    fn is_current(&self, stored: &Embedding) -> bool {
        let found = stored.vector().len();
        let Some(dimension) = self.dimension.get().filter(|now| **now != found) else {
            return true;
        };
        if !self.has_told_of_dimension.swap(true, Ordering::Relaxed) {
            let model = self.model();
            tracing::warn!(
                %model,
                "stored vectors of {model} have dimension {found}, and it now makes vectors of \
                 dimension {dimension}: texts are embedded again"
            );
        }
        false
    }

    async fn store(&self, made: &[(String, Vec<f32>)]) {
        let Some(store) = &self.store else {
            return;
        };
        let rows: Vec<(String, Embedding)> = (made.iter())
            .filter_map(
                |(hash, vector)| match Embedding::new(self.model(), vector.clone()) {
                    Ok(embedding) => Some((hash.clone(), embedding)),
                    Err(error) => {
                        tracing::debug!("a vector could not be stored: {error}");
                        None
                    }
                },
            )
            .collect();
        if let Err(error) = store.put_embeddings(&rows).await {
            tracing::debug!("vectors could not be stored: {error}");
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, LruCache<String, Arc<[f32]>>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a failure, the first of several.
    pub(super) fn failed(&self, error: &EncoderError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let error = error as &(dyn std::error::Error + 'static);
            let model = self.model();
            tracing::warn!(error, %model, "searches go on without encoder {model}");
        }
    }

    fn late(&self, deadline: Duration) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let model = self.model();
            let limit_ms = deadline.as_millis();
            tracing::warn!(%model, "encoder {model} took longer than {limit_ms} ms: searches go on without it");
        }
    }

    fn works(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let model = self.model();
            tracing::info!(%model, "encoder {model} works again");
        }
    }
}

/// Returns the key of a text's vector in the store, beside the model.
fn text_hash(role: TextRole, text: &str) -> String {
    use std::fmt::Write;
    let mut digest = Sha256::new();
    digest.update(role.as_str());
    digest.update([0]);
    digest.update(text);
    let mut hash = String::with_capacity(64);
    for byte in digest.finalize() {
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

#[cfg(test)]
mod tests;
