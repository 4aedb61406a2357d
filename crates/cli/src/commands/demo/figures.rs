//! The figures of a demonstration, all measured in it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::latency::Latency;
use super::session::SessionPlay;

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) n_servers: usize,
    /// The number of tools of all servers, which a client sees without riglm.
    pub(super) n_tools: usize,
    /// The tokens of their definitions.
    pub(super) tokens: u64,
    /// The sessions from which riglm learns first.
    pub(super) learning: ListFigures,
    /// The sessions after them.
    pub(super) after: ListFigures,
    pub(super) latency: Latency,
    /// The number of calls through the proxy.
    pub(super) n_calls: usize,
    /// The number of calls in the records.
    pub(super) n_recorded: usize,
    /// The protocol revisions of the clients.
    pub(super) revisions: Vec<&'static str>,
    pub(super) example: Example,
    pub(super) unexpected: Vec<String>,
    pub(super) seconds: f64,
    pub(super) mcp_url: String,
    pub(super) control: SocketAddr,
    pub(super) data_dir: PathBuf,
}

/// The means of some sessions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListFigures {
    pub(super) n_sessions: usize,
    pub(super) tools: f64,
    pub(super) tokens: f64,
    /// The share of the first uses of a tool in a session for which it was listed.
    pub(super) coverage: f64,
    pub(super) searches: f64,
}

/// Answers of riglm in an open session.
#[derive(Clone, Debug)]
pub(super) struct Example {
    /// The task of the session.
    pub(super) intent: String,
    pub(super) called: Vec<String>,
    /// The next tools with their probability and the reasons.
    pub(super) predictions: Vec<PredictedTool>,
    /// The words of the search.
    pub(super) query: String,
    /// The tools in its answer, the best first.
    pub(super) found: Vec<String>,
    pub(super) task: String,
    pub(super) recommended: String,
    pub(super) reason: String,
}

/// A tool that the session will probably call next.
#[derive(Clone, Debug)]
pub(super) struct PredictedTool {
    pub(super) name: String,
    pub(super) probability: f64,
    pub(super) reason: String,
}

impl ListFigures {
    /// Returns the means of these sessions.
    pub(super) fn of(plays: &[SessionPlay]) -> Self {
        let sum = |count: fn(&SessionPlay) -> f64| plays.iter().map(count).sum::<f64>();
        let n = sum(|_| 1.0).max(1.0);
        let uses = sum(|play| float(play.n_first_uses)).max(1.0);
        Self {
            n_sessions: plays.len(),
            tools: sum(|play| float(play.n_tools)) / n,
            tokens: sum(|play| f64::from(u32::try_from(play.tokens).unwrap_or(u32::MAX))) / n,
            coverage: sum(|play| float(play.n_listed_uses)) / uses,
            searches: sum(|play| float(play.n_searches)) / n,
        }
    }

    fn json(self) -> Value {
        json!({
            "sessions": self.n_sessions,
            "tools_listed": four_decimals(self.tools),
            "definition_tokens": four_decimals(self.tokens),
            "first_use_coverage": four_decimals(self.coverage),
            "searches_per_session": four_decimals(self.searches),
        })
    }
}

fn float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

fn four_decimals(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

impl Figures {
    /// Returns the share of the definition tokens that lists save after learning.
    pub(super) fn saving(&self) -> f64 {
        let all = f64::from(u32::try_from(self.tokens).unwrap_or(u32::MAX)).max(1.0);
        1.0 - self.after.tokens / all
    }

    /// Returns the figures as JSON. Scripts rely on this format.
    pub(super) fn json(&self) -> Value {
        let ms = |time: std::time::Duration| four_decimals(time.as_secs_f64() * 1_000.0);
        let predictions = self.example.predictions.iter();
        let predictions: Vec<Value> = predictions
            .map(|one| {
                json!({
                    "tool": one.name,
                    "probability": one.probability,
                    "because": one.reason,
                })
            })
            .collect();
        json!({
            "ok": self.unexpected.is_empty(),
            "seconds": four_decimals(self.seconds),
            "optimized": !cfg!(debug_assertions),
            "servers": self.n_servers,
            "client_revisions": self.revisions,
            "without_riglm": {"tools_listed": self.n_tools, "definition_tokens": self.tokens},
            "while_learning": self.learning.json(),
            "after_learning": self.after.json(),
            "tokens_saved_share": four_decimals(self.saving()),
            "calls": self.n_calls,
            "calls_recorded": self.n_recorded,
            "latency": {
                "calls": self.latency.n_calls,
                "direct_median_ms": ms(self.latency.direct),
                "proxied_median_ms": ms(self.latency.proxied),
                "added_median_ms": four_decimals(self.latency.added_ms()),
            },
            "session": {
                "intent": self.example.intent,
                "called": self.example.called,
                "predictions": predictions,
            },
            "search": {"query": self.example.query, "found": self.example.found},
            "recommendation": {
                "task": self.example.task,
                "tool": self.example.recommended,
                "because": self.example.reason,
            },
            "unexpected": self.unexpected,
            "mcp_url": self.mcp_url,
            "control": self.control.to_string(),
            "data_dir": self.data_dir,
            "token_file": self.data_dir.join("control.token"),
        })
    }
}
