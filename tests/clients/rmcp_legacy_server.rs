//! A server based on the Rust SDK that supports only legacy revisions, and sends requests to its
//! client.
#![expect(deprecated, reason = "sampling and roots are part of these revisions")]

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    CreateMessageRequestParams, ElicitRequestParams, ErrorData, ProgressNotificationParam,
    ProtocolVersion, SamplingMessage, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceError};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use url::Url;

/// The deadline for a cancellation.
const SOON: Duration = Duration::from_secs(10);

/// The running server. It ends when this is dropped.
pub(crate) struct RunningServer {
    pub(crate) url: Url,
    serving: JoinHandle<()>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves on a free port of the loopback interface.
pub(crate) async fn start() -> RunningServer {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let server = LegacyServer {
        cancelled: Arc::new(Semaphore::new(0)),
    };
    let config = StreamableHttpServerConfig::default();
    let service: StreamableHttpService<LegacyServer, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
    let router = Router::new().nest_service("/mcp", service);
    let serving = tokio::spawn(async move {
        axum::serve(listener, router)
            .await
            .expect("a bound listener accepts");
    });
    let url = format!("http://{address}/mcp");
    RunningServer {
        url: url.parse().expect("the address is a URL"),
        serving,
    }
}

#[derive(Clone)]
struct LegacyServer {
    /// One permit for each cancelled call.
    cancelled: Arc<Semaphore>,
}

impl ServerHandler for LegacyServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2025_06_18])
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let peer = &context.peer;
        let done = match request.name.as_ref() {
            "sample" => sample(peer).await,
            "elicit" => elicit(peer).await,
            "roots" => roots(peer).await,
            "all" => {
                let (sampled, elicited, listed) =
                    tokio::join!(sample(peer), elicit(peer), roots(peer));
                sampled.and(elicited).and(listed)
            }
            "progress" => progress(&context, 3).await,
            "change" => peer.notify_tool_list_changed().await,
            "slow" => {
                let told = progress(&context, 1).await;
                context.ct.cancelled().await;
                self.cancelled.add_permits(1);
                told
            }
            "await_cancelled" => {
                let cancelled = tokio::time::timeout(SOON, self.cancelled.acquire()).await;
                let is_cancelled = cancelled.is_ok_and(|permit| permit.is_ok());
                return Ok(text_response(if is_cancelled {
                    "cancelled"
                } else {
                    "not cancelled"
                }));
            }
            name => return Err(ErrorData::invalid_params(name.to_owned(), None)),
        };
        match done {
            Ok(()) => Ok(text_response("done")),
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }
}

fn text_response(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

async fn sample(peer: &Peer<RoleServer>) -> Result<(), ServiceError> {
    let messages = vec![SamplingMessage::user_text("What is the capital of France?")];
    let params = CreateMessageRequestParams::new(messages, 100);
    peer.create_message(params).await.map(drop)
}

async fn elicit(peer: &Peer<RoleServer>) -> Result<(), ServiceError> {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "who?".into(),
        requested_schema: serde_json::from_value(schema).expect("the schema is one"),
    };
    peer.create_elicitation(params).await.map(drop)
}

async fn roots(peer: &Peer<RoleServer>) -> Result<(), ServiceError> {
    peer.list_roots().await.map(drop)
}

async fn progress(context: &RequestContext<RoleServer>, n_steps: u8) -> Result<(), ServiceError> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    for step in 1..=n_steps {
        let params = ProgressNotificationParam::new(token.clone(), f64::from(step));
        context.peer.notify_progress(params).await?;
    }
    Ok(())
}
