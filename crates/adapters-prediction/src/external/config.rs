//! The configuration of an external predictor, and the value of `prediction.predictor`.

use std::fmt;
use std::time::Duration;

use riglm_domain::prediction::PredictorName;
use secrecy::{ExposeSecret, SecretString};
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use url::Url;

/// The value of `prediction.predictor`: a name, or a predictor outside of riglm.
#[derive(Clone, Debug, PartialEq)]
pub enum PredictorChoice {
    /// A predictor of riglm.
    Named(PredictorName),
    /// A program or a server.
    External(Box<ExternalConfig>),
}

/// The use of the scores of an external predictor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExternalRole {
    /// As one expert of the mix. The mix learns how good it is.
    #[default]
    Expert,
    /// In place of the mix. Without scores in time, the mix predicts.
    Alone,
}

/// The source of the scores.
#[derive(Clone)]
pub enum ExternalSource {
    /// A program with its arguments, over standard input and output.
    Command(Vec<String>),
    /// A server, by POST requests.
    Url {
        /// The address; http or https.
        url: Url,
        /// The key for the header `Authorization: Bearer`.
        api_key: Option<SecretString>,
    },
}

/// An external predictor and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalConfig {
    /// The source of the scores.
    pub source: ExternalSource,
    /// The use of the scores.
    pub role: ExternalRole,
    /// The maximum time of a request. A list or an answer of a search waits no longer.
    pub deadline: Duration,
    /// Whether requests have the declared intents of sessions, in words.
    pub send_text: bool,
}

impl ExternalConfig {
    /// The default deadline.
    pub const DEADLINE: Duration = Duration::from_millis(50);
    /// The longest deadline.
    pub const MAX_DEADLINE: Duration = Duration::from_secs(5);

    /// Returns the settings of a program with the defaults.
    #[must_use]
    pub fn of_command(command: Vec<String>) -> Self {
        Self::new(ExternalSource::Command(command))
    }

    fn new(source: ExternalSource) -> Self {
        Self {
            source,
            role: ExternalRole::default(),
            deadline: Self::DEADLINE,
            send_text: false,
        }
    }

    /// Returns the name of the scores, without secrets: weights that were learned for other scores
    /// must not be used.
    #[must_use]
    pub fn id(&self) -> String {
        let (kind, parts) = match &self.source {
            ExternalSource::Command(command) => ("command", command.clone()),
            ExternalSource::Url { url, .. } => ("url", vec![url.to_string()]),
        };
        let mut digest = Sha256::new();
        for part in parts {
            // Lengths are hashed too, so that parts with the same concatenation differ.
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        let digest = digest.finalize();
        format!(
            "external {} {kind}@{}",
            self.role,
            hex::encode(&digest[..8])
        )
    }
}

impl fmt::Debug for ExternalSource {
    /// Omits the key, the arguments, and the address except for its origin, because all may contain
    /// secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.debug_tuple("Command").field(&command.first()).finish(),
            Self::Url { url, .. } => {
                let origin = url.origin().ascii_serialization();
                f.debug_tuple("Url").field(&origin).finish()
            }
        }
    }
}

impl PartialEq for ExternalSource {
    fn eq(&self, other: &Self) -> bool {
        let key = |key: &Option<SecretString>| {
            let key = key.as_ref();
            key.map(|key| key.expose_secret().to_owned())
        };
        match (self, other) {
            (Self::Command(one), Self::Command(other)) => one == other,
            (
                Self::Url { url, api_key },
                Self::Url {
                    url: other,
                    api_key: other_key,
                },
            ) => url == other && key(api_key) == key(other_key),
            _ => false,
        }
    }
}

/// The settings as they are written.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Url>,
    #[serde(default, skip_serializing)]
    api_key: Option<SecretString>,
    #[serde(default)]
    role: ExternalRole,
    #[serde(default = "default_deadline", with = "humantime_serde")]
    deadline: Duration,
    #[serde(default)]
    send_text: bool,
}

fn default_deadline() -> Duration {
    ExternalConfig::DEADLINE
}

/// The reason why written settings are not valid.
#[derive(Debug, thiserror::Error)]
enum WrittenError {
    #[error("expected either `command` or `url`")]
    Source,
    #[error("`command` must have the name of a program")]
    Command,
    #[error("`url` must begin with http:// or https://")]
    Scheme,
    #[error("`api_key` is for a `url` only")]
    ApiKey,
    #[error("`deadline` must be from 1ms to 5s")]
    Deadline,
}

impl TryFrom<WrittenConfig> for ExternalConfig {
    type Error = WrittenError;

    fn try_from(written: WrittenConfig) -> Result<Self, WrittenError> {
        let WrittenConfig {
            command,
            url,
            api_key,
            role,
            deadline,
            send_text,
        } = written;
        let source = match (command, url) {
            (Some(command), None) => {
                if command
                    .first()
                    .is_none_or(|program| program.trim().is_empty())
                {
                    return Err(WrittenError::Command);
                }
                if api_key.is_some() {
                    return Err(WrittenError::ApiKey);
                }
                ExternalSource::Command(command)
            }
            (None, Some(url)) => {
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(WrittenError::Scheme);
                }
                ExternalSource::Url { url, api_key }
            }
            (Some(_), Some(_)) | (None, None) => return Err(WrittenError::Source),
        };
        if deadline < Duration::from_millis(1) || deadline > Self::MAX_DEADLINE {
            return Err(WrittenError::Deadline);
        }
        Ok(Self {
            source,
            role,
            deadline,
            send_text,
        })
    }
}

impl PredictorChoice {
    /// Returns the settings of the external predictor; `None` for a predictor of riglm.
    #[must_use]
    pub fn external(&self) -> Option<&ExternalConfig> {
        match self {
            Self::External(external) => Some(external),
            Self::Named(_) => None,
        }
    }
}

impl Default for PredictorChoice {
    fn default() -> Self {
        Self::Named(PredictorName::Mix)
    }
}

impl Serialize for PredictorChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => name.serialize(serializer),
            Self::External(external) => {
                let (command, url) = match &external.source {
                    ExternalSource::Command(command) => (Some(command.clone()), None),
                    ExternalSource::Url { url, .. } => (None, Some(url.clone())),
                };
                let written = WrittenConfig {
                    command,
                    url,
                    api_key: None,
                    role: external.role,
                    deadline: external.deadline,
                    send_text: external.send_text,
                };
                written.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for PredictorChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor)
    }
}

struct ChoiceVisitor;

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = PredictorChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a predictor, or a table with `command` or `url`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let names = PredictorName::ALL.iter().map(|name| name.as_str());
        let names: Vec<&str> = names.collect();
        let unknown = || {
            let known = names.join("`, `");
            E::custom(format!(
                "unknown variant `{name}`, expected one of `{known}`"
            ))
        };
        let name = name.parse().map_err(|_| unknown())?;
        Ok(PredictorChoice::Named(name))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        let written = WrittenConfig::deserialize(MapAccessDeserializer::new(map))?;
        let external = ExternalConfig::try_from(written).map_err(de::Error::custom)?;
        Ok(PredictorChoice::External(Box::new(external)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(json: &str) -> Result<PredictorChoice, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_predictor_is_a_name_a_program_or_a_server() {
        let named = choice(r#""markov""#).unwrap();
        assert_eq!(named, PredictorChoice::Named(PredictorName::Markov));
        let program = choice(r#"{"command":["python3","p.py"],"deadline":"20ms","role":"alone"}"#);
        let PredictorChoice::External(program) = program.unwrap() else {
            panic!("not external");
        };
        assert_eq!(program.role, ExternalRole::Alone);
        assert_eq!(program.deadline, Duration::from_millis(20));
        let server = choice(r#"{"url":"http://127.0.0.1:9/score","api_key":"hunter2"}"#).unwrap();
        let written = serde_json::to_string(&server).unwrap();
        assert!(!written.contains("hunter2"), "{written}");
        assert!(!format!("{server:?}").contains("hunter2"));
    }

    #[test]
    fn an_invalid_predictor_is_refused_with_its_error() {
        for (json, expected) in [
            (
                r#""oracle""#,
                "unknown variant `oracle`, expected one of `mix`",
            ),
            ("{}", "either `command` or `url`"),
            (
                r#"{"command":["a"],"url":"http://h/"}"#,
                "either `command` or `url`",
            ),
            (r#"{"command":[]}"#, "name of a program"),
            (r#"{"command":["a"],"api_key":"k"}"#, "for a `url` only"),
            (r#"{"url":"ftp://h/"}"#, "http:// or https://"),
            (r#"{"command":["a"],"deadline":"6s"}"#, "from 1ms to 5s"),
            (
                r#"{"command":["a"],"retries":3}"#,
                "unknown field `retries`",
            ),
            ("3", "the name of a predictor, or a table"),
        ] {
            let error = choice(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn other_scores_have_another_id() {
        let id = |command: &[&str]| {
            let command = command.iter().map(|part| (*part).to_owned());
            ExternalConfig::of_command(command.collect()).id()
        };
        assert_ne!(id(&["ab"]), id(&["a", "b"]));
        assert!(!id(&["program", "--key=hunter2"]).contains("hunter2"));
    }
}
