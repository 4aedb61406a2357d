//! Tool statistics, as queries of the usage counts return them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::latency::LatencyHistogram;
use crate::catalog::tool::ToolRef;
use crate::num::to_f64;
use crate::usage::invocation::Outcome;

/// The number of calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFrequency {
    /// The tool.
    pub tool: ToolRef,
    /// The number of calls, with calls in flight.
    pub n_calls: u64,
}

/// The number of sessions that used a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSessions {
    /// The tool.
    pub tool: ToolRef,
    /// The number of sessions.
    pub n_sessions: u64,
}

/// Two different tools that sessions used together.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCooccurrence {
    /// One tool.
    pub tool_a: ToolRef,
    /// The other tool.
    pub tool_b: ToolRef,
    /// The number of sessions that used both.
    pub count: u64,
    /// The mean distance of their first uses in these sessions, in calls.
    pub mean_distance: f64,
    /// The newest time at which one of these sessions first used the second of the two.
    pub last_updated: Timestamp,
}

/// Two tools that were called one right after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolTransition {
    /// The tool of the earlier call.
    pub from: ToolRef,
    /// The tool of the later call; it may be the same.
    pub to: ToolRef,
    /// The number of times.
    pub count: u64,
}

/// The outcomes and durations of the calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolStatistics {
    /// The tool.
    pub tool: ToolRef,
    /// The number of calls for each outcome. Outcomes without calls are left out.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The number of calls in flight.
    pub n_open: u64,
    /// The durations of the answered calls.
    pub latency: LatencyHistogram,
}

impl ToolStatistics {
    /// Returns the number of calls, with calls in flight.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.n_open + self.outcomes.values().sum::<u64>()
    }

    /// Returns the number of failed calls, with an error or a timeout.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        let failed = |outcome: Outcome| outcome.reflects_tool() && !outcome.is_success();
        let ended = self.outcomes.iter();
        ended
            .filter(|(outcome, _)| failed(**outcome))
            .map(|(_, n)| n)
            .sum()
    }

    /// Returns the share of calls with the outcome `ok` among the ended calls, of 0 to 1; `None` if
    /// none has ended. Calls that did not reach the tool do not count.
    #[must_use]
    pub fn ok_rate(&self) -> Option<f64> {
        let came = self.outcomes.iter();
        let came = came.filter(|(outcome, _)| outcome.reached_tool());
        let n_ended: u64 = came.map(|(_, n)| n).sum();
        let n_ok = self.outcomes.get(&Outcome::Ok).copied().unwrap_or(0);
        (n_ended > 0).then(|| to_f64(n_ok) / to_f64(n_ended))
    }
}
