//! Test scene: a link over a scripted legacy server, and its reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, ModernClientLink};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamEvents, UpstreamLink};
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"x":1.0},"serverInfo":{"name":"s","version":"1"},"instructions":"be\u0020kind"}"#;
pub(crate) const INFO: &str = r#"{"name":"s","version":"1"}"#;
/// The capabilities of a client that supports all requests of a server.
pub(crate) const ALL: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}"#;

/// A report of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Received(String, Option<RequestId>),
    Unanswered(RequestId, UpstreamError),
    Lost,
}

impl Report {
    /// Returns the message that was reported.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Received(text, _) => text,
            other => panic!("no message was reported: {other:?}"),
        }
    }

    /// Returns the request that the message belongs to.
    pub(crate) fn related_id(&self) -> String {
        match self {
            Self::Received(_, Some(id)) => id.to_json(),
            other => panic!("no related message was reported: {other:?}"),
        }
    }
}

#[derive(Debug, Default)]
struct Client {
    reports: Mutex<VecDeque<Report>>,
    came: Notify,
}

impl Client {
    fn take(&self, report: Report) {
        self.reports.lock().push_back(report);
        self.came.notify_one();
    }
}

#[async_trait]
impl UpstreamEvents for Client {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.take(Report::Received(text, related));
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.take(Report::Unanswered(request, error));
    }

    async fn on_lost(&self, _error: UpstreamError) {
        self.take(Report::Lost);
    }
}

/// A link over a scripted server.
pub(crate) struct Scene {
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) link: Arc<ModernClientLink>,
    client: Arc<Client>,
    capabilities: &'static str,
}

impl Scene {
    /// Returns the scene of a client with all capabilities.
    pub(crate) fn new() -> Self {
        Self::with(ALL, |_| {})
    }

    /// Returns the scene of a client with these capabilities and options.
    pub(crate) fn with(capabilities: &'static str, set: impl Fn(&mut BridgeOptions)) -> Self {
        let upstream = silent_server();
        upstream.reply_to("initialize", WELCOME);
        upstream.reply_to("logging/setLevel", r#""result":{}"#);
        Self::over(upstream, "me", capabilities, set)
    }

    /// Returns the scene of a server that never answers, not even the handshake.
    pub(crate) fn of_silent_server(set: impl Fn(&mut BridgeOptions)) -> Self {
        Self::over(silent_server(), "me", ALL, set)
    }

    /// Returns the scene of another client of the same server.
    pub(crate) fn of_principal(&self, principal: &str) -> Self {
        Self::over(Arc::clone(&self.upstream), principal, ALL, |_| {})
    }

    fn over(
        upstream: Arc<ScriptedUpstream>,
        principal: &str,
        capabilities: &'static str,
        set: impl Fn(&mut BridgeOptions),
    ) -> Self {
        let client = Arc::new(Client::default());
        let mut options = BridgeOptions::new([7; 32]);
        set(&mut options);
        let link = ModernClientLink::new(
            upstream.clone(),
            Principal::from_name(principal),
            client.clone(),
            options,
        );
        Self {
            upstream,
            link,
            client,
            capabilities,
        }
    }

    /// Sends a request with these members of `params`, which may be empty, and further metadata.
    /// Returns after it was sent.
    pub(crate) async fn request(&self, id: &str, method: &str, params: &str, meta: &str) {
        self.request_as(self.capabilities, id, method, params, meta)
            .await;
    }

    pub(crate) async fn request_as(
        &self,
        capabilities: &str,
        id: &str,
        method: &str,
        params: &str,
        meta: &str,
    ) {
        let text = request(capabilities, id, method, params, meta);
        self.send(&text).await.unwrap();
    }

    pub(crate) async fn call(&self, id: &str) {
        self.request(id, "tools/call", r#""name":"t","arguments":{"a":1.0}"#, "")
            .await;
    }

    /// Calls the tool `t` again with these answers.
    pub(crate) async fn retry(&self, id: &str, state: &str, responses: &str) {
        let state = Value::from(state);
        let params = format!(
            r#""name":"t","arguments":{{"a":1.0}},"requestState":{state},"inputResponses":{responses}"#
        );
        self.request(id, "tools/call", &params, "").await;
    }

    pub(crate) async fn cancel(&self, id: &str) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"no"}}}}"#
        );
        self.send(&text).await.unwrap();
    }

    pub(crate) async fn send(&self, text: &str) -> Result<(), UpstreamError> {
        let message = Message::from_text(text.into()).unwrap();
        if let SendOutcome::UnderWay(exchange) = self.link.send(message).await? {
            exchange.on_its_way.await;
        }
        Ok(())
    }

    /// Sends a message of the server on the newest connection.
    pub(crate) async fn say(&self, text: &str) {
        self.upstream.send_to_client(text, None).await;
    }

    /// Sends a message of the server that belongs to a request, by the id at the server.
    pub(crate) async fn say_for(&self, id: &str, text: &str) {
        let related = RequestId::Text(id.into());
        self.upstream.send_to_client(text, Some(related)).await;
    }

    /// Sends a request of the server.
    pub(crate) async fn ask(&self, id: &str, method: &str, params: &str) {
        self.say(&asking(id, method, params)).await;
    }

    /// Sends the answer of the server to a request, by the id at the server.
    pub(crate) async fn answer(&self, id: &str, member: &str) {
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":"{id}",{member}}}"#))
            .await;
    }

    /// Waits for the next report.
    pub(crate) async fn next(&self) -> Report {
        let next = async {
            loop {
                let report = self.client.reports.lock().pop_front();
                if let Some(report) = report {
                    return report;
                }
                self.client.came.notified().await;
            }
        };
        let limit = Duration::from_hours(1);
        tokio::time::timeout(limit, next).await.unwrap()
    }

    /// Returns the next report, which requests input: its result and the state.
    pub(crate) async fn input_request(&self) -> (Value, String) {
        let report = self.next().await.json();
        let result = report["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{report}");
        let state = result["requestState"].as_str().unwrap().to_owned();
        (result, state)
    }

    /// Runs all tasks that need no more than `time`, and asserts that there is no report.
    pub(crate) async fn nothing_within(&self, time: Duration) {
        tokio::time::sleep(time).await;
        let reports = self.client.reports.lock();
        assert!(reports.is_empty(), "{reports:?}");
    }

    /// Returns the messages to the server on all connections.
    pub(crate) fn sent_messages(&self) -> Vec<String> {
        let sent = self.upstream.sent_messages();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the last message to the server.
    pub(crate) fn last(&self) -> String {
        self.sent_messages().pop().unwrap()
    }

    /// Waits until a message with this text was sent, and returns it.
    pub(crate) async fn sees(&self, text: &str) -> String {
        let seen = async {
            loop {
                let found = self
                    .sent_messages()
                    .into_iter()
                    .find(|sent| sent.contains(text));
                if let Some(found) = found {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_mins(1);
        let seen = tokio::time::timeout(limit, seen).await;
        seen.unwrap_or_else(|_| panic!("{text} is not among {:?}", self.sent_messages()))
    }

    /// Returns the id at the server of the newest request with this method.
    pub(crate) fn legacy_id(&self, method: &str) -> String {
        let sent = self.sent_messages();
        let requests = sent.iter().rev();
        let mut requests = requests.map(|text| serde_json::from_str::<Value>(text).unwrap());
        let request = requests.find(|request| request["method"] == method);
        request.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// Returns the number of requests with this method to the server.
    pub(crate) fn n_sent(&self, method: &str) -> usize {
        let method = format!(r#""method":"{method}""#);
        let sent = self.sent_messages();
        sent.iter().filter(|text| text.contains(&method)).count()
    }
}

fn silent_server() -> Arc<ScriptedUpstream> {
    Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()))
}

pub(crate) fn request(
    capabilities: &str,
    id: &str,
    method: &str,
    params: &str,
    meta: &str,
) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"c","version":"2"}},"io.modelcontextprotocol/clientCapabilities":{capabilities}{meta}}}}}}}"#
    )
}

/// Returns a request of the server.
pub(crate) fn asking(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}
