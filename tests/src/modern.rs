//! Texts of the messages of revision 2026-07-28, and the loop that answers what a server asks.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::RawClient;
use crate::envelope::{Envelope, quoted, raw_at, string_at};
use crate::inbox::Received;
use crate::messages;

/// The revision without sessions.
pub const REVISION: &str = "2026-07-28";

/// The capabilities of a client that can do everything.
pub const CAPABILITIES: &str = r#"{"roots":{},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"x.example/odd":{"n":1.0}}}"#;

/// How often a server may ask before a test gives up.
const MOST_ROUNDS: usize = 8;

/// What requests say of their client.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The revision.
    pub version: String,
    /// The capabilities, raw.
    pub capabilities: String,
    /// Further raw members, each with its key, without a comma around them.
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
    /// Returns what is said with other capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: &str) -> Self {
        capabilities.clone_into(&mut self.capabilities);
        self
    }

    /// Returns what is said with one more raw member, for example `"progressToken":7`.
    #[must_use]
    pub fn and(mut self, member: &str) -> Self {
        self.members.push(member.to_owned());
        self
    }

    /// Returns what is said with a log level.
    #[must_use]
    pub fn logging(self, level: &str) -> Self {
        self.and(&format!(
            r#""io.modelcontextprotocol/logLevel":{}"#,
            quoted(level)
        ))
    }

    /// Returns the raw `_meta` object.
    pub fn object(&self) -> String {
        let mut members = vec![
            format!(
                r#""io.modelcontextprotocol/protocolVersion":{}"#,
                quoted(&self.version)
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

    /// Returns a request; `params` are raw members without the braces, or nothing.
    pub fn request(&self, id: &str, method: &str, params: &str) -> String {
        let comma = if params.is_empty() { "" } else { "," };
        let params = format!(r#"{{{params}{comma}"_meta":{}}}"#, self.object());
        messages::request_with(id, method, &params)
    }

    /// Returns a call of a tool with these raw arguments.
    pub fn call(&self, id: &str, tool: &str, arguments: &str) -> String {
        let params = format!(r#""name":{},"arguments":{arguments}"#, quoted(tool));
        self.request(id, "tools/call", &params)
    }

    /// Returns a subscription with this raw filter.
    pub fn listen(&self, id: &str, filter: &str) -> String {
        let params = format!(r#""notifications":{filter}"#);
        self.request(id, "subscriptions/listen", &params)
    }
}

/// A client that repeats its requests until the server has asked everything.
#[derive(Debug)]
pub struct Rounds<'a> {
    client: &'a RawClient,
    meta: Meta,
    made: AtomicUsize,
}

impl<'a> Rounds<'a> {
    /// Returns one that speaks through `client`.
    pub fn new(client: &'a RawClient, meta: &Meta) -> Self {
        Self {
            client,
            meta: meta.clone(),
            made: AtomicUsize::new(0),
        }
    }

    /// Sends a request, answers what the server asks by `answer` (from raw request to raw result),
    /// and returns the messages that answered each attempt; the last one asks nothing.
    pub async fn resolve(
        &self,
        method: &str,
        params: &str,
        answer: impl Fn(&Envelope) -> String,
    ) -> Vec<Received> {
        let mut received: Vec<Received> = Vec::new();
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
            if kind.as_deref() != Some("input_required") || received.len() > MOST_ROUNDS {
                return received;
            }
            let last = received.last().map_or("", |message| message.text.as_str());
            addition = responses(last, &answer);
        }
    }
}

/// Returns the members that a repeated request has more than the first one.
fn responses(asked: &str, answer: &impl Fn(&Envelope) -> String) -> String {
    let requests = raw_at(asked, &["result", "inputRequests"]).unwrap_or_else(|| "{}".into());
    let requests: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&requests).unwrap_or_default();
    let responses: Vec<String> = requests
        .iter()
        .filter_map(|(key, request)| {
            let request = Envelope::one(&request.to_string())?;
            Some(format!("{}:{}", quoted(key), answer(&request)))
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
