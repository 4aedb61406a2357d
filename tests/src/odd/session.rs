//! One session of the unusual server: its answers to each method.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use super::catalog;
use super::outlet::{Route, SessionOutput};
use super::plain::{self, PlainAnswer};
use super::settings::Settings;
use super::tasks::{self, Tasks};
use super::{skills, tools};
use crate::envelope::{Envelope, json_string, raw_at, string_at};

/// The deadline for a response of the client.
const CLIENT_PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) outlet: SessionOutput,
    settings: Arc<Settings>,
    pending: Mutex<HashMap<String, oneshot::Sender<String>>>,
    cancels: Mutex<HashMap<String, Arc<Notify>>>,
    pub(super) cancelled: watch::Sender<usize>,
    seen: Mutex<SessionRecord>,
    asked: AtomicUsize,
    pub(super) tasks: Tasks,
}

/// The record of received messages, for the tool `seen`.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionRecord {
    pub(super) initialize: String,
    /// The headers of the last HTTP request as a JSON object.
    pub(super) headers: String,
    /// The raw text of every notification.
    pub(super) notifications: Vec<String>,
    /// The number of received tool calls.
    pub(super) n_calls: usize,
    /// The resources with a subscription.
    pub(super) subscribed: Vec<String>,
    /// The log level that was set last.
    pub(super) level: String,
}

impl Session {
    pub(super) fn new(outlet: SessionOutput, settings: Arc<Settings>) -> Arc<Self> {
        Arc::new(Self {
            outlet,
            settings,
            pending: Mutex::default(),
            cancels: Mutex::default(),
            cancelled: watch::Sender::new(0),
            seen: Mutex::default(),
            asked: AtomicUsize::new(0),
            tasks: Tasks::default(),
        })
    }

    /// Reads or changes the record of received messages.
    pub(super) fn with_record<T>(&self, look: impl FnOnce(&mut SessionRecord) -> T) -> T {
        look(&mut self.seen.lock())
    }

    /// Processes one message or batch, and answers it in the background.
    pub(super) async fn accept(self: &Arc<Self>, text: String) {
        let envelopes = Envelope::all(&text);
        if envelopes.is_empty() {
            let error =
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"odd: no JSON"}}"#;
            self.outlet.send(&Route::Standalone, error).await;
            return;
        }
        for envelope in &envelopes {
            self.note(envelope, &text);
        }
        let requests: Vec<ReceivedRequest> =
            envelopes.iter().filter_map(ReceivedRequest::read).collect();
        if requests.is_empty() {
            return;
        }
        let is_batch = text.trim_start().starts_with('[');
        let session = Arc::clone(self);
        tokio::spawn(async move { session.answer_all(requests, is_batch).await });
    }

    fn note(&self, envelope: &Envelope, text: &str) {
        if envelope.is_response() {
            let waiting = envelope
                .id()
                .and_then(|id| self.pending.lock().remove(&comparable(id)));
            if let Some(waiting) = waiting {
                // The tool may have reached its timeout.
                let _ = waiting.send(text.to_owned());
            }
        } else if envelope.id().is_none() {
            let method = envelope.method();
            self.with_record(|seen| seen.notifications.push(text.to_owned()));
            if method.as_deref() == Some("notifications/cancelled")
                && let Some(id) = envelope
                    .member("params")
                    .and_then(|params| raw_at(params, &["requestId"]))
            {
                self.cancel_of(&id).notify_one();
            }
        }
    }

    async fn answer_all(self: Arc<Self>, requests: Vec<ReceivedRequest>, is_batch: bool) {
        let mut answers = Vec::new();
        for request in &requests {
            if let Some(answer) = self.answer(request).await {
                answers.push(answer);
            }
        }
        let first = Route::Request(requests[0].id.clone());
        if is_batch {
            let batch = format!("[{}]", answers.join(" ,"));
            self.outlet.send(&first, &batch).await;
        } else if let Some(answer) = answers.first() {
            self.outlet.send(&first, answer).await;
        }
        for request in &requests {
            self.finish(&request.id);
        }
    }

    /// Ends the stream of a request, on transports with such streams.
    fn finish(&self, id: &str) {
        if let SessionOutput::Streams(streams) = &self.outlet {
            streams.finish(id);
        }
    }

    async fn answer(self: &Arc<Self>, request: &ReceivedRequest) -> Option<String> {
        let id = &request.id;
        let params = request.params.as_str();
        if request.method != "initialize" && request.method != "ping" {
            self.settings.pause().await;
        }
        match plain::answer(&self.settings, &request.method, params) {
            Some(PlainAnswer::Members(members)) => {
                return Some(result_of(id, &format!("{{{members}}}")));
            }
            Some(PlainAnswer::Invalid(message)) => return Some(error(id, -32602, message, "null")),
            None => {}
        }
        if request.method.starts_with("tasks/")
            && let Some(answer) = tasks::answer(self, request).await
        {
            return Some(answer);
        }
        if let Some(members) = skills::members(&request.method, params) {
            return Some(result_of(id, &format!("{{{members}}}")));
        }
        let result = match request.method.as_str() {
            "initialize" => self.initialize(params),
            "ping" => "{}".to_owned(),
            "tools/list" => match raw_at(params, &["cursor"]).as_deref() {
                None => catalog::TOOLS_PAGE_1.to_owned(),
                Some(catalog::TOOL_CURSOR) => catalog::tools_page_2(),
                Some(other) => {
                    return Some(error(
                        id,
                        -32602,
                        "odd: bad cursor",
                        &format!(r#"{{"cursor":{other}}}"#),
                    ));
                }
            },
            "tools/call" => {
                self.with_record(|seen| seen.n_calls += 1);
                return tools::call(self, request).await;
            }
            "resources/list" => catalog::RESOURCES.to_owned(),
            "resources/templates/list" => {
                r#"{"resourceTemplates":[{"uriTemplate":"odd://r/{id}","name":"r","x":1.0}]}"#
                    .into()
            }
            "resources/read" => {
                let uri = string_at(params, &["uri"]).unwrap_or_default();
                if uri.starts_with("odd://missing") {
                    let data = format!(r#"{{"uri":{}}}"#, json_string(&uri));
                    return Some(error(id, -32002, "odd: no such resource", &data));
                }
                resource(params)
            }
            "resources/subscribe" => {
                self.subscribe(params, Vec::push);
                r#"{"x-done":null}"#.into()
            }
            "resources/unsubscribe" => {
                self.subscribe(params, |uris, uri| uris.retain(|known| *known != uri));
                r#"{"x-done":null}"#.into()
            }
            "logging/setLevel" => {
                let level = string_at(params, &["level"]).unwrap_or_default();
                self.with_record(|seen| seen.level = level);
                r#"{"x-done":null}"#.into()
            }
            "prompts/list" => catalog::PROMPTS.to_owned(),
            "prompts/get" => format!(
                r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":"p"}}}}],"x-given":{params}}}"#
            ),
            "completion/complete" => {
                format!(
                    r#"{{"completion":{{"values":["a","\u0062"],"total":1e3,"hasMore":false,"x":{params}}}}}"#
                )
            }
            "odd/echo" | "tasks/get" | "tasks/list" | "tasks/result" | "tasks/cancel" => {
                format!(r#"{{"params":{params},"n":1.0,"null":null}}"#)
            }
            "odd/null" => "null".into(),
            "odd/array" => "[1.0, null]".into(),
            _ => {
                let data = format!(r#"{{"method":{}}}"#, json_string(&request.method));
                return Some(error(id, -32601, "odd: no such method", &data));
            }
        };
        Some(result_of(id, &result))
    }

    fn subscribe(&self, params: &str, change: impl FnOnce(&mut Vec<String>, String)) {
        let uri = string_at(params, &["uri"]).unwrap_or_default();
        self.with_record(|seen| change(&mut seen.subscribed, uri));
    }

    fn initialize(&self, params: &str) -> String {
        self.with_record(|seen| params.clone_into(&mut seen.initialize));
        let asked = string_at(params, &["protocolVersion"]).unwrap_or_default();
        let version = crate::messages::REVISIONS
            .into_iter()
            .find(|known| *known == asked)
            .unwrap_or("2025-06-18");
        catalog::INITIALIZE.replace("$VERSION", version)
    }

    /// Sends a request to the client, related to `route`, and returns the raw text of its response.
    pub(super) async fn ask(&self, route: &Route, method: &str, params: &str) -> Option<String> {
        let id = self.next_id();
        let (sender, answer) = oneshot::channel();
        self.pending.lock().insert(comparable(&id), sender);
        let text = format!(
            r#"{{"method":{},"x-top":{{"n":1.0}},"params":{params},"id":{id},"jsonrpc":"2.0"}}"#,
            json_string(method)
        );
        self.outlet.send(route, &text).await;
        tokio::time::timeout(CLIENT_PATIENCE, answer)
            .await
            .ok()?
            .ok()
    }

    pub(super) async fn notify(&self, route: &Route, method: &str, params: &str) {
        let text = format!(
            r#"{{"x-top":null,"params":{params},"method":{},"jsonrpc":"2.0"}}"#,
            json_string(method)
        );
        self.outlet.send(route, &text).await;
    }

    /// Returns the signal for the cancellation of the request with this raw id.
    pub(super) fn cancel_of(&self, id: &str) -> Arc<Notify> {
        let mut cancels = self.cancels.lock();
        Arc::clone(cancels.entry(id.to_owned()).or_default())
    }

    /// Returns ids of four kinds in turn: beyond 2^53, escaped text, negative, a digit as text.
    fn next_id(&self) -> String {
        let n = self.asked.fetch_add(1, Ordering::Relaxed);
        match n % 4 {
            0 => format!("900719925474099{n:04}"),
            1 => format!(r#""s\u00e9rv-{n} \/""#),
            2 => format!("-{n}"),
            _ => format!(r#""{n}""#),
        }
    }
}

/// Returns an id as text that is equal for equal ids, because a string can be escaped in several
/// ways.
fn comparable(id: &str) -> String {
    serde_json::from_str::<String>(id).map_or_else(|_| id.to_owned(), |text| json_string(&text))
}

fn resource(params: &str) -> String {
    let uri = raw_at(params, &["uri"]).unwrap_or_else(|| "null".into());
    format!(
        r#"{{"contents":[{{"uri":{uri},"mimeType":"text/plain","text":"r","annotations":{{"priority":1.0}}}}]}}"#
    )
}

#[derive(Debug)]
pub(super) struct ReceivedRequest {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) params: String,
}

impl ReceivedRequest {
    fn read(envelope: &Envelope) -> Option<Self> {
        Some(Self {
            id: envelope.id()?.to_owned(),
            method: envelope.method()?,
            params: envelope.member("params").unwrap_or("null").to_owned(),
        })
    }
}

/// Returns a success response with unknown members, and with its members in an unusual order.
pub(super) fn result_of(id: &str, result: &str) -> String {
    format!(r#"{{"x-top":{{"n":1.0,"null":null}},"result":{result},"id":{id},"jsonrpc":"2.0"}}"#)
}

pub(super) fn error(id: &str, code: i64, message: &str, data: &str) -> String {
    format!(
        r#"{{"error":{{"data":{data},"message":{},"code":{code},"x-error":0.70}},"jsonrpc":"2.0","id":{id}}}"#,
        json_string(message)
    )
}
