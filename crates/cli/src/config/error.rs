//! Errors of a configuration. Each message names the place and the expected value.

use std::error::Error;
use std::path::{Path, PathBuf};

use riglm_domain::id::UpstreamName;

use crate::output::with_causes;

/// An unusable value with its error. The value is removed, so that later checks find further
/// errors.
#[derive(Debug)]
pub(super) struct WrongValue {
    pub(super) path: Vec<String>,
    pub(super) error: ConfigError,
}

/// The reason why a configuration cannot be used. Every variant ends the process with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read configuration file {path}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The extension of the file name is unknown.
    #[error("configuration file {path} must end with .toml, .yaml or .yml")]
    UnknownFormat {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has a syntax error.
    #[error("configuration file {path} is not valid {format}: {reason}")]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The format by its extension.
        format: &'static str,
        /// The error of the parser.
        reason: String,
    },
    /// A `${VARIABLE}` in the file is not set.
    #[error("{path}: {key}: environment variable {variable} is not set")]
    VariableNotSet {
        /// The path of the file.
        path: PathBuf,
        /// The key with the reference.
        key: String,
        /// The name of the variable.
        variable: String,
    },
    /// A `${` in the file is not a reference to a variable.
    #[error(
        "{path}: {key}: `${{` must be followed by a variable name and `}}`, or be written `$${{`"
    )]
    Reference {
        /// The path of the file.
        path: PathBuf,
        /// The key with the wrong value.
        key: String,
    },
    /// A file cannot be written.
    #[error("failed to write {path}")]
    Unwritable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file of secrets cannot be used.
    #[error("{place}: {reason}")]
    Secrets {
        /// The path of the file, and the line.
        place: String,
        /// The reason.
        reason: &'static str,
    },
    /// The file of synonyms cannot be used.
    #[error("search.synonyms: {path}: {reason}")]
    Synonyms {
        /// The path of the file.
        path: PathBuf,
        /// The error in the file.
        reason: String,
    },
    /// The lexicon file cannot be used.
    #[error("recommend.lexicon: {path}: {reason}")]
    Lexicon {
        /// The path of the file.
        path: PathBuf,
        /// The error in the file.
        reason: String,
    },
    /// A value is unknown, missing, of the wrong kind, or out of range.
    #[error("{origin}: {key}: {reason}")]
    Value {
        /// The file, the environment variable, or the command line.
        origin: String,
        /// The path of the key, with dots.
        key: String,
        /// The expected value.
        reason: String,
    },
    /// An environment variable is not Unicode.
    #[error("environment variable {variable} is not Unicode text")]
    NotUnicode {
        /// The name of the variable.
        variable: String,
    },
    /// No upstream is configured.
    #[error(
        "no upstream is configured: name one with --upstream URL, with -- COMMAND, or in section upstream of a configuration file"
    )]
    NoUpstream,
    /// No upstream to log in to is configured.
    #[error(
        "no upstream is configured: name one in section upstream or upstreams.NAME of a configuration file"
    )]
    NothingToLogInTo,
    /// The name of the upstream is unknown.
    #[error("unknown upstream {name:?}: known are {}", known.join(", "))]
    UnknownUpstream {
        /// The unknown name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// An upstream cannot be used as configured.
    #[error("failed to use upstream {name}: {reason}")]
    Upstream {
        /// The name of the upstream.
        name: UpstreamName,
        /// The reason.
        reason: String,
    },
    /// The names of two upstreams are too similar.
    #[error(
        "{origin}: {key} has the same name as {other} ({other_origin}); case and the difference \
         between '.', '-' and '_' are ignored"
    )]
    SameName {
        /// The origin of the second upstream.
        origin: String,
        /// The key of the second upstream.
        key: String,
        /// The origin of the first upstream.
        other_origin: String,
        /// The key of the first upstream.
        other: String,
    },
    /// Several errors.
    #[error("{}", (.0.iter()).map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ConfigError>),
    /// The platform has no directory for data.
    #[error("no default data directory on this system: set one with --data-dir")]
    NoDataDirectory,
}

impl ConfigError {
    /// Returns the path of the key with a wrong value, if the error has one.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::VariableNotSet { key, .. }
            | Self::Reference { key, .. }
            | Self::Value { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns the error of an unusable upstream, with all causes.
    pub(crate) fn unusable(name: &UpstreamName, why: &(dyn Error + 'static)) -> Self {
        Self::Upstream {
            name: name.clone(),
            reason: with_causes(why),
        }
    }

    /// Returns the error with another path of the file in its texts.
    pub(crate) fn with_path(self, from: &Path, to: &Path) -> Self {
        let (from_text, to_text) = (from.display().to_string(), to.display().to_string());
        match self {
            Self::Value {
                origin,
                key,
                reason,
            } => Self::Value {
                origin: origin.replace(&from_text, &to_text),
                key,
                reason,
            },
            Self::VariableNotSet { key, variable, .. } => Self::VariableNotSet {
                path: to.to_owned(),
                key,
                variable,
            },
            Self::Reference { key, .. } => Self::Reference {
                path: to.to_owned(),
                key,
            },
            Self::Syntax { format, reason, .. } => Self::Syntax {
                path: to.to_owned(),
                format,
                reason,
            },
            Self::Several(errors) => Self::Several(
                errors
                    .into_iter()
                    .map(|it| it.with_path(from, to))
                    .collect(),
            ),
            error => error,
        }
    }

    /// Returns the individual errors.
    #[must_use]
    pub fn parts(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error => vec![error],
        }
    }

    /// Combines errors into one.
    #[must_use]
    pub fn all(mut errors: Vec<Self>) -> Self {
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }
}
