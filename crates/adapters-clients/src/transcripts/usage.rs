//! Figures over recorded calls: which tools are used, how often, and how well they answer.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::usage::{LatencyBucket, LatencyHistogram};

use super::event::{CallOutcome, RecordedCall};
use super::tool_key::{Spellings, ToolKey};

/// Counts calls, one after the other. Its size depends on the number of tools alone. Names that
/// clients spell differently, such as `get-user` and `get_user`, are one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolUsage {
    /// The counts by the comparable form of the tool.
    tools: BTreeMap<ToolKey, Counts>,
    spellings: Spellings,
    n_builtin_calls: u64,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    n_calls: u64,
    n_errors: u64,
    n_cancelled: u64,
    n_unknown: u64,
    last_used: Option<Timestamp>,
    latencies: LatencyHistogram,
}

/// The figures of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFigures {
    /// The tool.
    pub key: ToolKey,
    /// All calls, whatever their outcome.
    pub n_calls: u64,
    /// Calls that ended with an error.
    pub n_errors: u64,
    /// Calls that were refused or stopped.
    pub n_cancelled: u64,
    /// Calls without a result.
    pub n_unknown: u64,
    /// The time of the last call.
    pub last_used: Timestamp,
    /// The duration that half of the calls did not exceed, at most a sixteenth too long; `None` if
    /// no duration is recorded. Cancelled calls do not count.
    pub median: Option<Duration>,
    /// The same for 95 % of the calls.
    pub p95: Option<Duration>,
}

/// The figures of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFigures {
    /// The server.
    pub server: String,
    /// The number of tools that were called.
    pub n_tools: usize,
    /// All calls.
    pub n_calls: u64,
    /// Calls that ended with an error.
    pub n_errors: u64,
    /// The time of the last call.
    pub last_used: Timestamp,
}

/// The figures of all calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFigures {
    /// The called tools, those with the most calls first.
    pub tools: Vec<ToolFigures>,
    /// The called servers, those with the most calls first.
    pub servers: Vec<ServerFigures>,
    /// Calls to tools of MCP servers.
    pub n_mcp_calls: u64,
    /// Calls to tools of the clients.
    pub n_builtin_calls: u64,
}

impl ToolUsage {
    /// Counts a call.
    pub fn add(&mut self, call: &RecordedCall) {
        let Some(server) = &call.server else {
            self.n_builtin_calls += 1;
            return;
        };
        let key = ToolKey {
            server: server.clone(),
            tool: call.tool.clone(),
        };
        let common = self.spellings.add(&key);
        let counts = self.tools.entry(common).or_default();
        counts.n_calls += 1;
        match call.outcome {
            CallOutcome::Success => {}
            CallOutcome::Error => counts.n_errors += 1,
            CallOutcome::Cancelled => counts.n_cancelled += 1,
            CallOutcome::Unknown => counts.n_unknown += 1,
        }
        counts.last_used = counts.last_used.max(Some(call.started_at));
        // The time to a refusal is that of the user.
        if let Some(duration) = call.duration
            && call.outcome != CallOutcome::Cancelled
        {
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            counts.latencies.add(LatencyBucket::of(micros), 1);
        }
    }

    /// Returns the figures of the calls so far.
    #[must_use]
    pub fn figures(&self) -> UsageFigures {
        let mut servers: BTreeMap<&str, ServerFigures> = BTreeMap::new();
        let mut tools: Vec<ToolFigures> = Vec::new();
        for (common, counts) in &self.tools {
            let key = self.spellings.best(common);
            let last_used = counts.last_used.unwrap_or_default();
            let server = servers
                .entry(&common.server)
                .or_insert_with(|| ServerFigures {
                    server: key.server.clone(),
                    n_tools: 0,
                    n_calls: 0,
                    n_errors: 0,
                    last_used,
                });
            server.n_tools += 1;
            server.n_calls += counts.n_calls;
            server.n_errors += counts.n_errors;
            server.last_used = server.last_used.max(last_used);
            let quantile = |share| {
                counts
                    .latencies
                    .quantile_us(share)
                    .map(Duration::from_micros)
            };
            tools.push(ToolFigures {
                key,
                n_calls: counts.n_calls,
                n_errors: counts.n_errors,
                n_cancelled: counts.n_cancelled,
                n_unknown: counts.n_unknown,
                last_used,
                median: quantile(0.5),
                p95: quantile(0.95),
            });
        }
        // The sorts are stable, so tools with as many calls stay in order of their names.
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.n_calls));
        let mut servers: Vec<ServerFigures> = servers.into_values().collect();
        servers.sort_by_key(|server| std::cmp::Reverse(server.n_calls));
        UsageFigures {
            n_mcp_calls: tools.iter().map(|tool| tool.n_calls).sum(),
            tools,
            servers,
            n_builtin_calls: self.n_builtin_calls,
        }
    }
}

impl UsageFigures {
    /// Returns the listed tools without a call in the time before `now`, in their order. Names are
    /// compared as clients write them: without a difference between characters that are not letters
    /// or digits.
    #[must_use]
    pub fn unused_tools<'a>(
        &self,
        listed: &'a [ToolKey],
        now: Timestamp,
        within: Duration,
    ) -> Vec<&'a ToolKey> {
        // A span that reaches before the first possible time covers all calls.
        let since = now.checked_sub(within).unwrap_or(Timestamp::MIN);
        let used: HashSet<ToolKey> = (self.tools.iter())
            .filter(|tool| tool.last_used >= since)
            .map(|tool| tool.key.comparable())
            .collect();
        let is_unused = |key: &&ToolKey| !used.contains(&key.comparable());
        listed.iter().filter(is_unused).collect()
    }

    /// Returns the smallest number of tools that made this share, of 0 to 1, of the calls.
    #[must_use]
    pub fn n_tools_for(&self, share: f64) -> usize {
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of calls are far below 2^52"
        )]
        let needed = self.n_mcp_calls as f64 * share.clamp(0.0, 1.0);
        let mut n_calls = 0;
        let mut n_tools = 0;
        for tool in &self.tools {
            #[expect(
                clippy::cast_precision_loss,
                reason = "numbers of calls are far below 2^52"
            )]
            let is_enough = n_calls as f64 >= needed;
            if is_enough {
                break;
            }
            n_calls += tool.n_calls;
            n_tools += 1;
        }
        n_tools
    }
}

#[cfg(test)]
mod tests;
