//! Configuration of an embedding server.

use std::fmt;
use std::time::Duration;

use reqwest::header::InvalidHeaderValue;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;
use validator::{Validate, ValidationError, ValidationErrors};

/// An embedding server and the settings of its requests.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// Base URL of `/embeddings`, such as `https://host/v1`; http or https.
    pub url: Url,
    /// Name of the model. Its vectors are stored under a name that is 16 characters longer and must
    /// not exceed [`MAX_MODEL_CHARS`](riglm_domain::retrieval::embedding::Embedding::MAX_MODEL_CHARS).
    #[validate(length(min = 1, max = 184, message = "expected 1 to 184 characters"))]
    pub model: String,
    /// Key for the header `Authorization: Bearer`. Without one, the header is not sent.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// Requested dimension, for models that can shorten their vectors.
    #[serde(default)]
    #[validate(range(min = 1, max = 8_192))]
    pub dimensions: Option<usize>,
    /// Prefix of queries.
    #[serde(default)]
    #[validate(length(max = 1_000))]
    pub query_prefix: String,
    /// Prefix of texts of tools.
    #[serde(default)]
    #[validate(length(max = 1_000))]
    pub passage_prefix: String,
    /// Maximum length of a text in bytes, including the prefix. Longer texts are truncated.
    #[serde(default = "default_max_text_bytes")]
    #[validate(range(
        min = 256,
        max = 1_048_576,
        message = "expected a number from 256 to 1048576"
    ))]
    pub max_text_bytes: usize,
    /// Timeout of a request, including a retry, as in `10s`.
    #[serde(default = "default_timeout", with = "humantime_serde")]
    #[validate(custom(function = "not_zero"))]
    pub timeout: Duration,
}

/// The reason why a configured embedding server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteConfigError {
    /// A value is out of its range.
    #[error("invalid configuration of the remote encoder")]
    Invalid(#[from] ValidationErrors),
    /// A prefix is longer than half of the maximum text length.
    #[error(
        "the prefixes of the remote encoder must have at most half of max_text_bytes, {half} bytes"
    )]
    Prefix {
        /// Maximum length of a prefix in bytes.
        half: usize,
    },
    /// The scheme of the URL is neither http nor https.
    #[error("url of the remote encoder must begin with http:// or https://")]
    Scheme,
    /// The key has characters that a header cannot have.
    #[error("api_key of the remote encoder has characters that are invalid in a header")]
    ApiKey(#[source] InvalidHeaderValue),
    /// The HTTP client cannot be set up, usually because of TLS.
    #[error("failed to set up the HTTP client of the remote encoder")]
    Client(#[source] reqwest::Error),
}

impl RemoteConfig {
    /// Verifies that a prefix leaves room for the text.
    pub(super) fn check_prefixes(&self) -> Result<(), RemoteConfigError> {
        let half = self.max_text_bytes / 2;
        let longest = self.query_prefix.len().max(self.passage_prefix.len());
        if longest > half {
            return Err(RemoteConfigError::Prefix { half });
        }
        Ok(())
    }

    /// Returns the name of the vectors: the model, and eight digits of a digest of everything else
    /// that determines the vectors.
    pub(super) fn id(&self) -> String {
        let dimensions = self.dimensions.unwrap_or_default().to_string();
        let mut digest = Sha256::new();
        for part in [
            self.url.as_str(),
            &dimensions,
            &self.query_prefix,
            &self.passage_prefix,
        ] {
            // Lengths are hashed too, so that parts with the same concatenation differ.
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        // The default is left out, so that vectors from before this option keep their name.
        if self.max_text_bytes != default_max_text_bytes() {
            digest.update(self.max_text_bytes.to_le_bytes());
        }
        let digest = digest.finalize();
        let digits = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        format!("remote:{}@{digits:08x}", self.model)
    }
}

impl PartialEq for RemoteConfig {
    fn eq(&self, other: &Self) -> bool {
        let key = |config: &Self| {
            let key = config.api_key.as_ref();
            key.map(|key| key.expose_secret().to_owned())
        };
        self.url == other.url
            && self.model == other.model
            && key(self) == key(other)
            && self.dimensions == other.dimensions
            && self.query_prefix == other.query_prefix
            && self.passage_prefix == other.passage_prefix
            && self.max_text_bytes == other.max_text_bytes
            && self.timeout == other.timeout
    }
}

impl fmt::Debug for RemoteConfig {
    /// Omits the key, and the URL except for its origin, because both may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("model", &self.model)
            .field("has_api_key", &self.api_key.is_some())
            .field("dimensions", &self.dimensions)
            .field("query_prefix", &self.query_prefix)
            .field("passage_prefix", &self.passage_prefix)
            .field("max_text_bytes", &self.max_text_bytes)
            .field("timeout", &self.timeout)
            .finish()
    }
}

// Servers refuse texts with too many tokens for their model. Most models accept 2,048 or more.
fn default_max_text_bytes() -> usize {
    8 << 10
}

fn default_timeout() -> Duration {
    Duration::from_secs(10)
}

fn not_zero(duration: &Duration) -> Result<(), ValidationError> {
    if duration.is_zero() {
        return Err(ValidationError::new("range").with_message("must be longer than 0s".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riglm_ports::encoder::Encoder as _;

    use super::super::RemoteEncoder;
    use super::*;

    fn plain() -> RemoteConfig {
        let json = r#"{"url":"https://u:hunter2@host/v1","model":"m","api_key":"hunter2"}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let text = format!("{:?}", plain());
        assert!(
            !text.contains("hunter2") && text.contains("https://host"),
            "{text}"
        );
    }

    #[test]
    fn invalid_configurations_are_refused() {
        let changed = |change: fn(&mut RemoteConfig)| {
            let mut config = plain();
            change(&mut config);
            RemoteEncoder::new(config).unwrap_err().to_string()
        };
        assert!(changed(|config| config.url = "file:///x".parse().unwrap()).contains("http://"));
        assert!(changed(|config| config.api_key = Some("a\nb".into())).contains("api_key"));
        let long = changed(|config| {
            config.max_text_bytes = 256;
            config.passage_prefix = "p".repeat(129);
        });
        assert!(long.contains("half of max_text_bytes, 128 bytes"), "{long}");
        for invalid in [
            changed(|config| config.model.clear()),
            changed(|config| config.dimensions = Some(0)),
            changed(|config| config.timeout = Duration::ZERO),
            changed(|config| config.max_text_bytes = 255),
        ] {
            assert_eq!(invalid, "invalid configuration of the remote encoder");
        }
    }

    #[test]
    fn overlong_model_names_are_refused() {
        let named = |n_chars: usize| {
            let mut config = plain();
            config.model = "\u{e9}".repeat(n_chars);
            config
        };
        let longest = RemoteEncoder::new(named(184)).unwrap();
        riglm_domain::retrieval::embedding::Embedding::new(longest.model(), vec![1.0]).unwrap();
        let errors = named(185).validate().unwrap_err().to_string();
        assert!(
            errors.contains("model: expected 1 to 184 characters"),
            "{errors}"
        );
    }

    #[test]
    fn ids_change_with_every_setting_affecting_vectors() {
        let id = |change: fn(&mut RemoteConfig)| {
            let mut config = plain();
            change(&mut config);
            config.id()
        };
        let plain = id(|_| {});
        assert!(
            plain.starts_with("remote:m@") && plain.len() == 17,
            "{plain}"
        );
        assert_eq!(id(|config| config.timeout *= 2), plain);
        assert_eq!(id(|config| config.api_key = None), plain);
        for other in [
            id(|config| config.url.set_path("/v2")),
            id(|config| config.dimensions = Some(5)),
            id(|config| config.max_text_bytes = 512),
            id(|config| config.query_prefix.push('q')),
            id(|config| config.passage_prefix.push_str("query: ")),
        ] {
            assert_ne!(other, plain);
        }
    }
}
