//! Vectors from a server with an `/embeddings` endpoint, as many servers have it: a list of texts
//! in, a list of vectors out.
//!
//! [`client`] sends one request and reads the response. [`reply`] checks it. [`breaker`] prevents
//! that every call waits for its deadline while the server is down.

mod breaker;
mod client;
mod config;
mod error;
mod reply;

use std::fmt;
use std::sync::OnceLock;

use async_trait::async_trait;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};

use breaker::ServerBreaker;
use client::Client;
pub use config::{RemoteConfig, RemoteConfigError};
use error::RemoteError;

/// Maximum number of texts in a request.
const BATCH: usize = 64;

/// Replacement of a blank text, which servers refuse.
const BLANK: &str = ".";

/// Requests vectors from a server, up to 64 texts per request, one request at a time.
///
/// Texts, including the prefix, are truncated to the configured length. Vectors are scaled to
/// length 1. When the server is down, calls fail at once during a back-off of 10 to 60 seconds.
/// After it, one call tries the server.
pub struct RemoteEncoder {
    id: String,
    config: RemoteConfig,
    client: Client,
    breaker: ServerBreaker,
    /// Dimension of all vectors: the configured one, or the dimension of the first vectors.
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
    /// Returns an encoder that uses the configured server. It connects at the first text.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteConfigError`] for values out of their range, for a URL that is not http or
    /// https, for a key that cannot be sent, and when the TLS set-up of the system cannot be used.
    pub fn new(config: RemoteConfig) -> Result<Self, RemoteConfigError> {
        let client = Client::new(&config)?;
        Ok(Self {
            id: config.id(),
            dimension: config.dimensions.map(OnceLock::from).unwrap_or_default(),
            breaker: ServerBreaker::new(config.timeout),
            client,
            config,
        })
    }

    /// Returns the vectors of one batch.
    async fn batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, RemoteError> {
        let permit = self.breaker.admit()?;
        let answer = self.client.post(texts).await;
        match &answer {
            Err(error) if error.is_outage() => {
                if self.breaker.record_failure(permit) {
                    tracing::warn!(
                        model = self.id,
                        error = %error.with_causes(),
                        "the encoder server is unavailable"
                    );
                }
            }
            // Any response, also an error, shows that the server is up.
            _ => {
                if self.breaker.record_answer() {
                    tracing::info!(model = self.id, "the encoder server is available again");
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

    /// Returns the input for a text, with prefix and truncated.
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
