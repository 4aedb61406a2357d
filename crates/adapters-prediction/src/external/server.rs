//! A predictor behind HTTP: one POST request for each prediction.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::InvalidHeaderValue;
use riglm_ports::external_predictor::{ExternalPredictor, ScoreError, ScoreRequest, ScoreResponse};
use secrecy::SecretString;
use url::Url;

use crate::endpoint::{Endpoint, EndpointError, EndpointSettings, EndpointSetupError};

/// Maximum size of a response: scores and reasons for the largest request.
const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;

/// The reason why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerSetupError {
    /// The scheme of the URL is neither http nor https.
    #[error("url of the external predictor must begin with http:// or https://")]
    Scheme,
    /// The key has characters that a header cannot have.
    #[error("api_key of the external predictor has characters that are invalid in a header")]
    ApiKey(#[source] InvalidHeaderValue),
    /// The HTTP client cannot be set up, usually because of TLS.
    #[error("failed to set up the HTTP client of the external predictor")]
    Client(#[source] reqwest::Error),
}

/// Asks a server for scores.
#[derive(Debug)]
pub struct ServerPredictor {
    name: String,
    endpoint: Endpoint,
}

impl ServerPredictor {
    /// Returns the predictor at an address. It connects at the first request. `deadline` is the
    /// maximum time of a request.
    ///
    /// # Errors
    ///
    /// Returns [`ServerSetupError`] for an address or a key that cannot be used.
    pub fn new(
        url: &Url,
        api_key: Option<&SecretString>,
        deadline: Duration,
    ) -> Result<Self, ServerSetupError> {
        let mut base = url.clone();
        base.set_path("");
        let settings = EndpointSettings {
            url: &base,
            path: url.path().trim_start_matches('/'),
            api_key,
            timeout: deadline,
            max_reply_bytes: MAX_REPLY_BYTES,
        };
        let endpoint = Endpoint::new(settings).map_err(|error| match error {
            EndpointSetupError::Scheme => ServerSetupError::Scheme,
            EndpointSetupError::ApiKey(error) => ServerSetupError::ApiKey(error),
            EndpointSetupError::Client(error) => ServerSetupError::Client(error),
        })?;
        Ok(Self {
            name: url.origin().ascii_serialization(),
            endpoint,
        })
    }
}

#[async_trait]
impl ExternalPredictor for ServerPredictor {
    fn name(&self) -> &str {
        &self.name
    }

    async fn score(&self, request: &ScoreRequest) -> Result<ScoreResponse, ScoreError> {
        let body = self
            .endpoint
            .post(request)
            .await
            .map_err(|error| match error {
                EndpointError::TooSlow { limit } => ScoreError::Late(limit),
                EndpointError::TooLong { limit } => {
                    ScoreError::Invalid(format!("more than {limit} bytes"))
                }
                other => ScoreError::Unavailable(other.into()),
            })?;
        let response: ScoreResponse = serde_json::from_slice(&body)
            .map_err(|error| ScoreError::Invalid(error.to_string()))?;
        response.check(request)?;
        Ok(response)
    }
}
