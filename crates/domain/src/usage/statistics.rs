//! What can be asked of the counts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::latency::LatencyHistogram;
use crate::invocation::Outcome;
use crate::tool::ToolRef;

/// How often a tool was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFrequency {
    /// The tool.
    pub tool: ToolRef,
    /// The number of calls, those in flight included.
    pub n_calls: u64,
}

/// How many sessions used a tool.
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
    /// When the newest of these sessions came to the second of the two.
    pub last_updated: Timestamp,
}

/// Two tools of which one was called right after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolTransition {
    /// The tool of the earlier call.
    pub from: ToolRef,
    /// The tool of the later call; it may be the same.
    pub to: ToolRef,
    /// How often.
    pub count: u64,
}

/// What became of the calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolStatistics {
    /// The tool.
    pub tool: ToolRef,
    /// The numbers of calls by outcome; those without calls are left out.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The number of calls in flight.
    pub n_open: u64,
    /// How long the answered calls took.
    pub latency: LatencyHistogram,
}

impl ToolStatistics {
    /// Returns the number of calls, those in flight included.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.n_open + self.outcomes.values().sum::<u64>()
    }

    /// Returns the number of calls that ended with an error or not in time.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        let failed = |outcome: Outcome| outcome.tells_of_tool() && !outcome.is_success();
        let ended = self.outcomes.iter();
        ended
            .filter(|(outcome, _)| failed(**outcome))
            .map(|(_, n)| n)
            .sum()
    }

    /// Returns the share of calls with the outcome `ok` among those that ended, of 0 to 1; `None`
    /// when none has ended. Calls that never came to the tool do not count.
    #[must_use]
    pub fn ok_rate(&self) -> Option<f64> {
        let came = self.outcomes.iter();
        let came = came.filter(|(outcome, _)| outcome.came_to_tool());
        let n_ended: u64 = came.map(|(_, n)| n).sum();
        let n_ok = self.outcomes.get(&Outcome::Ok).copied().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
        (n_ended > 0).then(|| n_ok as f64 / n_ended as f64)
    }
}
