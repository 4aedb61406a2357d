//! The configuration section `logging`.

use serde::{Deserialize, Serialize};
use validator::Validate;

/// The minimum severity of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No lines at all.
    Off,
    /// Problems that someone must act on.
    Error,
    /// Degraded service.
    Warn,
    /// Start, stop and sessions.
    #[default]
    Info,
    /// Each request.
    Debug,
    /// Each step of a request.
    Trace,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Pretty,
    /// One JSON object per line.
    Json,
}

/// The configuration section `logging`: log lines, and the stored parts of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct LoggingConfig {
    /// The minimum severity of log lines.
    pub level: Level,
    /// The format of log lines.
    pub format: LogFormat,
    /// Whether to store the arguments of calls, with known secrets removed. They are never logged.
    pub include_arguments: bool,
    /// Whether to store the results of calls, with known secrets removed. They are never logged.
    pub include_results: bool,
}
