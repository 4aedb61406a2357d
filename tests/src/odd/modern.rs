//! The unusual server of revision 2026-07-28, without sessions.
//!
//! The `ServerState` holds the state beyond one request: subscriptions, the number of cancelled requests,
//! and tasks. Each request has its own output, so that stdio and HTTP share everything here.

mod catalog;
mod exchange;
mod headers;
mod http;
mod listen;
mod multi_round;
mod request;
mod tasks;
mod tools;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

pub(super) use exchange::Exchange;
pub(super) use http::{is_modern as is_modern_http, take as take_http};
pub(super) use request::is_modern;

use super::plain::{self, PlainAnswer};
use super::session::{error, result_of};
use super::settings::{Era, Settings};
use super::skills;
use crate::envelope::{Envelope, json_string, raw_at, string_at};
use listen::Listeners;
use tasks::Tasks;

/// The supported revision.
pub(super) const REVISION: &str = "2026-07-28";

/// The shared state of all requests to one server process.
#[derive(Debug)]
pub(super) struct ServerState {
    settings: Arc<Settings>,
    in_flight: Mutex<HashMap<String, Arc<Notify>>>,
    cancelled: watch::Sender<usize>,
    listeners: Listeners,
    tasks: Tasks,
}

impl ServerState {
    pub(super) fn new(settings: Arc<Settings>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            in_flight: Mutex::default(),
            cancelled: watch::Sender::new(0),
            listeners: Listeners::default(),
            tasks: Tasks::default(),
        })
    }

    /// Processes a cancellation and returns whether its request was in flight.
    pub(super) fn cancel(&self, notification: &Envelope) -> bool {
        let id = notification
            .member("params")
            .and_then(|params| raw_at(params, &["requestId"]));
        let Some(id) = id else { return false };
        let found = self.with_in_flight(|in_flight| in_flight.remove(&id));
        if let Some(cancel) = &found {
            cancel.notify_one();
        }
        found.is_some()
    }

    fn with_in_flight<T>(&self, look: impl FnOnce(&mut HashMap<String, Arc<Notify>>) -> T) -> T {
        look(&mut self.in_flight.lock())
    }

    /// Answers a request in the background, unless it is cancelled before.
    pub(super) fn accept(self: &Arc<Self>, exchange: Exchange) {
        let id = exchange.id.clone();
        self.with_in_flight(|in_flight| in_flight.insert(id, exchange.cancel()));
        tokio::spawn(Arc::clone(self).answer(exchange));
    }

    async fn answer(self: Arc<Self>, exchange: Exchange) {
        let id = exchange.id.clone();
        let answer = match request::refusal(&self.settings, &exchange) {
            Some(refusal) => Some(refusal),
            None => self.dispatch(&exchange).await,
        };
        self.with_in_flight(|in_flight| in_flight.remove(&id));
        if let Some(answer) = answer {
            exchange.send(&answer).await;
        }
    }

    async fn dispatch(&self, exchange: &Exchange) -> Option<String> {
        let (id, params) = (exchange.id.as_str(), exchange.params.as_str());
        if exchange.method != "subscriptions/listen" {
            self.settings.pause().await;
        }
        match plain::answer(&self.settings, &exchange.method, params) {
            Some(PlainAnswer::Members(members)) => return Some(complete(id, &members)),
            Some(PlainAnswer::Invalid(message)) => return Some(error(id, -32602, message, "null")),
            None => {}
        }
        if let Some(members) = skills::members(&exchange.method, params) {
            return Some(complete(id, &members));
        }
        let members = match exchange.method.as_str() {
            "server/discover" => return Some(result_of(id, &self.discovery())),
            "tools/call" => return tools::call(self, exchange).await,
            "subscriptions/listen" => return self.listeners.serve(exchange).await,
            "tasks/get" | "tasks/update" | "tasks/cancel" => {
                return Some(self.tasks.answer(exchange));
            }
            "prompts/get" | "resources/read" => return Some(read(exchange)),
            "tools/list" => match raw_at(params, &["cursor"]).as_deref() {
                None => catalog::TOOLS_PAGE_1.to_owned(),
                Some(catalog::TOOL_CURSOR) => catalog::tools_page_2(),
                Some(other) => {
                    let data = format!(r#"{{"cursor":{other}}}"#);
                    return Some(error(id, -32602, "odd: bad cursor", &data));
                }
            },
            "resources/list" => catalog::RESOURCES.to_owned(),
            "resources/templates/list" => catalog::TEMPLATES.to_owned(),
            "prompts/list" => catalog::PROMPTS.to_owned(),
            "completion/complete" => {
                r#""completion":{"values":["a","\u0062"],"total":1e3,"hasMore":false,"x":0.70}"#
                    .into()
            }
            "odd/echo" => format!(r#""given":{params},"n":1.0,"null":null"#),
            other => {
                let data = format!(r#"{{"method":{}}}"#, json_string(other));
                return Some(error(id, -32601, "odd: no such method", &data));
            }
        };
        Some(complete(id, &members))
    }

    fn discovery(&self) -> String {
        let versions = match self.settings.era {
            Era::Dual => r#"["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]"#,
            Era::Modern | Era::Legacy => r#"["2026-07-28"]"#,
        };
        catalog::DISCOVERY.replace("$VERSIONS", versions)
    }
}

/// Answers `prompts/get` and `resources/read`. One prompt and one resource first ask the client for
/// input.
fn read(exchange: &Exchange) -> String {
    let (id, params) = (exchange.id.as_str(), exchange.params.as_str());
    let name = string_at(params, &["name"]).or_else(|| string_at(params, &["uri"]));
    let name = name.unwrap_or_default();
    let given = match name.as_str() {
        "ask" | "odd://ask" => match multi_round::ask(exchange, "elicit") {
            Ok(responses) => responses,
            Err(answer) => return answer,
        },
        "p" => params.to_owned(),
        known if known.starts_with("odd://r/") => "null".into(),
        _ => {
            let data = format!(r#"{{"asked":{}}}"#, json_string(&name));
            return error(id, -32602, "odd: not found", &data);
        }
    };
    if exchange.method == "prompts/get" {
        return complete(
            id,
            &format!(
                r#""messages":[{{"role":"user","content":{{"type":"text","text":"p \u00bf"}}}}],"x-given":{given}"#
            ),
        );
    }
    let uri = json_string(&name);
    complete(
        id,
        &format!(
            r#""ttlMs":0,"contents":[{{"uri":{uri},"mimeType":"text/plain","text":"r \u2713","annotations":{{"priority":1.0}}}}],"cacheScope":"private","x-given":{given}"#
        ),
    )
}

/// Returns a `complete` result with these members.
pub(super) fn complete(id: &str, members: &str) -> String {
    let identity = catalog::IDENTITY;
    result_of(
        id,
        &format!(
            r#"{{"_meta":{{{identity},"x.example/n":[1.0,1e3]}},{members},"resultType":"complete"}}"#
        ),
    )
}
