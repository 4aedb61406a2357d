//! The figures of an audit.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use riglm_adapters_clients::transcripts::{ToolFigures, ToolKey, comparable_name};
use serde_json::{Value, json};

use super::clients::ClientFigures;
use super::days_between;
use super::history::CallHistory;
use super::history_import::ImportedHistory;
use super::servers::ServerTools;

/// The share of calls that the most used tools have to make.
pub(super) const MOST_CALLS: f64 = 0.95;
/// The number of calls from which a share of errors says something.
const MIN_CALLS: u64 = 5;
/// The share of errors from which a tool counts as failing.
const FAILING: f64 = 0.2;
/// The 95th percentile of the duration from which a tool counts as slow.
const SLOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct AuditFigures {
    pub(super) servers: Vec<AuditedServerFigures>,
    /// The listed tools, and those that were only called, most calls first.
    pub(super) tools: Vec<AuditedTool>,
    pub(super) n_sessions: usize,
    pub(super) n_calls: u64,
    pub(super) n_skipped_lines: u64,
    pub(super) unreadable: Vec<String>,
    /// The time of the first line.
    pub(super) first_at: Option<Timestamp>,
    /// The days since the first line.
    pub(super) n_days: Option<i64>,
    /// The days without a call of unused tools: at most those since the first line.
    pub(super) unused_days: i64,
    /// The number of tools that made 95 % of the calls of all clients.
    pub(super) n_tools_for_most: usize,
    /// The clients with servers or calls, most calls first.
    pub(super) clients: Vec<ClientFigures>,
    /// The counts of an import of the calls.
    pub(super) imported: Option<ImportedHistory>,
}

#[derive(Debug)]
pub(super) struct AuditedServerFigures {
    pub(super) name: String,
    /// The reason why its tools are unknown.
    pub(super) error: Option<String>,
    /// The number of tools; `None` if they are unknown.
    pub(super) n_tools: Option<usize>,
    /// The tokens of their definitions; `None` if they are unknown.
    pub(super) n_tokens: Option<u64>,
    /// The number of calls; `None` if they are unknown.
    pub(super) n_calls: Option<u64>,
    /// The number of unused tools; `None` if the tools or their calls are unknown.
    pub(super) n_unused: Option<usize>,
}

#[derive(Debug)]
pub(super) struct AuditedTool {
    pub(super) name: String,
    pub(super) server: String,
    /// The tokens of its definition; `None` if it is not listed.
    pub(super) n_tokens: Option<u64>,
    pub(super) usage: Option<ToolFigures>,
    /// Whether it was not called; `None` if that is unknown: it has no call, and no client that has
    /// it keeps transcripts.
    pub(super) is_unused: Option<bool>,
}

/// The time of an audit, and the time without a call after which a tool counts as unused.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditPeriod {
    pub(super) now: Timestamp,
    pub(super) unused_after: Duration,
}

impl AuditFigures {
    /// Returns the figures of listed servers and recorded calls.
    pub(super) fn new(
        servers: &[ServerTools],
        history: &CallHistory,
        clients: Vec<ClientFigures>,
        period: AuditPeriod,
    ) -> Self {
        let mut calls: HashMap<ToolKey, &ToolFigures> = (history.usage.tools.iter())
            .map(|figures| (figures.key.comparable(), figures))
            .collect();
        let mut tools = Vec::new();
        let mut of_servers = Vec::new();
        for server in servers {
            let first = tools.len();
            let is_observed = is_observed(server, &clients);
            for counted in server.tools.iter().flatten() {
                let key = ToolKey {
                    server: server.name.clone(),
                    tool: counted.tool.name.clone(),
                };
                let usage = calls.remove(&key.comparable());
                tools.push(AuditedTool {
                    name: counted.tool.name.clone(),
                    server: server.name.clone(),
                    n_tokens: Some(counted.n_tokens),
                    is_unused: (is_observed || usage.is_some()).then(|| is_unused(usage, period)),
                    usage: usage.cloned(),
                });
            }
            let own: &[AuditedTool] = &tools[first..];
            // The calls follow when the tools that are not listed are known, too.
            of_servers.push(AuditedServerFigures {
                name: server.name.clone(),
                error: server.tools.as_ref().err().cloned(),
                n_tools: server.tools.is_ok().then_some(own.len()),
                n_tokens: (server.tools.is_ok())
                    .then(|| own.iter().filter_map(|tool| tool.n_tokens).sum()),
                // Set below for all that are observed.
                n_calls: is_observed.then_some(0),
                n_unused: (is_observed && server.tools.is_ok())
                    .then(|| own.iter().filter(|it| it.is_unused == Some(true)).count()),
            });
        }
        // Tools of servers that are not there any more, or that could not be listed.
        let mut rest: Vec<&ToolFigures> = calls.into_values().collect();
        rest.sort_by(|a, b| a.key.cmp(&b.key));
        tools.extend(rest.into_iter().map(|usage| AuditedTool {
            name: usage.key.tool.clone(),
            server: usage.key.server.clone(),
            n_tokens: None,
            is_unused: Some(is_unused(Some(usage), period)),
            usage: Some(usage.clone()),
        }));
        for server in &mut of_servers {
            let is_own = |tool: &&AuditedTool| {
                comparable_name(&tool.server) == comparable_name(&server.name)
            };
            let n_calls: u64 = tools.iter().filter(is_own).map(AuditedTool::n_calls).sum();
            if server.n_calls.is_some() || n_calls > 0 {
                server.n_calls = Some(n_calls);
            }
        }
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.n_calls()));
        let total = history.summary.total();
        Self {
            servers: of_servers,
            tools,
            n_sessions: history.sessions.len(),
            n_calls: history.usage.n_mcp_calls,
            n_skipped_lines: total.skipped.total(),
            unreadable: (history.summary.unreadable.iter())
                .map(|file| format!("{}: {}", file.path.display(), file.reason))
                .collect(),
            first_at: total.first_at,
            n_days: (total.first_at).map(|first| days_between(first, period.now)),
            unused_days: observed_days(period, total.first_at),
            n_tools_for_most: history.usage.n_tools_for(MOST_CALLS),
            clients,
            imported: None,
        }
    }

    /// Returns the number of listed tools.
    pub(super) fn n_listed(&self) -> usize {
        self.servers
            .iter()
            .filter_map(|server| server.n_tools)
            .sum()
    }

    /// Returns the tokens of all definitions; `None` if the tools of no server are known.
    pub(super) fn n_tokens(&self) -> Option<u64> {
        let mut known = self
            .servers
            .iter()
            .filter_map(|server| server.n_tokens)
            .peekable();
        (known.peek().is_some() || self.servers.is_empty()).then(|| known.sum())
    }

    /// Returns the listed tools that are unused, the largest first.
    pub(super) fn unused_tools(&self) -> Vec<&AuditedTool> {
        let unused = self.tools.iter();
        let mut unused: Vec<&AuditedTool> = unused
            .filter(|tool| tool.is_unused == Some(true) && tool.n_tokens.is_some())
            .collect();
        unused.sort_by_key(|tool| std::cmp::Reverse(tool.n_tokens));
        unused
    }

    /// Returns the tools that often fail, or that are slow.
    pub(super) fn troubled_tools(&self) -> Vec<&AuditedTool> {
        let is_troubled = |tool: &&AuditedTool| {
            tool.usage.as_ref().is_some_and(|usage| {
                usage.n_calls >= MIN_CALLS
                    && (tool.error_share() >= FAILING || usage.p95.is_some_and(|it| it >= SLOW))
            })
        };
        self.tools.iter().filter(is_troubled).collect()
    }

    /// Returns the figures as JSON. Scripts rely on this format.
    pub(super) fn as_json(&self) -> Value {
        let servers = self.servers.iter().map(|server| {
            json!({"name": server.name, "tools": server.n_tools, "tokens": server.n_tokens,
                   "calls": server.n_calls, "unused": server.n_unused, "error": server.error})
        });
        let tools = self.tools.iter().map(|tool| {
            let usage = tool.usage.as_ref();
            let seconds = |of: Option<Duration>| of.map(|it| it.as_secs_f64());
            json!({
                "name": tool.name,
                "server": tool.server,
                "tokens": tool.n_tokens,
                "calls": tool.is_unused.map(|_| tool.n_calls()),
                "errors": usage.map_or(0, |usage| usage.n_errors),
                "last_used": usage.map(|usage| usage.last_used),
                "median_seconds": usage.and_then(|usage| seconds(usage.median)),
                "p95_seconds": usage.and_then(|usage| seconds(usage.p95)),
                "unused": tool.is_unused,
            })
        });
        json!({
            "servers": servers.collect::<Vec<_>>(),
            "tools": tools.collect::<Vec<_>>(),
            "sessions": self.n_sessions,
            "calls": self.n_calls,
            "skipped_lines": self.n_skipped_lines,
            "unreadable": self.unreadable,
            "first_at": self.first_at,
            "tools_for_95_percent": self.n_tools_for_most,
            "tokens": self.n_tokens(),
            "clients": self.clients.iter().map(ClientFigures::as_json).collect::<Vec<_>>(),
            // Of the client with the most calls.
            "tokens_per_prompt": self.clients.first().map(ClientFigures::tokens_per_prompt),
            "tokens_saved_per_prompt": self.clients.first().map(ClientFigures::n_saved_tokens),
            "live": self.clients.first().map(ClientFigures::live_as_json),
            "imported": self.imported,
        })
    }
}

impl AuditedTool {
    pub(super) fn n_calls(&self) -> u64 {
        self.usage.as_ref().map_or(0, |usage| usage.n_calls)
    }

    /// Returns the share of calls that failed.
    pub(super) fn error_share(&self) -> f64 {
        let Some(usage) = self.usage.as_ref().filter(|usage| usage.n_calls > 0) else {
            return 0.0;
        };
        #[expect(clippy::cast_precision_loss, reason = "a share of counts")]
        let share = usage.n_errors as f64 / usage.n_calls as f64;
        share
    }
}

/// Returns the days after which a tool counts as unused, at most those since the first line.
fn observed_days(period: AuditPeriod, first_at: Option<Timestamp>) -> i64 {
    let days = i64::try_from(period.unused_after.as_secs() / 86_400).unwrap_or(i64::MAX);
    first_at.map_or(days, |first| days.min(days_between(first, period.now)))
}

/// Returns whether calls to a server would be seen: a client that has it keeps transcripts, or it is
/// behind riglm, and any client does.
fn is_observed(server: &ServerTools, clients: &[ClientFigures]) -> bool {
    let mut observed = clients.iter().filter(|client| client.usage.is_some());
    observed.any(|client| server.clients.is_empty() || server.clients.contains(&client.title))
}

fn is_unused(usage: Option<&ToolFigures>, period: AuditPeriod) -> bool {
    usage.is_none_or(|usage| {
        let age = period.now.duration_since(usage.last_used);
        age.unsigned_abs() > period.unused_after && age.is_positive()
    })
}
