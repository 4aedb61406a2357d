//! A link over a scripted legacy server, and what it reports.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use riglm_app::bridge::{BridgeOptions, ModernClientLink};
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamEvents, UpstreamLink};
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"x":1.0},"serverInfo":{"name":"s","version":"1"},"instructions":"be\u0020kind"}"#;
pub(crate) const INFO: &str = r#"{"name":"s","version":"1"}"#;
/// The capabilities of a client that can be asked for everything.
pub(crate) const ALL: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}"#;

/// What a link reported.
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
    pub(crate) fn related(&self) -> String {
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
        self.reports.lock().unwrap().push_back(report);
        self.came.notify_one();
    }
}

#[async_trait]
impl UpstreamEvents for Client {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.take(Report::Received(text, related));
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        self.take(Report::Unanswered(request, error));
    }

    async fn lost(&self, _error: UpstreamError) {
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
    /// Returns the scene of a client that can be asked for everything.
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

    /// Returns the scene of a server that says nothing, not even in the handshake.
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
            Principal::named(principal),
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

    /// Sends a request with these members of `params`, which may be none, and further metadata.
    /// Returns when it is on its way.
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

    /// Calls the tool `t`.
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
        if let Sent::UnderWay(exchange) = self.link.send(message).await? {
            exchange.on_its_way.await;
        }
        Ok(())
    }

    /// Says something on the newest connection.
    pub(crate) async fn say(&self, text: &str) {
        self.upstream.say(text, None).await;
    }

    /// Says something on behalf of a request, by the id that the server knows.
    pub(crate) async fn say_for(&self, id: &str, text: &str) {
        let related = RequestId::Text(id.into());
        self.upstream.say(text, Some(related)).await;
    }

    /// Makes the server ask something.
    pub(crate) async fn ask(&self, id: &str, method: &str, params: &str) {
        self.say(&asking(id, method, params)).await;
    }

    /// Makes the server answer a request, by the id it knows.
    pub(crate) async fn answer(&self, id: &str, member: &str) {
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":"{id}",{member}}}"#))
            .await;
    }

    /// Returns the next report; waits for it.
    pub(crate) async fn next(&self) -> Report {
        let next = async {
            loop {
                let report = self.client.reports.lock().unwrap().pop_front();
                if let Some(report) = report {
                    return report;
                }
                self.client.came.notified().await;
            }
        };
        let limit = Duration::from_hours(1);
        tokio::time::timeout(limit, next).await.unwrap()
    }

    /// Returns the next report, which asks for input: its result and the state.
    pub(crate) async fn asked(&self) -> (Value, String) {
        let report = self.next().await.json();
        let result = report["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{report}");
        let state = result["requestState"].as_str().unwrap().to_owned();
        (result, state)
    }

    /// Lets everything settle that needs no more than this time, and asserts that nothing was
    /// reported.
    pub(crate) async fn nothing_within(&self, time: Duration) {
        tokio::time::sleep(time).await;
        let reports = self.client.reports.lock().unwrap();
        assert!(reports.is_empty(), "{reports:?}");
    }

    /// Returns what was sent to the server, of any connection.
    pub(crate) fn sent(&self) -> Vec<String> {
        let sent = self.upstream.sent();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns what was sent last.
    pub(crate) fn last(&self) -> String {
        self.sent().pop().unwrap()
    }

    /// Waits until a message with this text was sent, and returns it.
    pub(crate) async fn sees(&self, text: &str) -> String {
        let seen = async {
            loop {
                let found = self.sent().into_iter().find(|sent| sent.contains(text));
                if let Some(found) = found {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_mins(1);
        let seen = tokio::time::timeout(limit, seen).await;
        seen.unwrap_or_else(|_| panic!("{text} is not among {:?}", self.sent()))
    }

    /// Returns the id under which the server knows the newest request with this method.
    pub(crate) fn legacy_id(&self, method: &str) -> String {
        let sent = self.sent();
        let requests = sent.iter().rev();
        let mut requests = requests.map(|text| serde_json::from_str::<Value>(text).unwrap());
        let request = requests.find(|request| request["method"] == method);
        request.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// Returns how often a request with this method was sent.
    pub(crate) fn n_sent(&self, method: &str) -> usize {
        let method = format!(r#""method":"{method}""#);
        let sent = self.sent();
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
