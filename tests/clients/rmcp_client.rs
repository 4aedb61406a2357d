//! A client of the Rust SDK: list, call, progress, sampling, elicitation and cancellation.
#![expect(
    deprecated,
    reason = "sampling and roots are part of the revisions that have sessions"
)]

use std::sync::Arc;

use parking_lot::Mutex;

use riglm_tests::fixture::Transport;
use riglm_tests::process::command;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, Implementation, ListRootsResult, ProgressNotificationParam,
    Request, Root, SamplingMessage,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RoleClient, RunningService,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{SESSION, Target, direct_target, masks, proxied_target};

const LONG: &str = "trigger-long-running-operation";

/// Answers the requests of the server, and records its progress notifications.
#[derive(Clone)]
struct AnsweringClient {
    progress: Arc<watch::Sender<Vec<f64>>>,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl AnsweringClient {
    fn new() -> Self {
        Self {
            progress: Arc::new(watch::Sender::new(Vec::new())),
            asked: Arc::default(),
        }
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().push(what);
    }
}

impl ClientHandler for AnsweringClient {
    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.note("sampling");
        let message = SamplingMessage::assistant_text("a sampled answer");
        Ok(CreateMessageResult::new(message, "canned".into()))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note("elicitation");
        let content = json!({"name": "Ada", "check": true});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///srv/data")]))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.send_modify(|seen| seen.push(params.progress));
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_sampling()
            .enable_elicitation()
            .enable_roots()
            .build();
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1.0.0"))
    }
}

type Session = RunningService<RoleClient, AnsweringClient>;

async fn connect(transport: Transport, target: &Target) -> Session {
    let connected = if transport == Transport::Stdio {
        let (program, arguments) = target.words.split_first().expect("a command has a program");
        let child = TokioChildProcess::new(command(program, arguments));
        AnsweringClient::new()
            .serve(child.expect("the command can be started"))
            .await
    } else {
        // The HTTP client of the SDK needs a TLS provider even for plain connections. Another test
        // of this process may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = StreamableHttpClientTransport::from_uri(target.words[0].as_str());
        AnsweringClient::new().serve(http).await
    };
    connected.unwrap_or_else(|error| panic!("the handshake failed: {error}"))
}

async fn call(session: &Session, tool: &'static str, arguments: Value) -> Value {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let result = session
        .call_tool(params)
        .await
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    serde_json::to_value(result).expect("a result is JSON")
}

/// Starts a long call and cancels it at its first progress.
async fn cancel_a_call(session: &Session) {
    let arguments = json!({"duration": 2, "steps": 10});
    let params = CallToolRequestParams::new(LONG)
        .with_arguments(arguments.as_object().cloned().unwrap_or_default());
    let mut progress = session.service().progress.subscribe();
    let before = progress.borrow().len();
    let handle = session
        .send_cancellable_request(
            ClientRequest::CallToolRequest(Request::new(params)),
            PeerRequestOptions::no_options(),
        )
        .await
        .expect("the request can be sent");
    progress
        .wait_for(|seen| seen.len() > before)
        .await
        .expect("the session is open");
    handle
        .cancel(Some("enough".into()))
        .await
        .expect("the cancellation can be sent");
}

async fn look(transport: Transport, target: &Target) -> String {
    let session = connect(transport, target).await;
    let mut seen = json!({
        "server": session.peer_info().map(|info| json!(*info)),
        "tools": session.list_all_tools().await.expect("the tools are listed"),
        "resources": session.list_all_resources().await.expect("the resources are listed"),
        "prompts": session.list_all_prompts().await.expect("the prompts are listed"),
        "echo": call(&session, "echo", json!({"message": "h\u{e9}llo"})).await,
        "long": call(&session, LONG, json!({"duration": 0.3, "steps": 3})).await,
    });
    seen["progress"] = json!(*session.service().progress.borrow());
    seen["sampling"] = call(&session, "trigger-sampling-request", json!({"prompt": "p"})).await;
    seen["elicitation"] = call(&session, "trigger-elicitation-request", json!({})).await;
    cancel_a_call(&session).await;
    seen["after"] = call(&session, "echo", json!({"message": "after"})).await;
    seen["asked"] = json!(*session.service().asked.lock());
    session.cancel().await.expect("the session ends");
    masks().apply(&seen.to_string())
}

async fn assert_alike(transport: Transport) {
    let work = async {
        let expected = look(transport, &direct_target(transport).await).await;
        let seen = look(transport, &proxied_target(transport).await).await;
        let report: Value = serde_json::from_str(&seen).expect("the report is JSON");
        assert_eq!(report["progress"], json!([1.0, 2.0, 3.0]));
        assert_eq!(report["asked"], json!(["sampling", "elicitation"]));
        assert_eq!(seen, expected);
    };
    tokio::time::timeout(SESSION, work)
        .await
        .unwrap_or_else(|_| panic!("the sessions did not end within {SESSION:?}"));
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_rust_sdk_over_stdio() {
    assert_alike(Transport::Stdio).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_rust_sdk_over_streamable_http() {
    assert_alike(Transport::Streamable).await;
}
