//! Answers of the control API, as far as the screens show them.
//!
//! Members that another version of the proxy leaves out have their default value.

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use serde::Deserialize;

use crate::output::printable;

/// The largest number of characters of a text; the others are left out. No screen is as wide, and
/// only sentences have more than one line.
const MAX_CHARS: usize = 600;

/// A text of a client, a server or the proxy, which is safe to show on a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub(super) struct SafeText(String);

impl SafeText {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SafeText {
    fn from(text: &str) -> Self {
        let is_long = text.chars().nth(MAX_CHARS).is_some();
        let start: String = text.chars().take(MAX_CHARS).collect();
        let ending = if is_long { "…" } else { "" };
        Self(format!("{}{ending}", printable(&start)))
    }
}

impl From<String> for SafeText {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// An answer of `GET /overview`.
#[derive(Debug, Deserialize)]
pub(super) struct Overview {
    /// The time of the proxy's clock.
    pub(super) at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) version: SafeText,
    #[serde(default)]
    pub(super) paused: bool,
    pub(super) paused_until: Option<Timestamp>,
    #[serde(default)]
    pub(super) strategy: SafeText,
    #[serde(default)]
    pub(super) upstreams: Vec<Upstream>,
    /// `None` if nothing is recorded.
    pub(super) totals: Option<Totals>,
    /// `None` if nothing is recorded.
    pub(super) open_sessions: Option<Vec<SessionEntry>>,
    #[serde(default)]
    pub(super) more_open_sessions: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Upstream {
    pub(super) name: SafeText,
    pub(super) state: SafeText,
    pub(super) reason: Option<SafeText>,
    #[serde(default)]
    pub(super) connections: u64,
    pub(super) tool_set: Option<ToolSet>,
    #[serde(default)]
    pub(super) held: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolSet {
    #[serde(default)]
    pub(super) tools: u64,
}

/// Figures of all sessions of the last day.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    pub(super) searches: u64,
    pub(super) tools_used: u64,
    pub(super) first_uses_covered: u64,
    pub(super) shown_tools: u64,
    pub(super) available_tools: u64,
    pub(super) tokens_saved: i64,
}

/// An answer of `GET /sessions`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionPage {
    pub(super) sessions: Vec<SessionEntry>,
}

/// A connection of a client.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SessionEntry {
    pub(super) id: SessionId,
    #[serde(default)]
    pub(super) client: SafeText,
    pub(super) profile: Option<SafeText>,
    pub(super) started_at: Timestamp,
    /// `None` while the session is open.
    pub(super) ended_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) calls: u64,
    #[serde(default)]
    pub(super) has_more_calls: bool,
    /// The account of its lists, which only the overview has.
    pub(super) lists: Option<ListFigures>,
}

/// The account of the lists of a session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListFigures {
    pub(super) shown_tools: u64,
    pub(super) available_tools: u64,
    pub(super) misses: u64,
    pub(super) tokens_saved: i64,
    pub(super) policy: SafeText,
}

/// An answer of `GET /sessions/ID`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionDetail {
    #[serde(default)]
    pub(super) misses: u64,
    /// The oldest entry first.
    #[serde(default)]
    pub(super) timeline: Vec<TimelineEntry>,
    #[serde(default)]
    pub(super) is_cut: bool,
}

/// An event in a session.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TimelineEntry {
    Call(CallEntry),
    List(ListEntry),
    Search(SearchEntry),
    /// A kind of a newer proxy.
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallEntry {
    pub(super) at: Timestamp,
    pub(super) upstream: SafeText,
    pub(super) tool: SafeText,
    #[serde(default)]
    pub(super) is_miss: bool,
    /// `None` while the call is in flight.
    pub(super) outcome: Option<SafeText>,
    pub(super) duration_us: Option<u64>,
}

/// A list that was shown.
#[derive(Debug, Deserialize)]
pub(super) struct ListEntry {
    pub(super) at: Timestamp,
    #[serde(default)]
    pub(super) policy: SafeText,
    pub(super) mode: Option<SafeText>,
    pub(super) reason: Option<SafeText>,
    #[serde(default)]
    pub(super) tools: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    pub(super) available_tools: u64,
    pub(super) shown_tokens: Option<u64>,
}

/// A search for tools.
#[derive(Debug, Deserialize)]
pub(super) struct SearchEntry {
    pub(super) at: Timestamp,
    /// `None` if queries are not stored.
    pub(super) query: Option<SafeText>,
    #[serde(default)]
    pub(super) quality: SafeText,
    #[serde(default)]
    pub(super) results: Vec<serde::de::IgnoredAny>,
}

/// An answer of `GET /predictions/ID`.
#[derive(Debug, Deserialize)]
pub(super) struct Prediction {
    pub(super) list_because: Option<SafeText>,
    #[serde(default)]
    pub(super) tools: Vec<PredictedTool>,
}

/// A tool that is probably called next.
#[derive(Debug, Deserialize)]
pub(super) struct PredictedTool {
    pub(super) name: SafeText,
    #[serde(default)]
    pub(super) shown: bool,
    #[serde(default)]
    pub(super) sentence: SafeText,
}

/// An answer of `GET /tools`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolPage {
    pub(super) tools: Vec<ToolEntry>,
    /// Present if there are more tools.
    pub(super) next_cursor: Option<SafeText>,
}

/// A tool with the figures of its calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolEntry {
    pub(super) upstream: SafeText,
    pub(super) tool: SafeText,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) latency_us: Latency,
    pub(super) definition_tokens: Option<u64>,
    pub(super) result_tokens: Option<u64>,
    pub(super) last_call: Option<Timestamp>,
}

/// Latencies of calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Latency {
    pub(super) p95: Option<u64>,
}
