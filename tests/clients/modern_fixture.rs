//! The server that the conformance suite asks for, of revision 2026-07-28, on the Rust SDK: its
//! tools, resources and prompts by name. What the protocol asks of every server (headers, metadata,
//! discovery, subscriptions) is the SDK's own.
#![expect(deprecated, reason = "logging is part of the revision")]

mod content;
mod questions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::TryStreamExt;
use riglm_tests::sse::Decoder;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData as Refusal, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use url::Url;

use questions::Step;

/// How many changes a slow subscription may be behind.
const CHANGES: usize = 16;

/// The fixture while it is served; it ends when this is dropped.
pub(crate) struct Fixture {
    pub(crate) url: Url,
    serving: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// How the fixture separates the messages of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As server-sent events.
    Events,
    /// As lines of a body of JSON.
    Json,
}

/// Serves the fixture on a free port of the loopback interface.
pub(crate) async fn start() -> Fixture {
    start_with(Framing::Events).await
}

/// Like [`start`], with another way to separate messages.
pub(crate) async fn start_with(framing: Framing) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let server = Conformance::default();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*"]);
    let service: StreamableHttpService<Conformance, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
    let mut router = Router::new().nest_service("/mcp", service);
    if framing == Framing::Json {
        router = router.layer(axum::middleware::map_response(in_lines));
    }
    let serving = tokio::spawn(async move {
        axum::serve(listener, router)
            .await
            .expect("a bound listener accepts");
    });
    let url = format!("http://{address}/mcp");
    Fixture {
        url: url.parse().expect("the address is a URL"),
        serving,
    }
}

/// Returns a stream of events as lines of JSON, each as it comes, and anything else as it is.
async fn in_lines(response: Response) -> Response {
    let content_type = response.headers().get(CONTENT_TYPE);
    if content_type.is_none_or(|value| value != "text/event-stream") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts
        .headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut decoder = Decoder::default();
    let lines = body.into_data_stream().map_ok(move |piece| {
        let events = decoder.feed(&piece).into_iter();
        let lines = events.filter(|event| !event.data.is_empty());
        lines.map(|event| event.data + "\n").collect::<String>()
    });
    Response::from_parts(parts, Body::from_stream(lines))
}

/// What a subscription is told.
#[derive(Clone, Copy, Debug)]
enum Change {
    Tools,
    Prompts,
}

#[derive(Clone, Debug)]
struct Conformance {
    changes: broadcast::Sender<Change>,
}

impl Default for Conformance {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES),
        }
    }
}

/// Reads a literal into the result of the SDK that it stands for, which is complete.
fn typed<T: DeserializeOwned>(mut literal: Value) -> Result<T, Refusal> {
    literal["resultType"] = "complete".into();
    serde_json::from_value(literal)
        .map_err(|error| Refusal::internal_error(error.to_string(), None))
}

fn called(literal: Value) -> Result<CallToolResponse, Refusal> {
    Ok(typed::<CallToolResult>(literal)?.into())
}

impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = serde_json::from_value(json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "logging": {},
            "completions": {},
        }))
        .expect("the capabilities are those of the protocol");
        let mut info = ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("conformance-fixture", "1.0.0"));
        info.protocol_version = ProtocolVersion::V_2026_07_28;
        info
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        std::borrow::Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: Vec<Tool> = serde_json::from_value(content::tools()).ok()?;
        tools.into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        typed(json!({"tools": content::tools(), "ttlMs": 60_000, "cacheScope": "public"}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let capabilities = context.client_capabilities();
        match questions::step(
            name,
            request.request_state.as_deref(),
            request.input_responses.as_ref(),
            capabilities.as_ref(),
        ) {
            Step::None => {}
            Step::Ask(question) => return Ok(question.into()),
            Step::Done(text) => return called(content::says(&text)),
            Step::Refuse(refusal) => return Err(refusal),
        }
        match name {
            "test_tool_with_progress" => progress(&context).await,
            "test_logging_tool" | "test_tool_with_logging" => log(&context).await,
            "test_trigger_tool_change" => self.change(Change::Tools),
            "test_trigger_prompt_change" => self.change(Change::Prompts),
            _ => {}
        }
        match content::result(name, request.arguments.as_ref()) {
            Some(result) => called(result),
            None => Err(Refusal::invalid_params(
                format!("no tool is called {name}"),
                None,
            )),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        typed(json!({"resources": content::resources(), "ttlMs": 0, "cacheScope": "private"}))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        typed(json!({"resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json",
        }], "ttlMs": 0, "cacheScope": "private"}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(read) = content::resource(&request.uri) else {
            return Err(Refusal::new(
                ErrorCode::INVALID_PARAMS,
                "no such resource",
                Some(json!({"uri": request.uri})),
            ));
        };
        let read = json!({"contents": [read], "ttlMs": 0, "cacheScope": "private"});
        Ok(ReadResourceResponse::Complete(typed(read)?))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        typed(json!({"prompts": content::prompts(), "ttlMs": 0, "cacheScope": "private"}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let capabilities = context.client_capabilities();
        match questions::step(
            &request.name,
            request.request_state.as_deref(),
            request.input_responses.as_ref(),
            capabilities.as_ref(),
        ) {
            Step::None => {}
            Step::Ask(question) => return Ok(GetPromptResponse::InputRequired(question)),
            Step::Done(text) => {
                let prompt = content::prompt_saying(&text);
                return Ok(GetPromptResponse::Complete(typed(prompt)?));
            }
            Step::Refuse(refusal) => return Err(refusal),
        }
        match content::prompt(&request.name, request.arguments.as_ref()) {
            Some(prompt) => Ok(GetPromptResponse::Complete(typed(prompt)?)),
            None => Err(Refusal::invalid_params("no such prompt", None)),
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        typed(json!({"completion": {"values": ["paris", "park"], "total": 2, "hasMore": false}}))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // What was not asked for is refused by the sink, and that is all there is to it.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }
}

impl Conformance {
    fn change(&self, change: Change) {
        // Without subscriptions there is nobody to tell.
        let _ = self.changes.send(change);
    }
}

async fn progress(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    for step in [0.0, 50.0, 100.0] {
        let params = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
        // A client that is gone needs no progress.
        let _ = context.peer.notify_progress(params).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

async fn log(context: &RequestContext<RoleServer>) {
    let Some(level) = context.meta.log_level() else {
        return;
    };
    let params = LoggingMessageNotificationParam::new(level, json!("a line of the log"));
    // A client that is gone needs no log.
    let _ = context.peer.notify_logging_message(params).await;
}
