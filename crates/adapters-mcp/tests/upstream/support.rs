//! A receiver that records the events of a connection, and an HTTP server that records its
//! requests.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::{UpstreamConfig, connector};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// The deadline of a single step, unless a test uses another one.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Event {
    Received(Message, Option<RequestId>),
    Unanswered(RequestId, UpstreamError),
    Lost(UpstreamError),
}

impl Event {
    /// Returns the text of a received message.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Received(message, _) => std::str::from_utf8(message.raw()).unwrap(),
            other => panic!("expected a message: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn related_request(&self) -> Option<&RequestId> {
        match self {
            Self::Received(_, related) => related.as_ref(),
            other => panic!("expected a message: {other:?}"),
        }
    }

    /// Returns the id and the error of an unanswered request.
    #[track_caller]
    pub(crate) fn unwrap_unanswered(self) -> (RequestId, UpstreamError) {
        match self {
            Self::Unanswered(request, error) => (request, error),
            other => panic!("expected an unanswered request: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn unwrap_lost(self) -> UpstreamError {
        match self {
            Self::Lost(error) => error,
            other => panic!("expected the loss of the connection: {other:?}"),
        }
    }
}

/// Records the events of one connection in order.
#[derive(Debug)]
struct Recorder(mpsc::UnboundedSender<Event>);

#[async_trait]
impl UpstreamEvents for Recorder {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let _ = self.0.send(Event::Received(message, related));
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        let _ = self.0.send(Event::Unanswered(request, error));
    }

    async fn on_lost(&self, error: UpstreamError) {
        let _ = self.0.send(Event::Lost(error));
    }
}

/// A connection and its events.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Arc<dyn UpstreamLink>,
    pub(crate) events: AsyncMutex<mpsc::UnboundedReceiver<Event>>,
}

impl Connection {
    pub(crate) async fn open(connector: &dyn UpstreamConnector) -> Result<Self, UpstreamError> {
        Self::open_for(connector, &Principal::local()).await
    }

    pub(crate) async fn open_for(
        connector: &dyn UpstreamConnector,
        principal: &Principal,
    ) -> Result<Self, UpstreamError> {
        let (sender, events) = mpsc::unbounded_channel();
        let link = connector
            .connect(principal, Arc::new(Recorder(sender)))
            .await?;
        Ok(Self {
            link,
            events: AsyncMutex::new(events),
        })
    }

    pub(crate) async fn send(&self, text: &str) -> Result<(), UpstreamError> {
        let sending = async {
            if let SendOutcome::UnderWay(exchange) = self.link.send(message(text)).await? {
                tokio::spawn(exchange.run);
                exchange.on_its_way.await;
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, sending)
            .await
            .expect("sending hangs")
    }

    pub(crate) async fn event(&self) -> Event {
        tokio::time::timeout(DEADLINE, self.events.lock().await.recv())
            .await
            .expect("no event in time")
            .expect("the connection lets go of its receiver only at the end")
    }

    /// Returns the remaining events until the connection drops its receiver.
    pub(crate) async fn rest(&self) -> Vec<Event> {
        let mut rest = Vec::new();
        let mut events = self.events.lock().await;
        while let Some(event) = tokio::time::timeout(DEADLINE, events.recv())
            .await
            .expect("the connection keeps its receiver")
        {
            rest.push(event);
        }
        rest
    }

    pub(crate) async fn close(&self) {
        tokio::time::timeout(DEADLINE, self.link.close())
            .await
            .expect("closing hangs");
    }
}

pub(crate) fn message(text: &str) -> Message {
    Message::from_text(text.to_owned()).unwrap()
}

pub(crate) fn number(id: u32) -> RequestId {
    RequestId::Number(id.to_string().into())
}

pub(crate) fn name() -> UpstreamName {
    UpstreamName::parse("test").unwrap()
}

/// Returns the connector of a URL with the default configuration, changed by `change`.
pub(crate) fn url_connector(
    url: &str,
    change: impl FnOnce(&mut UpstreamConfig),
) -> Arc<dyn UpstreamConnector> {
    let mut config = UpstreamConfig {
        url: Some(url.to_owned()),
        ..UpstreamConfig::default()
    };
    change(&mut config);
    connector(name(), &config, None, Path::new("/nowhere")).unwrap()
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl ReceivedRequest {
    /// Returns a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Returns whether this is a POST of a message with this method.
    pub(crate) fn is_post_of(&self, method: &str) -> bool {
        self.method == Method::POST && self.body.contains(&format!("\"method\":\"{method}\""))
    }

    /// Returns the JSON text of the id in the message.
    pub(crate) fn id(&self) -> String {
        message(&self.body)
            .single()
            .unwrap()
            .id()
            .unwrap()
            .to_json()
    }
}

type Script = dyn Fn(&ReceivedRequest) -> Response + Send + Sync;

/// An HTTP server that responds by a script.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct ScriptedServer {
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    script: Arc<Script>,
}

impl Server {
    pub(crate) async fn start(
        script: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let scripted = ScriptedServer {
            log: log.clone(),
            script: Arc::new(script),
        };
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(scripted);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, log, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    pub(crate) fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.log.lock().clone()
    }

    /// Waits for a request that fits.
    pub(crate) async fn wait_for_request(
        &self,
        fits: impl Fn(&ReceivedRequest) -> bool,
    ) -> ReceivedRequest {
        let found = async {
            loop {
                if let Some(asked) = self
                    .received_requests()
                    .into_iter()
                    .find(|asked| fits(asked))
                {
                    return asked;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, found)
            .await
            .expect("the server was not asked in time")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(scripted): State<ScriptedServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let asked = ReceivedRequest {
        method: parts.method,
        path: parts.uri.to_string(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    scripted.log.lock().push(asked.clone());
    (scripted.script)(&asked)
}

pub(crate) fn status(status: u16) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .body(Body::empty())
        .unwrap()
}

pub(crate) fn json(text: impl Into<String>) -> Response {
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(text.into()))
        .unwrap()
}

/// The end of an event stream after its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    End,
    Break,
    StayOpen,
}

pub(crate) fn events(text: impl Into<String>, then: StreamEnd) -> Response {
    let text = Bytes::from(text.into());
    let parts = stream::unfold(Some(text), move |text| async move {
        match (text, then) {
            (Some(text), _) => Some((Ok(text), None)),
            (None, StreamEnd::End) => None,
            (None, StreamEnd::Break) => {
                // The text is sent only when the body has to wait for more.
                tokio::task::yield_now().await;
                Some((Err(std::io::Error::other("broken")), None))
            }
            (None, StreamEnd::StayOpen) => std::future::pending().await,
        }
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(parts))
        .unwrap()
}

/// Responds to the handshake: session `s1`, revision 2025-06-18.
pub(crate) fn handshake(asked: &ReceivedRequest) -> Option<Response> {
    if asked.is_post_of("initialize") {
        let mut response = json(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-06-18","capabilities":{{}}}}}}"#,
            asked.id()
        ));
        response
            .headers_mut()
            .insert("mcp-session-id", "s1".parse().unwrap());
        return Some(response);
    }
    (asked.is_post_of("notifications/initialized") || asked.is_post_of("notifications/cancelled"))
        .then(|| status(202))
}

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Opens a connection and initialises its session.
pub(crate) async fn open_initialized(connector: &dyn UpstreamConnector) -> Connection {
    let connection = Connection::open(connector).await.unwrap();
    connection.send(INITIALIZE).await.unwrap();
    assert_eq!(connection.event().await.related_request(), Some(&number(0)));
    connection.send(INITIALIZED).await.unwrap();
    connection
}

pub(crate) fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{}}}}"#)
}

pub(crate) fn result(id: impl std::fmt::Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

/// The captured log of a thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures the log of this thread from this level on, until the guard is dropped.
    pub(crate) fn of_this_thread(
        level: tracing::Level,
    ) -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
