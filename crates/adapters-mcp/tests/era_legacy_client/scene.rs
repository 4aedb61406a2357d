//! Test scene: the link of a client through the bridge to a scripted upstream.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{
    Exchange, SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

pub(crate) const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"tester","version":"7"}}}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
pub(crate) const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
pub(crate) const REFUSED: &str = r#""error":{"code":-32601,"message":"Method not found"}"#;
pub(crate) const DISCOVERED: &str = r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"instructions":"be kind","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"1"}}}"#;
/// The metadata that the bridge adds to each request of the client from [`HELLO`].
pub(crate) const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"tester","version":"7"}"#;

/// An event at the side of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Received(String, Option<RequestId>),
    Unanswered(RequestId, UpstreamError),
    Lost(UpstreamError),
}

#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<Event>>);

impl Events {
    fn push(&self, event: Event) {
        self.0.lock().push(event);
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl UpstreamEvents for Events {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8(message.raw().to_vec()).unwrap();
        self.push(Event::Received(text, related));
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.push(Event::Unanswered(request, error));
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.push(Event::Lost(error));
    }
}

/// Makes every request of a scripted upstream an exchange that must be polled, as with HTTP.
#[derive(Debug)]
pub(crate) struct Exchanging(pub(crate) Arc<ScriptedUpstream>);

#[derive(Debug)]
struct ExchangingLink(Arc<dyn UpstreamLink>);

#[async_trait]
impl UpstreamConnector for Exchanging {
    fn name(&self) -> &UpstreamName {
        self.0.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let link = self.0.connect(principal, events).await?;
        Ok(Arc::new(ExchangingLink(link)))
    }
}

#[async_trait]
impl UpstreamLink for ExchangingLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if message.request_ids().next().is_none() {
            return self.0.send(message).await;
        }
        let link = Arc::clone(&self.0);
        Ok(SendOutcome::UnderWay(Exchange {
            run: Box::pin(async move {
                let _ = link.send(message).await;
            }),
            on_its_way: Box::pin(async {}),
        }))
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// One client in front of one upstream.
pub(crate) struct Scene {
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) connector: Arc<EraConnector>,
    pub(crate) events: Arc<Events>,
    pub(crate) link: Arc<dyn UpstreamLink>,
}

pub(crate) fn scripted_upstream() -> Arc<ScriptedUpstream> {
    Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()))
}

impl Scene {
    /// Returns a client of an upstream with these answers.
    pub(crate) async fn new(replies: &[(&str, &str)]) -> Self {
        let upstream = scripted_upstream();
        Self::over(upstream.clone(), upstream, replies).await
    }

    pub(crate) async fn over(
        upstream: Arc<ScriptedUpstream>,
        inner: Arc<dyn UpstreamConnector>,
        replies: &[(&str, &str)],
    ) -> Self {
        for (method, reply) in replies {
            upstream.reply_to(method, reply);
        }
        let connector = Arc::new(EraConnector::new(inner, BridgeOptions::new([0; 32])));
        let (link, events) = connect(&connector).await;
        Self {
            upstream,
            connector,
            events,
            link,
        }
    }

    /// Returns a legacy client after the handshake with a modern server.
    pub(crate) async fn with_bridge() -> Self {
        let scene = Self::new(&[("initialize", REFUSED), ("server/discover", DISCOVERED)]).await;
        scene.send(HELLO).await;
        scene
            .until(|scene| !scene.received_messages().is_empty())
            .await;
        scene
    }

    /// Connects another client to the same upstream.
    pub(crate) async fn reconnect(&mut self) {
        (self.link, self.events) = connect(&self.connector).await;
    }

    pub(crate) async fn try_send(&self, text: &str) -> Result<(), UpstreamError> {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        if let SendOutcome::UnderWay(exchange) = self.link.send(message).await? {
            exchange.run.await;
        }
        Ok(())
    }

    pub(crate) async fn send(&self, text: &str) {
        self.try_send(text).await.unwrap();
    }

    /// Sends a message of the upstream that belongs to no request.
    pub(crate) async fn say(&self, text: &str) {
        self.upstream.send_to_client(text, None).await;
    }

    /// Waits in virtual time until `holds` returns true.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let events = self.events.all();
        unreachable!("it never held: {:#?} {events:#?}", self.sent_messages());
    }

    /// Runs all tasks until everything without a delay has happened.
    pub(crate) async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Returns the messages to the upstream on all connections.
    pub(crate) fn sent_messages(&self) -> Vec<String> {
        let sent = self.upstream.sent_messages();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    pub(crate) fn last_sent(&self) -> String {
        self.sent_messages().pop().unwrap()
    }

    /// Returns the number of messages with this method to the upstream.
    pub(crate) fn n_sent(&self, method: &str) -> usize {
        let needle = format!(r#""method":"{method}""#);
        let is_it = |text: &&String| text.contains(&needle);
        self.sent_messages().iter().filter(is_it).count()
    }

    /// Returns the texts that reached the client.
    pub(crate) fn received_messages(&self) -> Vec<String> {
        let text = |event| match event {
            Event::Received(text, _) => Some(text),
            _ => None,
        };
        self.events.all().into_iter().filter_map(text).collect()
    }

    pub(crate) fn last_told(&self) -> String {
        self.received_messages().pop().unwrap()
    }

    pub(crate) fn last_event(&self) -> Event {
        self.events.all().pop().unwrap()
    }
}

async fn connect(connector: &EraConnector) -> (Arc<dyn UpstreamLink>, Arc<Events>) {
    let events = Arc::new(Events::default());
    let link = connector
        .connect(&Principal::local(), events.clone())
        .await
        .unwrap();
    (link, events)
}

pub(crate) fn number(id: u32) -> RequestId {
    RequestId::Number(id.to_string().into())
}

pub(crate) fn text(id: &str) -> RequestId {
    RequestId::Text(id.into())
}

pub(crate) fn modern(id: u32, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"progressToken":7,{META}}}}}}}"#
    )
}

pub(crate) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
