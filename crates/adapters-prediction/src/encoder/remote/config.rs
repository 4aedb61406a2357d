//! The configuration of a server of vectors.

use std::fmt;
use std::time::Duration;

use reqwest::header::InvalidHeaderValue;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;
use validator::{Validate, ValidationError, ValidationErrors};

/// Which server is asked for vectors, and how.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// The address below which `/embeddings` is, such as `https://host/v1`; http or https.
    pub url: Url,
    /// The model that is asked for.
    #[validate(length(min = 1, max = 200))]
    pub model: String,
    /// The key that is sent as `Authorization: Bearer`; none is sent without one.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// The dimension that is asked for, for models that can shorten their vectors.
    #[serde(default)]
    #[validate(range(min = 1, max = 8_192))]
    pub dimensions: Option<usize>,
    /// What is put before queries.
    #[serde(default)]
    #[validate(length(max = 1_000))]
    pub query_prefix: String,
    /// What is put before the texts of tools.
    #[serde(default)]
    #[validate(length(max = 1_000))]
    pub passage_prefix: String,
    /// How long a request may take, a second try included, as in `10s`.
    #[serde(default = "default_timeout", with = "humantime_serde")]
    #[validate(custom(function = "not_zero"))]
    pub timeout: Duration,
}

/// Why a server of vectors cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum RemoteConfigError {
    /// A value is out of its range.
    #[error("invalid configuration of the remote encoder")]
    Invalid(#[from] ValidationErrors),
    /// The URL is of another scheme.
    #[error("url of the remote encoder must begin with http:// or https://")]
    Scheme,
    /// The key has characters that a header cannot have.
    #[error("api_key of the remote encoder cannot be sent")]
    ApiKey(#[source] InvalidHeaderValue),
    /// The HTTP client cannot be set up, which mostly means TLS.
    #[error("failed to set up the HTTP client of the remote encoder")]
    Client(#[source] reqwest::Error),
}

impl RemoteConfig {
    /// Returns the name of the vectors: the model, and eight digits of a digest of everything that
    /// vectors depend on besides it.
    pub(super) fn id(&self) -> String {
        let dimensions = self.dimensions.unwrap_or_default().to_string();
        let mut digest = Sha256::new();
        for part in [
            self.url.as_str(),
            &dimensions,
            &self.query_prefix,
            &self.passage_prefix,
        ] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
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
            && self.timeout == other.timeout
    }
}

impl fmt::Debug for RemoteConfig {
    /// Leaves out the key and all of the URL but its origin, as it may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("model", &self.model)
            .field("has_api_key", &self.api_key.is_some())
            .field("dimensions", &self.dimensions)
            .field("query_prefix", &self.query_prefix)
            .field("passage_prefix", &self.passage_prefix)
            .field("timeout", &self.timeout)
            .finish()
    }
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
    fn a_configuration_that_cannot_be_used_is_refused() {
        let changed = |change: fn(&mut RemoteConfig)| {
            let mut config = plain();
            change(&mut config);
            RemoteEncoder::new(config).unwrap_err().to_string()
        };
        assert!(changed(|config| config.url = "file:///x".parse().unwrap()).contains("http://"));
        assert!(changed(|config| config.api_key = Some("a\nb".into())).contains("api_key"));
        for invalid in [
            changed(|config| config.model.clear()),
            changed(|config| config.dimensions = Some(0)),
            changed(|config| config.timeout = Duration::ZERO),
        ] {
            assert_eq!(invalid, "invalid configuration of the remote encoder");
        }
    }

    #[test]
    fn vectors_are_named_after_all_that_they_depend_on() {
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
            id(|config| config.query_prefix.push('q')),
            id(|config| config.passage_prefix.push_str("query: ")),
        ] {
            assert_ne!(other, plain);
        }
    }
}
