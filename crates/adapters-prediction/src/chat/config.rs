//! Configuration of a language model.

use std::fmt;

use reqwest::header::InvalidHeaderValue;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;
use validator::Validate;

/// A language model and its server.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// Base URL of `/chat/completions`, such as `https://host/v1`; http or https.
    pub url: Url,
    /// Name of the model.
    #[validate(length(min = 1, max = 200, message = "expected 1 to 200 characters"))]
    pub model: String,
    /// Key for the header `Authorization: Bearer`. Without one, the header is not sent.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// Maximum number of tokens in an answer.
    #[serde(default = "default_max_tokens")]
    #[validate(range(min = 16, max = 32_768, message = "expected a number from 16 to 32768"))]
    pub max_tokens: u32,
}

/// The reason why a configured language model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChatConfigError {
    /// The scheme of the URL is neither http nor https.
    #[error("url must begin with http:// or https://")]
    Scheme,
    /// The key has characters that a header cannot have.
    #[error("api_key has characters that are invalid in a header")]
    ApiKey(#[source] InvalidHeaderValue),
    /// The HTTP client cannot be set up, usually because of TLS.
    #[error("failed to set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

// Enough for thirty long names.
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
    /// Omits the key, and the URL except for its origin, because both may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatConfig")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("model", &self.model)
            .field("has_api_key", &self.api_key.is_some())
            .field("max_tokens", &self.max_tokens)
            .finish()
    }
}
