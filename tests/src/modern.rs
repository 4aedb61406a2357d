//! Texts of the messages of revision 2026-07-28, and the loop that resolves multi-round calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::RawClient;
use crate::envelope::{Envelope, json_string, raw_at, string_at};
use crate::inbox::ReceivedMessage;
use crate::messages;

/// The modern revision.
pub const REVISION: &str = "2026-07-28";

/// The capabilities of a client that supports everything.
pub const CAPABILITIES: &str = r#"{"roots":{},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"x.example/odd":{"n":1.0}}}"#;

/// The maximum of `input_required` rounds, after which a test stops.
const MAX_ROUNDS: usize = 8;

/// The `_meta` of requests: revision and capabilities of the client.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The revision.
    pub version: String,
    /// The capabilities as raw JSON.
    pub capabilities: String,
    /// More raw members, each with its key and without a comma around it.
    pub members: Vec<String>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            version: REVISION.into(),
            capabilities: CAPABILITIES.into(),
            members: Vec::new(),
        }
    }
}

impl Meta {
    /// Returns this `_meta` with other capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: &str) -> Self {
        capabilities.clone_into(&mut self.capabilities);
        self
    }

    /// Returns this `_meta` with one more raw member, for example `"progressToken":7`.
    #[must_use]
    pub fn and(mut self, member: &str) -> Self {
        self.members.push(member.to_owned());
        self
    }

    /// Returns this `_meta` with a log level.
    #[must_use]
    pub fn logging(self, level: &str) -> Self {
        self.and(&format!(
            r#""io.modelcontextprotocol/logLevel":{}"#,
            json_string(level)
        ))
    }

    /// Returns the raw `_meta` object.
    pub fn object(&self) -> String {
        let mut members = vec![
            format!(
                r#""io.modelcontextprotocol/protocolVersion":{}"#,
                json_string(&self.version)
            ),
            r#""io.modelcontextprotocol/clientInfo":{"name":"raw-client","title":"Raw \u2192 client","version":"1.0.0","x-unknown":[1.0,null]}"#.into(),
            format!(
                r#""io.modelcontextprotocol/clientCapabilities":{}"#,
                self.capabilities
            ),
        ];
        members.extend(self.members.iter().cloned());
        format!("{{{}}}", members.join(","))
    }

    /// Returns a request. The `params` are raw members without the braces, or empty.
    pub fn request(&self, id: &str, method: &str, params: &str) -> String {
        let comma = if params.is_empty() { "" } else { "," };
        let params = format!(r#"{{{params}{comma}"_meta":{}}}"#, self.object());
        messages::request_with(id, method, &params)
    }

    /// Returns a `tools/call` request with raw arguments.
    pub fn call(&self, id: &str, tool: &str, arguments: &str) -> String {
        let params = format!(r#""name":{},"arguments":{arguments}"#, json_string(tool));
        self.request(id, "tools/call", &params)
    }

    /// Returns a `subscriptions/listen` request with a raw filter.
    pub fn listen(&self, id: &str, filter: &str) -> String {
        let params = format!(r#""notifications":{filter}"#);
        self.request(id, "subscriptions/listen", &params)
    }
}

/// A client that repeats its requests with responses until the server needs no more input.
#[derive(Debug)]
pub struct MultiRoundClient<'a> {
    client: &'a RawClient,
    meta: Meta,
    made: AtomicUsize,
}

impl<'a> MultiRoundClient<'a> {
    /// Returns a resolver that sends its requests through `client`.
    pub fn new(client: &'a RawClient, meta: &Meta) -> Self {
        Self {
            client,
            meta: meta.clone(),
            made: AtomicUsize::new(0),
        }
    }

    /// Sends a request and repeats it until its result is not `input_required`.
    ///
    /// The function `answer` turns a raw input request into a raw result. Returns the response to
    /// each attempt.
    pub async fn resolve(
        &self,
        method: &str,
        params: &str,
        answer: impl Fn(&Envelope) -> String,
    ) -> Vec<ReceivedMessage> {
        let mut received: Vec<ReceivedMessage> = Vec::new();
        let mut addition = String::new();
        loop {
            let n = self.made.fetch_add(1, Ordering::Relaxed);
            let id = format!(r#""round {n}""#);
            let text = self
                .meta
                .request(&id, method, &format!("{params}{addition}"));
            let message = self.client.request(&text).await;
            let kind = string_at(&message.text, &["result", "resultType"]);
            received.push(message);
            if kind.as_deref() != Some("input_required") || received.len() > MAX_ROUNDS {
                return received;
            }
            let last = received.last().map_or("", |message| message.text.as_str());
            addition = responses(last, &answer);
        }
    }
}

/// Returns the members `inputResponses` and `requestState` of the repeated request.
fn responses(asked: &str, answer: &impl Fn(&Envelope) -> String) -> String {
    let requests = raw_at(asked, &["result", "inputRequests"]).unwrap_or_else(|| "{}".into());
    let requests: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&requests).unwrap_or_default();
    let responses: Vec<String> = requests
        .iter()
        .filter_map(|(key, request)| {
            let request = Envelope::one(&request.to_string())?;
            Some(format!("{}:{}", json_string(key), answer(&request)))
        })
        .collect();
    let mut addition = String::new();
    if !responses.is_empty() {
        addition = format!(r#","inputResponses":{{{}}}"#, responses.join(","));
    }
    if let Some(state) = raw_at(asked, &["result", "requestState"]) {
        addition = format!(r#"{addition},"requestState":{state}"#);
    }
    addition
}
