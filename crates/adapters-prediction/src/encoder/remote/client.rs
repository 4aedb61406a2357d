//! Client of an embedding server.

use serde::Serialize;
use validator::Validate;

use super::config::{RemoteConfig, RemoteConfigError};
use super::error::RemoteError;
use crate::endpoint::{Endpoint, EndpointSettings, EndpointSetupError};

/// Maximum size of a response. 64 vectors of 8,192 numbers fit.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// Sends requests to one server.
pub(super) struct Client {
    endpoint: Endpoint,
    model: String,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct EmbeddingRequestBody<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

impl Client {
    /// Returns a client for the configured server.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteConfigError`] when the configuration is invalid.
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, RemoteConfigError> {
        config.validate()?;
        config.check_prefixes()?;
        let endpoint = Endpoint::new(EndpointSettings {
            url: &config.url,
            path: "embeddings",
            api_key: config.api_key.as_ref(),
            timeout: config.timeout,
            max_reply_bytes: MAX_REPLY_BYTES,
        });
        Ok(Self {
            endpoint: endpoint.map_err(|error| match error {
                EndpointSetupError::Scheme => RemoteConfigError::Scheme,
                EndpointSetupError::ApiKey(source) => RemoteConfigError::ApiKey(source),
                EndpointSetupError::Client(source) => RemoteConfigError::Client(source),
            })?,
            model: config.model.clone(),
            dimensions: config.dimensions,
        })
    }

    /// Sends texts and returns the body of the response.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteError`] when there is no response in time, or an error status.
    pub(super) async fn post(&self, texts: &[String]) -> Result<Vec<u8>, RemoteError> {
        let body = EmbeddingRequestBody {
            model: &self.model,
            input: texts,
            encoding_format: "float",
            dimensions: self.dimensions,
        };
        Ok(self.endpoint.post(&body).await?)
    }
}
