//! Changes of the usage counts by rows.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::hour::Hour;
use super::latency::LatencyBucket;
use super::session_tools::{SessionTool, SessionTools};
use crate::catalog::tool::{ToolKey, ToolRef};
use crate::privacy::principal::Principal;
use crate::usage::invocation::{Invocation, InvocationEnd, Outcome};

/// The largest number in a row. Larger numbers are counted as this one.
const MAX_ROW_NUMBER: u64 = i64::MAX as u64;

/// The counted properties of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedCall {
    /// The tool.
    pub tool: ToolKey,
    /// Position among the calls of the session.
    pub sequence: u64,
    /// The time of receipt.
    pub started_at: Timestamp,
    /// The outcome; `None` while the call is in flight.
    pub outcome: Option<Outcome>,
    /// The time that the upstream took, in microseconds; 0 if it never received the call.
    pub duration_us: u64,
}

impl CountedCall {
    /// Returns the counted properties of a call; `None` for a round that continues another call.
    #[must_use]
    pub fn new(call: &Invocation, end: Option<&InvocationEnd>) -> Option<Self> {
        if call.continues.is_some() {
            return None;
        }
        let tool = ToolRef {
            upstream: call.upstream.clone(),
            tool: call.tool.clone(),
        };
        Some(Self {
            tool: tool.key(),
            sequence: call.sequence.min(MAX_ROW_NUMBER),
            started_at: call.started_at,
            outcome: end.map(|end| end.outcome),
            duration_us: end.map_or(0, |end| end.duration_us),
        })
    }

    /// Returns the bucket of its duration, if the upstream answered. The duration of a call that
    /// timed out or was cancelled says little about its tool. A call that failed before the
    /// upstream received it says nothing.
    fn latency(&self) -> Option<LatencyBucket> {
        let is_answered = match self.outcome {
            Some(Outcome::Ok) => true,
            Some(Outcome::Error) => self.duration_us > 0,
            _ => false,
        };
        is_answered.then(|| LatencyBucket::of(self.duration_us.min(MAX_ROW_NUMBER)))
    }
}

/// The key of a number of calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallCount {
    /// The principal of the client.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolKey,
    /// The hour of receipt.
    pub hour: Hour,
    /// The outcome; `None` for calls in flight.
    pub outcome: Option<Outcome>,
}

/// The key of a number of answered calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyCount {
    /// The principal of the client.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolKey,
    /// The hour of receipt.
    pub hour: Hour,
    /// The bucket of their durations.
    pub bucket: LatencyBucket,
}

/// The key of a number of pairs of successive calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransitionCount {
    /// The principal of the client.
    pub principal: Principal,
    /// The tool of the earlier call.
    pub from: ToolKey,
    /// The tool of the call with the next position in the session.
    pub to: ToolKey,
}

/// A change of the counts of sessions that used two tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCount {
    /// The number of sessions that used both.
    pub n_sessions: i64,
    /// The sum over these sessions of the distance of the first uses, in calls.
    pub distance: i64,
    /// The newest time at which an added session first used the second of the two tools.
    pub added_at: Option<Timestamp>,
    /// The newest time at which a removed session had first used the second of the two tools. If
    /// that was the newest of all sessions, the newest time of the others has to be computed again.
    pub removed_at: Option<Timestamp>,
}

/// The changes of the counts by added, changed and removed rows. Numbers are differences and may be
/// negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageChange {
    /// Changes of the numbers of calls.
    pub calls: BTreeMap<CallCount, i64>,
    /// Changes of the numbers of answered calls.
    pub latencies: BTreeMap<LatencyCount, i64>,
    /// Changes of the numbers of pairs of successive calls.
    pub transitions: BTreeMap<TransitionCount, i64>,
    /// Changes of the counts of sessions that used two tools, which are ordered by key. A tool
    /// paired with itself stands for the sessions that used it.
    pub pairs: BTreeMap<(Principal, ToolKey, ToolKey), PairCount>,
}

impl UsageChange {
    /// Counts a call.
    pub fn add_call(&mut self, principal: &Principal, call: &CountedCall) {
        self.count_call(principal, call, 1);
    }

    /// Reverts the count of a call.
    pub fn remove_call(&mut self, principal: &Principal, call: &CountedCall) {
        self.count_call(principal, call, -1);
    }

    fn count_call(&mut self, principal: &Principal, call: &CountedCall, n: i64) {
        let hour = Hour::of(call.started_at);
        let count = CallCount {
            principal: principal.clone(),
            tool: call.tool,
            hour,
            outcome: call.outcome,
        };
        *self.calls.entry(count).or_default() += n;
        if let Some(bucket) = call.latency() {
            let count = LatencyCount {
                principal: principal.clone(),
                tool: call.tool,
                hour,
                bucket,
            };
            *self.latencies.entry(count).or_default() += n;
        }
    }

    /// Counts a pair of successive calls `n` times. A negative number reverts counts.
    pub fn count_transition(&mut self, principal: &Principal, from: ToolKey, to: ToolKey, n: i64) {
        let count = TransitionCount {
            principal: principal.clone(),
            from,
            to,
        };
        *self.transitions.entry(count).or_default() += n;
    }

    /// Counts the change of a session: the pairs of `after` that `before` does not have, or has at
    /// other distances. Either may be empty, for a session that is added or removed.
    pub fn change_session(
        &mut self,
        principal: &Principal,
        before: &SessionTools,
        after: &SessionTools,
    ) {
        self.count_pairs(principal, before, after, -1);
        self.count_pairs(principal, after, before, 1);
    }

    /// Counts the pairs of `tools` that are not the same in `others`.
    fn count_pairs(
        &mut self,
        principal: &Principal,
        tools: &SessionTools,
        others: &SessionTools,
        n: i64,
    ) {
        let is_same = |tool: &SessionTool| others.get(tool.tool) == Some(tool);
        for changed in tools.iter().filter(|tool| !is_same(tool)) {
            // A pair of two changed tools is found from both sides and counted from one.
            let partners =
                (tools.iter()).filter(|partner| is_same(partner) || partner.tool >= changed.tool);
            for partner in partners {
                let (a, b) = if changed.tool <= partner.tool {
                    (changed, partner)
                } else {
                    (partner, changed)
                };
                let pair = (principal.clone(), a.tool, b.tool);
                let count = self.pairs.entry(pair).or_default();
                let distance = a.first_sequence.abs_diff(b.first_sequence);
                count.n_sessions += n;
                count.distance += n * i64::try_from(distance).unwrap_or(i64::MAX);
                let moment = Some(a.first_at.max(b.first_at));
                if n > 0 {
                    count.added_at = count.added_at.max(moment);
                } else {
                    count.removed_at = count.removed_at.max(moment);
                }
            }
        }
    }

    /// Removes the counts without a change.
    pub fn simplify(&mut self) {
        self.calls.retain(|_, n| *n != 0);
        self.latencies.retain(|_, n| *n != 0);
        self.transitions.retain(|_, n| *n != 0);
        self.pairs.retain(|_, count| {
            count.n_sessions != 0 || count.distance != 0 || count.added_at != count.removed_at
        });
    }
}
