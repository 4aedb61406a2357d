//! A client of the Rust SDK through the proxy to servers of both eras: list, call, progress,
//! sampling, elicitation, roots, changes and cancellation. Needs only Rust.
#![expect(deprecated, reason = "sampling and roots are part of both eras")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use riglm_tests::binary;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::process::command;
use riglm_tests::riglm::{Options, Riglm, serve_command};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, Implementation, ListRootsResult, ProgressNotificationParam,
    ProtocolVersion, Request, Root, SamplingMessage, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RoleClient, RunningService,
    Subscription,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::{SESSION, modern_fixture, rmcp_legacy_server, words};

/// The deadline for a single event.
const SOON: Duration = Duration::from_secs(10);

/// The record of requests and notifications from the server.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReceivedEvents {
    asked: Vec<&'static str>,
    progress: Vec<f64>,
    n_changes: usize,
}

/// Answers the requests of a server, and records its notifications.
#[derive(Clone)]
struct AnsweringClient(Arc<watch::Sender<ReceivedEvents>>);

impl AnsweringClient {
    fn note(&self, change: impl FnOnce(&mut ReceivedEvents)) {
        self.0.send_modify(change);
    }

    fn received_events(&self) -> ReceivedEvents {
        self.0.borrow().clone()
    }

    async fn until(&self, what: &str, holds: impl FnMut(&ReceivedEvents) -> bool) {
        let mut seen = self.0.subscribe();
        let held = tokio::time::timeout(SOON, seen.wait_for(holds)).await;
        assert!(
            held.is_ok(),
            "{what} was not seen: {:?}",
            self.received_events()
        );
    }
}

impl ClientHandler for AnsweringClient {
    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.note(|seen| seen.asked.push("sampling"));
        let message = SamplingMessage::assistant_text("a sampled answer");
        Ok(CreateMessageResult::new(message, "canned".into()))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note(|seen| seen.asked.push("elicitation"));
        let content = json!({"name": "Ada", "color": "red"});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.note(|seen| seen.asked.push("roots"));
        Ok(ListRootsResult::new(vec![Root::new("file:///srv/data")]))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.note(|seen| seen.progress.push(params.progress));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.note(|seen| seen.n_changes += 1);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A client with its proxy, which ends with it.
struct Session {
    client: RunningService<RoleClient, AnsweringClient>,
    era: Era,
    _riglm: Option<Riglm>,
    _data_dir: TempDir,
}

impl Session {
    async fn open(era: Era, downstream: Transport, upstream: &Upstream) -> Self {
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        let options = Options::default();
        let lifecycle = match era {
            Era::Legacy => ClientLifecycleMode::Initialize,
            Era::Modern => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        };
        let answering = AnsweringClient(Arc::new(watch::Sender::new(ReceivedEvents::default())));
        let (client, riglm) = if downstream == Transport::Stdio {
            let words = words(&serve_command(
                upstream,
                data_dir.path(),
                &options,
                &["--stdio"],
            ));
            let (program, arguments) = words.split_first().expect("a command has a program");
            let child = TokioChildProcess::new(command(program, arguments));
            let child = child.expect("the command can be started");
            (answering.serve_with_lifecycle(child, lifecycle).await, None)
        } else {
            // The HTTP client of the SDK needs a TLS provider even for plain connections. Another
            // test of this process may have installed it already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let riglm = Riglm::serve(upstream, data_dir.path(), &options).await;
            let http = StreamableHttpClientTransport::from_uri(riglm.url.as_str());
            let client = answering.serve_with_lifecycle(http, lifecycle).await;
            (client, Some(riglm))
        };
        Self {
            client: client.unwrap_or_else(|error| panic!("{era:?} over {downstream:?}: {error}")),
            era,
            _riglm: riglm,
            _data_dir: data_dir,
        }
    }

    fn answering(&self) -> &AnsweringClient {
        self.client.service()
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> Value {
        let result = self.client.call_tool(params(tool, &arguments)).await;
        let result = result.unwrap_or_else(|error| panic!("{tool}: {error}"));
        serde_json::to_value(result).expect("a result is JSON")
    }

    /// Calls a tool and returns the input requests that the client received for it.
    async fn input_requests_of(&self, tool: &'static str) -> Vec<&'static str> {
        let before = self.answering().received_events().asked.len();
        self.call(tool, json!({})).await;
        let mut asked = self.answering().received_events().asked.split_off(before);
        asked.sort_unstable();
        asked
    }

    /// Opens a subscription to changed tools. Returns `None` for a legacy client, which needs none.
    async fn listen(&self) -> Option<Subscription> {
        if self.era == Era::Legacy {
            return None;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let listened = tokio::time::timeout(SOON, self.client.listen(filter)).await;
        let listened = listened.expect("a subscription is acknowledged");
        Some(listened.unwrap_or_else(|error| panic!("listening: {error}")))
    }

    /// Changes the tools until the client receives a notification, and ends the subscription.
    async fn assert_changes_are_told(&self, tool: &'static str, arguments: Value) {
        let Some(mut subscription) = self.listen().await else {
            // The proxy subscribes for the client, a little after the handshake.
            let told = async {
                while self.answering().received_events().n_changes == 0 {
                    self.call(tool, arguments.clone()).await;
                }
            };
            let told = tokio::time::timeout(SOON, told).await;
            return assert!(told.is_ok(), "the change was not told");
        };
        self.call(tool, arguments).await;
        let told = tokio::time::timeout(SOON, subscription.next()).await;
        assert!(
            matches!(told, Ok(Ok(Some(_)))),
            "{told:?} {:?}",
            subscription.end()
        );
        let cancelled = subscription.cancel().await;
        cancelled.unwrap_or_else(|error| panic!("the end of a subscription: {error}"));
    }

    /// Starts an endless call, and cancels it at its first progress.
    async fn cancel(&self, tool: &'static str) {
        let before = self.answering().received_events().progress.len();
        let request = ClientRequest::CallToolRequest(Request::new(params(tool, &json!({}))));
        let handle = self
            .client
            .send_cancellable_request(request, PeerRequestOptions::no_options())
            .await
            .expect("the request can be sent");
        self.answering()
            .until("progress", |seen| seen.progress.len() > before)
            .await;
        handle
            .cancel(Some("enough".into()))
            .await
            .expect("the cancellation can be sent");
    }

    async fn end(self) {
        self.client.cancel().await.expect("the session ends");
    }
}

fn params(tool: &'static str, arguments: &Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

/// Asserts that all features work with the unusual server, whose tools have the same names in both
/// eras.
async fn assert_odd_is_served(client: Era, downstream: Transport, server: Era, up: Transport) {
    let work = async {
        let era = match server {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let program = PathBuf::from(env!("CARGO_BIN_EXE_odd-server"));
        let arguments = vec!["--era".into(), era.into()];
        let upstream = Server::OddWith(program, arguments).start(up).await;
        let session = Session::open(client, downstream, &upstream).await;
        let echo = session.call("echo", json!({"text": "h\u{e9}llo"})).await;
        assert_eq!(echo["content"][0]["text"], "h\u{e9}llo");
        session.call("progress", json!({"steps": 3})).await;
        session
            .answering()
            .until("progress", |seen| seen.progress == [1.0, 2.0, 3.0])
            .await;
        // Other questions contain numbers such as 1e2, which the SDK does not parse.
        for (tool, expected) in [("elicit", &["elicitation"][..]), ("roots", &["roots"])] {
            assert_eq!(session.input_requests_of(tool).await, expected, "{tool}");
        }
        let tools = json!({"what": "tools"});
        session.assert_changes_are_told("change_list", tools).await;
        session.cancel("slow").await;
        let seen = session.call("await_cancelled", json!({"count": 1})).await;
        assert_eq!(seen["structuredContent"], json!({"seen": true}));
        session.end().await;
    };
    within(work).await;
}

/// Asserts that all features work with a server of the Rust SDK that supports only revision
/// 2026-07-28.
async fn assert_sdk_is_served(client: Era, downstream: Transport) {
    let work = async {
        let fixture = modern_fixture::start().await;
        let upstream = Upstream::at(Transport::Streamable, fixture.url.clone());
        let session = Session::open(client, downstream, &upstream).await;
        let tools = session.client.list_all_tools().await;
        assert!(!tools.expect("the tools are listed").is_empty());
        session.call("test_tool_with_progress", json!({})).await;
        session
            .answering()
            .until("progress", |seen| seen.progress == [0.0, 50.0, 100.0])
            .await;
        for (tool, expected) in [
            ("test_input_required_result_sampling", &["sampling"][..]),
            ("test_input_required_result_elicitation", &["elicitation"]),
            ("test_input_required_result_list_roots", &["roots"]),
            (
                "test_input_required_result_multiple_inputs",
                &["elicitation", "roots", "sampling"],
            ),
            (
                "test_input_required_result_multi_round",
                &["elicitation", "elicitation"],
            ),
        ] {
            assert_eq!(session.input_requests_of(tool).await, expected, "{tool}");
        }
        let change = "test_trigger_tool_change";
        session.assert_changes_are_told(change, json!({})).await;
        session.end().await;
    };
    within(work).await;
}

/// Asserts that all features work with a server of the Rust SDK that supports only legacy
/// revisions.
async fn assert_legacy_sdk_is_served(client: Era, downstream: Transport) {
    let work = async {
        let served = rmcp_legacy_server::start().await;
        let upstream = Upstream::at(Transport::Streamable, served.url.clone());
        let session = Session::open(client, downstream, &upstream).await;
        session.call("progress", json!({})).await;
        session
            .answering()
            .until("progress", |seen| seen.progress == [1.0, 2.0, 3.0])
            .await;
        for (tool, expected) in [
            ("sample", &["sampling"][..]),
            ("elicit", &["elicitation"]),
            ("roots", &["roots"]),
            ("all", &["elicitation", "roots", "sampling"]),
        ] {
            assert_eq!(session.input_requests_of(tool).await, expected, "{tool}");
        }
        session.assert_changes_are_told("change", json!({})).await;
        session.cancel("slow").await;
        let seen = session.call("await_cancelled", json!({})).await;
        assert_eq!(seen["content"][0]["text"], "cancelled");
        session.end().await;
    };
    within(work).await;
}

async fn within(work: impl Future<Output = ()>) {
    // Builds the program first, if needed, outside the deadline.
    binary::riglm();
    tokio::time::timeout(SESSION, work)
        .await
        .unwrap_or_else(|_| panic!("the session did not end within {SESSION:?}"));
}

#[tokio::test]
async fn modern_sdk_clients_work_with_legacy_servers() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        for up in [Transport::Stdio, Transport::Streamable] {
            assert_odd_is_served(Era::Modern, downstream, Era::Legacy, up).await;
        }
    }
}

#[tokio::test]
async fn legacy_sdk_clients_work_with_modern_servers() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        for up in [Transport::Stdio, Transport::Streamable] {
            assert_odd_is_served(Era::Legacy, downstream, Era::Modern, up).await;
        }
    }
}

#[tokio::test]
async fn sdk_clients_of_either_era_use_legacy_sdk_servers() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        for client in [Era::Modern, Era::Legacy] {
            assert_legacy_sdk_is_served(client, downstream).await;
        }
    }
}

#[tokio::test]
async fn sdk_clients_of_either_era_use_modern_sdk_servers() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        for client in [Era::Modern, Era::Legacy] {
            assert_sdk_is_served(client, downstream).await;
        }
    }
}
