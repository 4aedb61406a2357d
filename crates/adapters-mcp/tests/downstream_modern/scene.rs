//! A running port, its upstream, and requests of modern clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use riglm_adapters_mcp::downstream::http::{Faces, HttpOptions, HttpServer};
use riglm_app::limits::Limits;
use riglm_app::proxy::{Proxy, ProxyParts, Upstream};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, ParamHeader, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::authenticator::Authenticator;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio_util::sync::CancellationToken;

/// The `_meta` members of every request.
pub(crate) const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tester","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}"#;

/// Returns a request with these members of `params` after its `_meta`.
pub(crate) fn request(id: &str, method: &str, params: &str) -> String {
    with_meta(id, method, "", params)
}

/// Returns a request with more entries of `_meta`, each with a comma before it.
pub(crate) fn with_meta(id: &str, method: &str, meta: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{{META}{meta}}}{comma}{params}}}}}"#
    )
}

/// Authenticates every client as the principal that it names.
#[derive(Debug)]
struct ByName;

impl Authenticator for ByName {
    fn authenticate(&self, key: Option<&str>) -> Option<Principal> {
        Some(key.map_or_else(Principal::local, Principal::from_name))
    }
}

type SentHeaders = Arc<Mutex<Vec<Option<Vec<ParamHeader>>>>>;

/// A scripted upstream that also records the headers of received messages.
#[derive(Debug)]
struct HeaderRecorder {
    upstream: Arc<ScriptedUpstream>,
    headers: SentHeaders,
}

#[derive(Debug)]
struct HeaderRecorderLink {
    link: Arc<dyn UpstreamLink>,
    headers: SentHeaders,
}

#[async_trait]
impl UpstreamConnector for HeaderRecorder {
    fn name(&self) -> &UpstreamName {
        self.upstream.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        Ok(Arc::new(HeaderRecorderLink {
            link: self.upstream.connect(principal, events).await?,
            headers: Arc::clone(&self.headers),
        }))
    }
}

#[async_trait]
impl UpstreamLink for HeaderRecorderLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let headers = message.param_headers().map(<[ParamHeader]>::to_vec);
        self.headers.lock().push(headers);
        self.link.send(message).await
    }

    fn has_streams(&self) -> bool {
        self.link.has_streams()
    }

    async fn close(&self) {
        self.link.close().await;
    }
}

/// A running port. The server ends when this is dropped.
pub(crate) struct Scene {
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) proxy: Arc<Proxy>,
    url: String,
    headers: SentHeaders,
    stop: CancellationToken,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Self {
        // An error means that another test of this process has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        upstream.with_streams();
        let headers = SentHeaders::default();
        let proxy = Arc::new(Proxy::new(ProxyParts {
            limits,
            ..testing::proxy_parts(vec![Upstream::new(Arc::new(HeaderRecorder {
                upstream: Arc::clone(&upstream),
                headers: Arc::clone(&headers),
            }))])
        }));
        let options = HttpOptions {
            address: ([127, 0, 0, 1], 0).into(),
            admission: Admission::new(&[], &[]),
            authenticator: Arc::new(ByName),
            profiles: BTreeSet::new(),
            faces: Faces::default(),
        };
        let server = HttpServer::bind(Arc::clone(&proxy), options).await.unwrap();
        let url = format!("http://{}/mcp", server.address());
        let stop = CancellationToken::new();
        tokio::spawn(server.serve(stop.clone()));
        Self {
            upstream,
            proxy,
            url,
            headers,
            stop,
        }
    }

    /// Returns an HTTP request without headers.
    pub(crate) fn bare(&self, method: Method) -> RequestBuilder {
        reqwest::Client::new().request(method, &self.url)
    }

    /// Returns a POST of this text with the general headers.
    pub(crate) fn post_text(&self, text: impl Into<String>) -> RequestBuilder {
        self.bare(Method::POST)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(text.into())
    }

    /// Returns a POST of a request with the headers of its method.
    pub(crate) fn post(&self, text: impl Into<String>) -> RequestBuilder {
        let text = text.into();
        let message = Message::from_text(text.clone()).unwrap();
        let envelope = message.single().unwrap();
        let method = envelope.method().unwrap().to_owned();
        let name = riglm_domain::mcp::header::name_of(&method, message.params(envelope))
            .map(|name| riglm_domain::mcp::header::encode_value(&name).into_owned());
        let post = self
            .post_text(text)
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", method);
        match name {
            Some(name) => post.header("Mcp-Name", name),
            None => post,
        }
    }

    /// Posts a request in a separate task and waits until the upstream has received it. Returns the
    /// pending response and the forwarded text.
    pub(crate) async fn begin(&self, post: RequestBuilder) -> (PendingResponse, String) {
        let n_sent = self.upstream.sent_messages().len();
        let response = tokio::spawn(async move { read(post).await });
        self.until(|upstream| upstream.sent_messages().len() > n_sent)
            .await;
        (
            PendingResponse(response),
            self.upstream.sent_messages()[n_sent].1.clone(),
        )
    }

    /// Waits until the upstream fulfils a condition.
    pub(crate) async fn until(&self, is_reached: impl Fn(&ScriptedUpstream) -> bool) {
        let reached = async {
            while !is_reached(&self.upstream) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within(reached).await;
    }

    /// Sends a message of the upstream on the stream of a request, by its id in JSON.
    pub(crate) async fn say(&self, text: &str, related: &str) {
        self.upstream
            .send_to_client(text, RequestId::from_json(related))
            .await;
    }

    /// Returns the texts that were sent to the upstream.
    pub(crate) fn sent_texts(&self) -> Vec<String> {
        let sent = self.upstream.sent_messages();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the headers of the last message to the upstream.
    pub(crate) fn last_headers(&self) -> Option<Vec<ParamHeader>> {
        let headers = self.headers.lock();
        headers.last().cloned().flatten()
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl CompleteResponse {
    /// Returns a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the body without comments, which are sent while a response takes long.
    pub(crate) fn events(&self) -> String {
        self.body.replace(":\n\n", "")
    }

    /// Returns the code and the id of the error in the body.
    pub(crate) fn error(&self) -> (i64, String) {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        (
            body["error"]["code"].as_i64().unwrap(),
            body["id"].to_string(),
        )
    }
}

pub(crate) struct PendingResponse(tokio::task::JoinHandle<CompleteResponse>);

impl PendingResponse {
    pub(crate) async fn end(self) -> CompleteResponse {
        within(self.0).await.unwrap()
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

/// Sends a request and reads the complete response.
pub(crate) async fn read(request: RequestBuilder) -> CompleteResponse {
    let reading = async {
        let response = request.send().await.unwrap();
        CompleteResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.text().await.unwrap(),
        }
    };
    within(reading).await
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap()
}
