//! A model on disk, computed on a thread of its own.

mod queue;
mod worker;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::resilience::Backoff;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use tokio::sync::oneshot;

use crate::encoder::load;
use crate::encoder::local::queue::{EncodeJob, EncodeQueue};
use crate::encoder::local::worker::{ModelSource, Worker};
use crate::models::manifest::{ModelForm, ModelManifest};

/// Back-off after a model could not be loaded. It is long enough that a broken model costs nothing,
/// and short enough that a repaired one is used soon. There is no server that others could ask at
/// the same moment, so it needs no jitter.
const BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(30), Duration::from_secs(30)).with_jitter(0.0);

/// An encoder whose model is on disk.
///
/// The first request starts a thread, which loads the model. Both stay until the encoder is
/// dropped. After a failure to load, the next attempt is at least 30 seconds later, and calls in
/// between return the error. Texts are computed one by one: queries before passages, and calls with
/// the same role in turn.
pub struct LocalEncoder {
    model: String,
    /// The dimension according to the manifest.
    dimension: Option<usize>,
    queue: Arc<EncodeQueue>,
    source: Arc<ModelSource>,
    started: Mutex<bool>,
}

impl LocalEncoder {
    /// Creates the encoder of the model in `directory` with this manifest. Nothing is read yet. The
    /// model computes on `threads` threads.
    #[must_use]
    pub fn new(directory: PathBuf, manifest: ModelManifest, threads: NonZeroUsize) -> Self {
        let model = identity(&manifest);
        let dimension = Some(manifest.dimension);
        let mut encoder = Self::from_source(ModelSource {
            model: model.clone(),
            query_prefix: manifest.query_prefix.clone(),
            passage_prefix: manifest.passage_prefix.clone(),
            threads,
            backoff: BACKOFF,
            load: Box::new(move || load::load(&directory, &manifest)),
        });
        encoder.dimension = dimension;
        encoder
    }

    fn from_source(source: ModelSource) -> Self {
        Self {
            model: source.model.clone(),
            dimension: None,
            queue: Arc::default(),
            source: Arc::new(source),
            started: Mutex::new(false),
        }
    }

    /// Starts the thread unless it runs.
    fn start(&self) -> Result<(), EncoderError> {
        let mut started = self.started.lock();
        if *started {
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        let source = Arc::clone(&self.source);
        thread::Builder::new()
            .name("encoder".to_owned())
            .spawn(move || Worker::new(source).run(&queue))
            .map_err(|error| EncoderError::Unavailable {
                model: self.model.clone(),
                source: error.into(),
            })?;
        *started = true;
        Ok(())
    }
}

/// Returns `NAME:FORM@DIGEST`, with the first eight digits of the digest of the weights.
fn identity(manifest: &ModelManifest) -> String {
    let form = match manifest.form {
        ModelForm::Bert => "bert",
        ModelForm::XlmRoberta => "xlm-roberta",
        ModelForm::QuantizedBert => "quantized-bert",
    };
    let digest = load::weights(manifest).map_or("", |file| &file.sha256);
    let digest: String = digest.chars().take(8).collect();
    format!("{}:{form}@{}", manifest.name, digest.to_ascii_lowercase())
}

#[async_trait]
impl Encoder for LocalEncoder {
    fn model(&self) -> &str {
        &self.model
    }

    fn dimension(&self) -> Option<usize> {
        self.dimension
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        self.start()?;
        let place = self.queue.acquire_permit(role).await;
        let (answer, answered) = oneshot::channel();
        self.queue.push(EncodeJob::new(texts, role, answer, place));
        answered.await.unwrap_or_else(|ended| {
            Err(EncoderError::Unavailable {
                model: self.model.clone(),
                source: ended.into(),
            })
        })
    }
}

impl Drop for LocalEncoder {
    /// Makes the thread end after its present text, without waiting for it.
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for LocalEncoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LocalEncoder")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
