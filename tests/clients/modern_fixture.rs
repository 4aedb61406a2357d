//! The server that the conformance suite requires for revision 2026-07-28, based on the Rust SDK.
//! It contains the tools, resources and prompts. The SDK itself implements the general parts of the
//! protocol: headers, metadata, discovery, subscriptions.
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

use questions::RoundStep;

/// The capacity of the change queue of a subscription.
const CHANGES: usize = 16;

/// The running fixture. It ends when this is dropped.
pub(crate) struct Fixture {
    pub(crate) url: Url,
    serving: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The format of a response with several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// Lines of a JSON body.
    Json,
}

/// Serves the fixture on a free port of the loopback interface.
pub(crate) async fn start() -> Fixture {
    start_with(Framing::Events).await
}

/// Serves the fixture with a given format of responses.
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
        router = router.layer(axum::middleware::map_response(events_to_lines));
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

/// Converts a stream of events to lines of JSON, one at a time. Other responses are returned
/// unchanged.
async fn events_to_lines(response: Response) -> Response {
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

#[derive(Clone, Copy, Debug)]
enum ListChange {
    Tools,
    Prompts,
}

#[derive(Clone, Debug)]
struct Conformance {
    changes: broadcast::Sender<ListChange>,
}

impl Default for Conformance {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES),
        }
    }
}

/// Converts a literal to a complete result of the SDK.
fn complete_result<T: DeserializeOwned>(mut literal: Value) -> Result<T, Refusal> {
    literal["resultType"] = "complete".into();
    serde_json::from_value(literal)
        .map_err(|error| Refusal::internal_error(error.to_string(), None))
}

fn call_response(literal: Value) -> Result<CallToolResponse, Refusal> {
    Ok(complete_result::<CallToolResult>(literal)?.into())
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
        complete_result(json!({"tools": content::tools(), "ttlMs": 60_000, "cacheScope": "public"}))
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
            RoundStep::None => {}
            RoundStep::Ask(question) => return Ok(question.into()),
            RoundStep::Done(text) => return call_response(content::text_result(&text)),
            RoundStep::Refuse(refusal) => return Err(refusal),
        }
        match name {
            "test_tool_with_progress" => progress(&context).await,
            "test_logging_tool" | "test_tool_with_logging" => log(&context).await,
            "test_trigger_tool_change" => self.change(ListChange::Tools),
            "test_trigger_prompt_change" => self.change(ListChange::Prompts),
            _ => {}
        }
        match content::result(name, request.arguments.as_ref()) {
            Some(result) => call_response(result),
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
        complete_result(
            json!({"resources": content::resources(), "ttlMs": 0, "cacheScope": "private"}),
        )
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        complete_result(json!({"resourceTemplates": [{
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
        Ok(ReadResourceResponse::Complete(complete_result(read)?))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        complete_result(json!({"prompts": content::prompts(), "ttlMs": 0, "cacheScope": "private"}))
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
            RoundStep::None => {}
            RoundStep::Ask(question) => return Ok(GetPromptResponse::InputRequired(question)),
            RoundStep::Done(text) => {
                let prompt = content::prompt_saying(&text);
                return Ok(GetPromptResponse::Complete(complete_result(prompt)?));
            }
            RoundStep::Refuse(refusal) => return Err(refusal),
        }
        match content::prompt(&request.name, request.arguments.as_ref()) {
            Some(prompt) => Ok(GetPromptResponse::Complete(complete_result(prompt)?)),
            None => Err(Refusal::invalid_params("no such prompt", None)),
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        complete_result(
            json!({"completion": {"values": ["paris", "park"], "total": 2, "hasMore": false}}),
        )
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
            // The sink refuses notifications outside the filter, which is not an error here.
            let _ = match change {
                Ok(ListChange::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(ListChange::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }
}

impl Conformance {
    fn change(&self, change: ListChange) {
        // An error only means that there are no subscriptions.
        let _ = self.changes.send(change);
    }
}

async fn progress(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    for step in [0.0, 50.0, 100.0] {
        let params = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
        // The client may have disconnected.
        let _ = context.peer.notify_progress(params).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

async fn log(context: &RequestContext<RoleServer>) {
    let Some(level) = context.meta.log_level() else {
        return;
    };
    let params = LoggingMessageNotificationParam::new(level, json!("a line of the log"));
    // The client may have disconnected.
    let _ = context.peer.notify_logging_message(params).await;
}
