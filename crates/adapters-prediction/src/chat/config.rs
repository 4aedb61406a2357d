//! The configuration of a language model.

use std::fmt;

use reqwest::header::InvalidHeaderValue;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;
use validator::Validate;

/// Which language model is asked.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// The address below which `/chat/completions` is, such as `https://host/v1`; http or https.
    pub url: Url,
    /// The model that is asked for.
    #[validate(length(min = 1, max = 200, message = "expected 1 to 200 characters"))]
    pub model: String,
    /// The key that is sent as `Authorization: Bearer`; none is sent without one.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// The most tokens of an answer.
    #[serde(default = "default_max_tokens")]
    #[validate(range(min = 16, max = 32_768, message = "expected a number from 16 to 32768"))]
    pub max_tokens: u32,
}

/// Why a language model cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum ChatConfigError {
    /// The URL is of another scheme.
    #[error("url must begin with http:// or https://")]
    Scheme,
    /// The key has characters that a header cannot have.
    #[error("api_key cannot be sent")]
    ApiKey(#[source] InvalidHeaderValue),
    /// The HTTP client cannot be set up, which mostly means TLS.
    #[error("failed to set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// Thirty long names fit.
fn default_max_tokens() -> u32 {
    1_024
}

impl PartialEq for ChatConfig {
    fn eq(&self, other: &Self) -> bool {
        let key = |config: &Self| {
            let key = config.api_key.as_ref();
            key.map(|key| key.expose_secret().to_owned())
        };
        self.url == other.url
            && self.model == other.model
            && key(self) == key(other)
            && self.max_tokens == other.max_tokens
    }
}

impl fmt::Debug for ChatConfig {
    /// Leaves out the key and all of the URL but its origin, as it may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatConfig")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("model", &self.model)
            .field("has_api_key", &self.api_key.is_some())
            .field("max_tokens", &self.max_tokens)
            .finish()
    }
}
