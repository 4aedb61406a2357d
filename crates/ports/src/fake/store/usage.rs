//! Usage counts, computed from all rows at each query. They are the reference for stores that
//! update counts incrementally.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{
    CountedCall, Hour, LatencyHistogram, PairCount, SessionTools, ToolCooccurrence, ToolFrequency,
    ToolSessions, ToolStatistics, ToolTransition, UsageChange,
};

use super::MemoryStore;
use super::rows::Rows;
use crate::analytics::{StoreError, UsageRepository};

/// The co-occurrence pairs, the lower tool first, with their counts summed over principals.
type PairCounts = BTreeMap<(ToolRef, ToolRef), PairCount>;

impl Rows {
    /// Returns the counts of all rows.
    fn count_all(&self) -> UsageChange {
        let mut counts = UsageChange::default();
        let mut positions: BTreeMap<(SessionId, u64), Vec<ToolKey>> = BTreeMap::new();
        for row in self.calls.values() {
            let call = &row.invocation;
            if let Some(counted) = CountedCall::new(call, row.end.as_ref()) {
                counts.add_call(&call.principal, &counted);
                let position = (call.session, call.sequence);
                positions.entry(position).or_default().push(counted.tool);
            }
        }
        for row in self.calls.values() {
            let call = &row.invocation;
            let (Some(counted), Some(before)) =
                (CountedCall::new(call, None), call.sequence.checked_sub(1))
            else {
                continue;
            };
            let earlier = positions.get(&(call.session, before));
            for from in earlier.into_iter().flatten() {
                counts.count_transition(&call.principal, *from, counted.tool, 1);
            }
        }
        for (principal, used) in self.session_tools.values() {
            counts.change_session(principal, &SessionTools::default(), used);
        }
        counts
    }

    /// Returns the number of different counts.
    pub(super) fn n_counts(&self) -> u64 {
        let counts = self.count_all();
        let n = counts.calls.len()
            + counts.latencies.len()
            + counts.transitions.len()
            + counts.pairs.len();
        n as u64
    }

    /// Returns the pairs of one principal or of all. A tool paired with itself counts its sessions.
    fn pairs(&self, scope: Option<&Principal>) -> PairCounts {
        let mut pairs = PairCounts::new();
        for ((principal, a, b), count) in self.count_all().pairs {
            let (Some(a), Some(b)) = (self.tools.get(&a), self.tools.get(&b)) else {
                continue;
            };
            if is_in(scope, &principal) {
                let pair = (a.min(b).clone(), a.max(b).clone());
                let sum = pairs.entry(pair).or_default();
                sum.n_sessions += count.n_sessions;
                sum.distance += count.distance;
                sum.added_at = sum.added_at.max(count.added_at);
            }
        }
        pairs
    }
}

fn is_in(scope: Option<&Principal>, principal: &Principal) -> bool {
    scope.is_none_or(|scope| scope == principal)
}

fn is_among(tools: Option<&[ToolRef]>, tool: &ToolRef) -> bool {
    tools.is_none_or(|tools| tools.contains(tool))
}

#[async_trait]
impl UsageRepository for MemoryStore {
    async fn frequencies(
        &self,
        scope: Option<&Principal>,
        since: Timestamp,
    ) -> Result<Vec<ToolFrequency>, StoreError> {
        let rows = self.rows.lock();
        let mut sums: BTreeMap<&ToolRef, u64> = BTreeMap::new();
        for (count, n) in rows.count_all().calls {
            if is_in(scope, &count.principal) && count.hour >= Hour::of(since) {
                let tool = rows.tools.get(&count.tool).into_iter();
                tool.for_each(|tool| *sums.entry(tool).or_default() += n.unsigned_abs());
            }
        }
        let mut frequencies: Vec<_> = sums
            .into_iter()
            .map(|(tool, n_calls)| ToolFrequency {
                tool: tool.clone(),
                n_calls,
            })
            .collect();
        frequencies.sort_by_key(|row| Reverse(row.n_calls));
        Ok(frequencies)
    }

    async fn sessions_using(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolSessions>, StoreError> {
        let pairs = self.rows.lock().pairs(scope).into_iter();
        Ok(pairs
            .filter(|((a, b), _)| a == b && is_among(tools, a))
            .map(|((tool, _), count)| ToolSessions {
                tool,
                n_sessions: count.n_sessions.unsigned_abs(),
            })
            .collect())
    }

    async fn cooccurrences(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolCooccurrence>, StoreError> {
        let pairs = self.rows.lock().pairs(scope).into_iter();
        Ok(pairs
            .filter(|((a, b), _)| a != b && (is_among(tools, a) || is_among(tools, b)))
            .filter_map(|((tool_a, tool_b), count)| {
                #[expect(clippy::cast_precision_loss, reason = "a mean needs no 53 bits")]
                let mean_distance = count.distance as f64 / count.n_sessions as f64;
                Some(ToolCooccurrence {
                    tool_a,
                    tool_b,
                    count: count.n_sessions.unsigned_abs(),
                    mean_distance,
                    last_updated: count.added_at?,
                })
            })
            .collect())
    }

    async fn transitions(
        &self,
        scope: Option<&Principal>,
        from: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolTransition>, StoreError> {
        let rows = self.rows.lock();
        let mut sums: BTreeMap<(&ToolRef, &ToolRef), u64> = BTreeMap::new();
        for (count, n) in rows.count_all().transitions {
            let tools = (rows.tools.get(&count.from)).zip(rows.tools.get(&count.to));
            if let Some(tools) = tools
                && is_in(scope, &count.principal)
                && is_among(from, tools.0)
            {
                *sums.entry(tools).or_default() += n.unsigned_abs();
            }
        }
        Ok(sums
            .into_iter()
            .map(|((from, to), count)| ToolTransition {
                from: from.clone(),
                to: to.clone(),
                count,
            })
            .collect())
    }

    async fn statistics(
        &self,
        scope: Option<&Principal>,
        tools: Option<&[ToolRef]>,
        since: Timestamp,
    ) -> Result<Vec<ToolStatistics>, StoreError> {
        let rows = self.rows.lock();
        let counts = rows.count_all();
        let since = Hour::of(since);
        let mut statistics: BTreeMap<&ToolRef, ToolStatistics> = BTreeMap::new();
        let counted = |principal: &Principal, hour: Hour, tool: ToolKey| {
            let tool = rows.tools.get(&tool)?;
            (is_in(scope, principal) && hour >= since && is_among(tools, tool)).then_some(tool)
        };
        for (count, n) in counts.calls {
            let Some(tool) = counted(&count.principal, count.hour, count.tool) else {
                continue;
            };
            let row = statistics
                .entry(tool)
                .or_insert_with(|| empty_statistics(tool));
            match count.outcome {
                Some(outcome) => *row.outcomes.entry(outcome).or_default() += n.unsigned_abs(),
                None => row.n_open += n.unsigned_abs(),
            }
        }
        for (count, n) in counts.latencies {
            let Some(tool) = counted(&count.principal, count.hour, count.tool) else {
                continue;
            };
            let row = statistics
                .entry(tool)
                .or_insert_with(|| empty_statistics(tool));
            row.latency.add(count.bucket, n.unsigned_abs());
        }
        Ok(statistics.into_values().collect())
    }
}

fn empty_statistics(tool: &ToolRef) -> ToolStatistics {
    ToolStatistics {
        tool: tool.clone(),
        outcomes: BTreeMap::new(),
        n_open: 0,
        latency: LatencyHistogram::default(),
    }
}
