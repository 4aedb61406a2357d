//! Vectors from a server with an endpoint `/embeddings`, as many have: a list of texts in, a list
//! of vectors out.
//!
//! [`client`] sends one request and reads the answer, which [`reply`] checks; [`breaker`] keeps a
//! server that is down from costing every call its deadline.

mod breaker;
mod client;
mod config;
mod error;
mod reply;

use std::fmt;
use std::sync::OnceLock;

use async_trait::async_trait;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};

use breaker::Breaker;
use client::Client;
pub use config::{RemoteConfig, RemoteConfigError};
use error::RemoteError;

/// The most texts of a request.
const BATCH: usize = 64;

/// What is sent for a text that is blank, which servers refuse.
const BLANK: &str = ".";

/// Asks a server for vectors, up to 64 texts a request, one request after another.
///
/// The beginning of a text counts, as much as is configured, its prefix included. Vectors are
/// scaled to length 1. When the server is down, calls fail at once for a while, which grows from 10 to 60 seconds; then
/// one call tries it again.
pub struct RemoteEncoder {
    id: String,
    config: RemoteConfig,
    client: Client,
    breaker: Breaker,
    /// The dimension of all vectors: the configured one, or that of the first ones.
    dimension: OnceLock<usize>,
}

impl fmt::Debug for RemoteEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEncoder")
            .field("id", &self.id)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl RemoteEncoder {
    /// Returns an encoder that asks the configured server; it is not reached before the first
    /// text.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteConfigError`] for values out of their range, a URL that is not http or
    /// https, and a key that cannot be sent, and when the TLS set-up of the system cannot be used.
    pub fn new(config: RemoteConfig) -> Result<Self, RemoteConfigError> {
        let client = Client::new(&config)?;
        Ok(Self {
            id: config.id(),
            dimension: config.dimensions.map(OnceLock::from).unwrap_or_default(),
            breaker: Breaker::new(config.timeout),
            client,
            config,
        })
    }

    /// Returns the vectors of one batch.
    async fn batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, RemoteError> {
        let ticket = self.breaker.admit()?;
        let answer = self.client.post(texts).await;
        match &answer {
            Err(error) if error.is_outage() => {
                if self.breaker.failed(&ticket) {
                    tracing::warn!(
                        model = self.id,
                        error = %error.with_causes(),
                        "the server of the encoder is down"
                    );
                }
            }
            // Whatever it says, it is there.
            _ => {
                if self.breaker.answered() {
                    tracing::info!(model = self.id, "the server of the encoder is back");
                }
            }
        }
        let vectors = reply::vectors(&answer?, texts.len())?;
        for vector in &vectors {
            let expected = *self.dimension.get_or_init(|| vector.len());
            if vector.len() != expected {
                let found = vector.len();
                return Err(RemoteError::Dimension { expected, found });
            }
        }
        Ok(vectors)
    }

    /// Returns what is sent for a text.
    fn input(&self, text: &str, role: TextRole) -> String {
        if text.trim().is_empty() {
            return BLANK.into();
        }
        let prefix = match role {
            TextRole::Query => &self.config.query_prefix,
            TextRole::Passage => &self.config.passage_prefix,
        };
        let room = self.config.max_text_bytes.saturating_sub(prefix.len());
        let text = text.trim_start();
        let text = &text[..text.floor_char_boundary(room)];
        format!("{prefix}{text}")
    }

    fn failure(&self, error: RemoteError) -> EncoderError {
        let model = self.id.clone();
        if error.is_outage() || matches!(error, RemoteError::Down { .. }) {
            let source = error.into();
            EncoderError::Unavailable { model, source }
        } else {
            let source = error.into();
            EncoderError::Failed { model, source }
        }
    }
}

#[async_trait]
impl Encoder for RemoteEncoder {
    fn model(&self) -> &str {
        &self.id
    }

    fn dimension(&self) -> Option<usize> {
        self.config.dimensions
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            let inputs: Vec<String> = batch.iter().map(|text| self.input(text, role)).collect();
            let batch = self.batch(&inputs).await;
            vectors.extend(batch.map_err(|error| self.failure(error))?);
        }
        Ok(vectors)
    }
}

#[cfg(test)]
mod tests;
