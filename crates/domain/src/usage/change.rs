//! What rows contribute to the counts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::hour::Hour;
use super::latency::LatencyBucket;
use super::session_tools::{SessionTool, SessionTools};
use crate::invocation::{Invocation, InvocationEnd, Outcome};
use crate::principal::Principal;
use crate::tool::{ToolKey, ToolRef};

/// The largest number that rows hold; larger ones are counted as this one.
const LARGEST: u64 = i64::MAX as u64;

/// A call as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedCall {
    /// The tool.
    pub tool: ToolKey,
    /// Position among the calls of the session.
    pub sequence: u64,
    /// When it was received.
    pub started_at: Timestamp,
    /// How it ended; `None` while it is in flight.
    pub outcome: Option<Outcome>,
    /// How long the upstream took, in microseconds; 0 where it never had the call.
    pub duration_us: u64,
}

impl CountedCall {
    /// Returns what is counted of a call; `None` for a round that continues another call.
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
            sequence: call.sequence.min(LARGEST),
            started_at: call.started_at,
            outcome: end.map(|end| end.outcome),
            duration_us: end.map_or(0, |end| end.duration_us),
        })
    }

    /// Returns the bucket of its duration, if the upstream answered: how long a call lasted that
    /// timed out or was cancelled says little of its tool, and one that failed before the upstream had
    /// it says nothing.
    fn latency(&self) -> Option<LatencyBucket> {
        let is_answered = match self.outcome {
            Some(Outcome::Ok) => true,
            Some(Outcome::Error) => self.duration_us > 0,
            _ => false,
        };
        is_answered.then(|| LatencyBucket::of(self.duration_us.min(LARGEST)))
    }
}

/// What a number of calls is kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallCount {
    /// Who called.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolKey,
    /// When the calls were received.
    pub hour: Hour,
    /// How they ended; `None` for calls in flight.
    pub outcome: Option<Outcome>,
}

/// What a number of answered calls is kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyCount {
    /// Who called.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolKey,
    /// When the calls were received.
    pub hour: Hour,
    /// How long they took.
    pub bucket: LatencyBucket,
}

/// What a number of pairs of successive calls is kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransitionCount {
    /// Who called.
    pub principal: Principal,
    /// The tool of the earlier call.
    pub from: ToolKey,
    /// The tool of the call with the next position in the session.
    pub to: ToolKey,
}

/// A change of the sessions that used two tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCount {
    /// How many sessions used both.
    pub n_sessions: i64,
    /// The sum over these sessions of the distance of the first uses, in calls.
    pub distance: i64,
    /// When the newest of the sessions that are added came to the second of the two.
    pub added_at: Option<Timestamp>,
    /// When the newest of the sessions that are taken away had come to the second of the two.
    /// Where that was the newest of all, the newest of those that are left has to be found anew.
    pub removed_at: Option<Timestamp>,
}

/// What rows that come, change and go do to the counts. Numbers are differences and may be
/// negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageChange {
    /// Changes of the numbers of calls.
    pub calls: BTreeMap<CallCount, i64>,
    /// Changes of the numbers of answered calls.
    pub latencies: BTreeMap<LatencyCount, i64>,
    /// Changes of the numbers of pairs of successive calls.
    pub transitions: BTreeMap<TransitionCount, i64>,
    /// Changes of the sessions that used two tools, which are ordered by key. A tool paired with
    /// itself stands for the sessions that used it.
    pub pairs: BTreeMap<(Principal, ToolKey, ToolKey), PairCount>,
}

impl UsageChange {
    /// Counts a call.
    pub fn add_call(&mut self, principal: &Principal, call: &CountedCall) {
        self.count_call(principal, call, 1);
    }

    /// Takes back that a call was counted.
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

    /// Counts a pair of successive calls `n` times; takes it back for a negative number.
    pub fn count_transition(&mut self, principal: &Principal, from: ToolKey, to: ToolKey, n: i64) {
        let count = TransitionCount {
            principal: principal.clone(),
            from,
            to,
        };
        *self.transitions.entry(count).or_default() += n;
    }

    /// Counts what a session has come to: the pairs of `after` that `before` does not have, or has
    /// at other distances. Either may be empty, for a session that is new or goes.
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
            // A pair of two changed tools is met from both sides and counted from one.
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

    /// Removes the counts that come out as no change.
    pub fn simplify(&mut self) {
        self.calls.retain(|_, n| *n != 0);
        self.latencies.retain(|_, n| *n != 0);
        self.transitions.retain(|_, n| *n != 0);
        self.pairs.retain(|_, count| {
            count.n_sessions != 0 || count.distance != 0 || count.added_at != count.removed_at
        });
    }
}
