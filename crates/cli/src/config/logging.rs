//! The configuration section `logging`.

use serde::{Deserialize, Serialize};
use validator::Validate;

/// The least severe lines that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No lines at all.
    Off,
    /// What someone must act on.
    Error,
    /// What is degraded but served.
    Warn,
    /// Starts, ends and sessions.
    #[default]
    Info,
    /// Each request.
    Debug,
    /// Each step of a request.
    Trace,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// The configuration section `logging`: what is logged, and what of a call is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct LoggingConfig {
    /// The least severe lines that are written.
    pub level: Level,
    /// The form of the lines.
    pub format: LogFormat,
    /// Whether the arguments of calls are stored, with known secrets removed. They are never
    /// written to the log.
    pub include_arguments: bool,
    /// Whether the results of calls are stored, with known secrets removed. They are never
    /// written to the log.
    pub include_results: bool,
}
