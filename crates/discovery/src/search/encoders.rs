//! Encoders of the search, the better one first, with stored vectors and the mean vectors that are
//! subtracted.

mod embedding_tasks;
mod refusals;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{IndexedTool, ToolVectors, VectorCentre};
use riglm_ports::analytics::EmbeddingRepository;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

pub(super) use embedding_tasks::EmbeddingTasks;
use refusals::Refusals;

/// Cached vectors of queries.
const MAX_QUERIES: usize = 512;
/// Texts per batch of embedding and storing, so that an interruption loses little work.
const ENCODE_BATCH: usize = 16;
/// Texts per lookup in the store.
const LOOKUP_BATCH: usize = 500;
/// Ordinary queries. Their mean estimates the component that all query vectors share.
const SAMPLE_QUERIES: &str = include_str!("../../data/sample_queries.txt");
/// Ordinary tools. Their mean is a prior for the mean of a small catalog.
const SAMPLE_TOOLS: &str = include_str!("../../data/sample_tools.txt");
/// Weight of the prior mean, in number of tools.
const PRIOR_TOOLS: f64 = 10.0;

/// Whether searches have vectors of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderCondition {
    /// No text has been encoded yet.
    Unused,
    /// Vectors are available.
    Ready,
    /// The last request failed or exceeded its deadline.
    Failing,
}

/// An encoder with its caches and its error state.
#[derive(Debug)]
pub struct EncoderTier {
    encoder: Arc<dyn Encoder>,
    store: Option<Arc<dyn EmbeddingRepository>>,
    queries: Mutex<LruCache<String, Arc<[f32]>>>,
    centres: OnceCell<MeanVectors>,
    /// Dimension of the vectors that the encoder returns now. Stored vectors may have another one.
    dimension: OnceCell<usize>,
    has_told_of_dimension: AtomicBool,
    refusals: Refusals,
    is_failing: AtomicBool,
}

/// Mean vectors of a model.
#[derive(Clone, Debug)]
struct MeanVectors {
    queries: VectorCentre,
    tools: VectorCentre,
}

impl EncoderTier {
    /// Creates a tier of one encoder; with a store, vectors are kept there.
    pub fn new(encoder: Arc<dyn Encoder>, store: Option<Arc<dyn EmbeddingRepository>>) -> Self {
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

    /// Returns the name of the model.
    pub fn model(&self) -> &str {
        self.encoder.model()
    }

    /// Returns whether searches have vectors of this encoder.
    pub(super) fn condition(&self) -> EncoderCondition {
        if self.is_failing.load(Ordering::Relaxed) {
            EncoderCondition::Failing
        } else if self.centres.initialized() {
            EncoderCondition::Ready
        } else {
            EncoderCondition::Unused
        }
    }

    /// Returns the vector of a query, or `None` after a failure or at the deadline. The first
    /// failure of a series is logged.
    pub(super) async fn query(&self, text: &str, deadline: Duration) -> Option<Arc<[f32]>> {
        if let Some(known) = self.queries.lock().get(text) {
            return Some(Arc::clone(known));
        }
        let texts = vec![text.to_owned()];
        let encoding = self.encoder.encode(texts, TextRole::Query);
        let vector = match tokio::time::timeout(deadline, encoding).await {
            Ok(Ok(mut vectors)) => vectors.pop()?,
            Ok(Err(error)) => {
                self.report_failure(&error);
                return None;
            }
            Err(_) => {
                self.report_late(deadline);
                return None;
            }
        };
        if let Err(error) = Embedding::new(self.model(), vector.clone()) {
            self.report_failure(&EncoderError::Failed {
                model: self.model().to_owned(),
                source: error.into(),
            });
            return None;
        }
        self.report_recovery();
        let vector: Arc<[f32]> = vector.into();
        self.queries
            .lock()
            .put(text.to_owned(), Arc::clone(&vector));
        Some(vector)
    }

    /// Encodes a query without the cache.
    ///
    /// # Errors
    ///
    /// Returns the error of the encoder.
    pub async fn encode_uncached(&self, text: &str) -> Result<Vec<f32>, EncoderError> {
        let texts = vec![text.to_owned()];
        let mut vectors = self.encoder.encode(texts, TextRole::Query).await?;
        Ok(vectors.pop().unwrap_or_default())
    }

    /// Returns the vector of a query minus the mean of all queries, or `None` if the dimension
    /// differs. The vectors of the tools must exist before.
    pub fn subtract_mean(&self, vector: &[f32]) -> Option<Embedding> {
        let centres = self.centres.get()?;
        let dimension = centres.queries.dimension();
        if dimension != 0 && vector.len() != dimension {
            return None;
        }
        Embedding::new(self.model(), centres.queries.apply(vector)).ok()
    }

    /// Subtracts the mean from a stored query vector of this model. Computes the mean vectors first
    /// if necessary.
    pub(super) async fn subtract_mean_when_ready(&self, query: &Embedding) -> Option<Embedding> {
        self.centres
            .get_or_try_init(|| self.sample_means())
            .await
            .ok()?;
        self.subtract_mean(query.vector())
    }

    /// Returns whether the encoder recently refused the tools and is in back-off.
    pub(super) fn is_backing_off(&self) -> bool {
        self.refusals.is_backing_off()
    }

    /// Returns the vectors of the tools, in their order, and their mean. Only vectors that the
    /// store lacks are computed. A text that the encoder refuses has an empty vector. `progress`
    /// gets the number of finished texts and the number of all texts.
    ///
    /// # Errors
    ///
    /// Returns [`EncoderError`] when the encoder cannot be reached, and when it refuses every text;
    /// the encoder is in back-off then.
    pub async fn tools(
        &self,
        tools: &[IndexedTool],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Vec<ToolVectors>, VectorCentre), EncoderError> {
        let made = self.tool_vectors(tools, progress).await;
        match &made {
            Ok(_) => self.refusals.reset_back_off(),
            Err(EncoderError::Failed { .. }) => self.refusals.back_off(),
            // Encoders that cannot be reached or loaded have their own back-off.
            Err(_) => {}
        }
        made
    }

    async fn tool_vectors(
        &self,
        tools: &[IndexedTool],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Vec<ToolVectors>, VectorCentre), EncoderError> {
        let centres = self
            .centres
            .get_or_try_init(|| self.sample_means())
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
        let centre = VectorCentre::of(all).map_or(centres.tools.clone(), |own| {
            own.shrink_towards(tools.len(), &centres.tools, PRIOR_TOOLS)
        });
        Ok((vectors, centre))
    }

    /// Computes the mean vectors of the sample texts.
    async fn sample_means(&self) -> Result<MeanVectors, EncoderError> {
        let lines = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        let silent = |_, _| {};
        if self.store.is_some() {
            // The dimension decides which stored vectors are valid, so it is needed before the
            // store is read.
            let text = lines(SAMPLE_QUERIES).swap_remove(0);
            let dimension = self
                .dimension
                .get_or_try_init(|| self.measure_dimension(text));
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
            VectorCentre::of(made.map(Vec::as_slice))
        };
        Ok(MeanVectors {
            queries: mean(&queries).unwrap_or_else(VectorCentre::none),
            tools: mean(&tools).unwrap_or_else(VectorCentre::none),
        })
    }

    /// Returns the dimension of the encoder's vectors. If the encoder does not know it, encodes
    /// `text`.
    async fn measure_dimension(&self, text: String) -> Result<usize, EncoderError> {
        match self.encoder.dimension() {
            Some(dimension) => Ok(dimension),
            None => Ok(self.encode_uncached(&text).await?.len()),
        }
    }

    async fn passages(
        &self,
        texts: Vec<String>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        self.vectors(texts, TextRole::Passage, progress).await
    }

    /// Returns the vectors of texts from the store, and computes the missing ones. A refused text
    /// has an empty vector.
    async fn vectors(
        &self,
        texts: Vec<String>,
        role: TextRole,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let hashes: Vec<String> = texts.iter().map(|text| text_hash(role, text)).collect();
        let mut known = self.load_vectors(&hashes).await;
        // A map by hash, so that equal texts are encoded only once.
        let missing: BTreeMap<&String, &String> = (hashes.iter().zip(&texts))
            .filter(|(hash, _)| !known.contains_key(*hash) && !self.refusals.has(hash))
            .collect();
        let missing: Vec<(&String, &String)> = missing.into_iter().collect();
        let n_missing = missing.len();
        for (number, batch) in missing.chunks(ENCODE_BATCH).enumerate() {
            let made =
                refusals::encode_batch(&*self.encoder, batch, role, !known.is_empty()).await?;
            self.refusals.add(made.refused);
            self.store(&made.vectors).await;
            known.extend(made.vectors);
            progress(
                (number * ENCODE_BATCH + batch.len()).min(n_missing),
                n_missing,
            );
        }
        self.report_recovery();
        Ok(hashes
            .iter()
            .map(|hash| known.get(hash).cloned().unwrap_or_default())
            .collect())
    }

    /// Returns the stored vectors of the texts that have the encoder's present dimension. An error
    /// of the store yields the vectors read so far.
    async fn load_vectors(&self, hashes: &[String]) -> BTreeMap<String, Vec<f32>> {
        let mut known = BTreeMap::new();
        let Some(store) = &self.store else {
            return known;
        };
        for hashes in hashes.chunks(LOOKUP_BATCH) {
            match store.embeddings(self.model(), hashes).await {
                Ok(found) => known.extend(
                    (found.into_iter())
                        .filter(|(_, embedding)| self.is_current(embedding))
                        .map(|(hash, embedding)| (hash, embedding.vector().to_vec())),
                ),
                Err(error) => {
                    // Vectors that cannot be read are computed again.
                    tracing::debug!("failed to read stored vectors: {error}");
                    return known;
                }
            }
        }
        known
    }

    /// Returns whether a stored vector has the encoder's present dimension. Logs the first
    /// mismatch.
    fn is_current(&self, stored: &Embedding) -> bool {
        let found = stored.vector().len();
        let Some(dimension) = self.dimension.get().filter(|now| **now != found) else {
            return true;
        };
        if !self.has_told_of_dimension.swap(true, Ordering::Relaxed) {
            let model = self.model();
            tracing::warn!(
                %model,
                "stored vectors of {model} have dimension {found}, but the encoder now returns \
                 dimension {dimension}: embedding texts again"
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
                        tracing::debug!("failed to store a vector: {error}");
                        None
                    }
                },
            )
            .collect();
        if let Err(error) = store.put_embeddings(&rows).await {
            tracing::debug!("failed to store vectors: {error}");
        }
    }

    /// Logs the first failure of a series.
    pub(super) fn report_failure(&self, error: &EncoderError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let error = error as &(dyn std::error::Error + 'static);
            let model = self.model();
            tracing::warn!(error, %model, "encoder {model} failed: searching without it");
        }
    }

    fn report_late(&self, deadline: Duration) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let model = self.model();
            let limit_ms = deadline.as_millis();
            tracing::warn!(
                %model,
                "encoder {model} reached its timeout of {limit_ms} ms: searching without it"
            );
        }
    }

    fn report_recovery(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let model = self.model();
            tracing::info!(%model, "encoder {model} works again");
        }
    }
}

/// Returns the key under which the store has the vector of a text, within one model.
fn text_hash(role: TextRole, text: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(role.as_str());
    digest.update([0]);
    digest.update(text);
    hex::encode(digest.finalize())
}

#[cfg(test)]
mod tests;
