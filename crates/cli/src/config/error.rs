//! What is wrong with a configuration, said so that it can be put right.

use std::error::Error;
use std::path::PathBuf;

use riglm_domain::id::UpstreamName;

/// A value that cannot be used, and why. What else is wrong is found without it.
#[derive(Debug)]
pub(super) struct Wrong {
    /// The path of the value.
    pub(super) path: Vec<String>,
    pub(super) error: ConfigError,
}

/// Why there is no usable configuration. Every variant ends the process with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read configuration file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: std::io::Error,
    },
    /// The name of the file does not tell its format.
    #[error("configuration file {path} has none of the endings .toml, .yaml and .yml")]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The file is not what its name says.
    #[error("configuration file {path} is not valid {format}: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The format that its name tells.
        format: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// A `${VARIABLE}` in the file has no value.
    #[error("{path}: {key}: environment variable {variable} is not set")]
    VariableNotSet {
        /// The file.
        path: PathBuf,
        /// The key whose value names the variable.
        key: String,
        /// The variable.
        variable: String,
    },
    /// A `${` in the file is no reference to a variable.
    #[error(
        "{path}: {key}: `${{` must be followed by a variable name and `}}`, or be written `$${{`"
    )]
    Reference {
        /// The file.
        path: PathBuf,
        /// The key whose value is wrong.
        key: String,
    },
    /// The file of synonyms cannot be used.
    #[error("search.synonyms: {path}: {reason}")]
    Synonyms {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of words cannot be used.
    #[error("recommend.lexicon: {path}: {reason}")]
    Lexicon {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A value is unknown, missing, of the wrong kind, or out of range.
    #[error("{origin}: {key}: {reason}")]
    Value {
        /// The file, the environment variable, or the command line.
        origin: String,
        /// Path of the key, with dots.
        key: String,
        /// What was expected.
        reason: String,
    },
    /// A variable of the environment is not Unicode text.
    #[error("environment variable {variable} is not Unicode text")]
    NotUnicode {
        /// The variable.
        variable: String,
    },
    /// There is no upstream.
    #[error(
        "no upstream is configured: name one with --upstream URL, with -- COMMAND, or in section upstream of a configuration file"
    )]
    NoUpstream,
    /// There is no upstream to log in to.
    #[error(
        "no upstream is configured: name one in section upstream or upstreams.NAME of a configuration file"
    )]
    NothingToLogInTo,
    /// There is no upstream of this name.
    #[error("no upstream is named {name:?}: known are {}", known.join(", "))]
    UnknownUpstream {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// An upstream cannot be used as it is configured.
    #[error("failed to use upstream {name}: {reason}")]
    Upstream {
        /// Its name.
        name: UpstreamName,
        /// Why it cannot.
        reason: String,
    },
    /// Two upstreams have names that cannot be told apart.
    #[error(
        "{origin}: {key} has the same name as {other} ({other_origin}); case and the characters '.', '-' and '_' do not make names different"
    )]
    SameName {
        /// Where the second one comes from.
        origin: String,
        /// The second one.
        key: String,
        /// Where the first one comes from.
        other_origin: String,
        /// The first one.
        other: String,
    },
    /// Several things are wrong.
    #[error("{}", (.0.iter()).map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ConfigError>),
    /// The platform names no directory for data.
    #[error("no directory for data is known: name one with --data-dir")]
    NoDataDirectory,
}

impl ConfigError {
    /// Returns the path of the key that has a wrong value, where it is about one.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::VariableNotSet { key, .. }
            | Self::Reference { key, .. }
            | Self::Value { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns that an upstream cannot be used, with all of why.
    pub(crate) fn unusable(name: &UpstreamName, why: &(dyn Error + 'static)) -> Self {
        let causes = std::iter::successors(Some(why), |error| (*error).source());
        let texts: Vec<String> = causes.map(ToString::to_string).collect();
        Self::Upstream {
            name: name.clone(),
            reason: texts.join(": "),
        }
    }

    /// Returns the errors that this one consists of.
    #[must_use]
    pub fn parts(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error => vec![error],
        }
    }

    /// Returns all of these as one error.
    #[must_use]
    pub fn all(mut errors: Vec<Self>) -> Self {
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }
}
