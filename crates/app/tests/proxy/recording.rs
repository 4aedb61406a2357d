//! Recording: the records of requests, their time and their limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use riglm_app::tracking::{RecorderOptions, RecordingPolicy};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository, Journal, JournalCondition, SessionRepository,
    StoreError,
};
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::fake::MemoryStore;

use crate::scene::{HELLO, Setup, call};

/// A client that records the number of closed calls in the store at each answer.
#[derive(Debug)]
struct Witness {
    store: Arc<MemoryStore>,
    closed: Mutex<Vec<usize>>,
}

#[async_trait]
impl ClientLink for Witness {
    async fn deliver(&self, _message: Message, _route: Route) {
        let is_end = |record: &Record| matches!(record, Record::CallClosed(_));
        let n_closed = self
            .store
            .records()
            .iter()
            .filter(|record| is_end(record))
            .count();
        self.closed.lock().push(n_closed);
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {}
}

#[tokio::test]
async fn call_records_open_before_forwarding_and_close_before_replying() {
    let scene = Setup::default().scene();
    let witness = Arc::new(Witness {
        store: scene.store.clone(),
        closed: Mutex::default(),
    });
    let session = scene
        .proxy
        .accept(Transport::Stdio, &Principal::local(), witness.clone())
        .unwrap();
    let message = Message::parse(&Bytes::from(call(1))).unwrap();
    session.receive(message).await.unwrap();
    assert_eq!(scene.outcomes().await, [None]);
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(*witness.closed.lock(), [1]);
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn sessions_are_recorded_with_client_information() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene.session.close().await;
    let sessions = scene.store.sessions(10).await.unwrap();
    let session = &sessions[0];
    assert_eq!(session.session.client_info.name, "tester");
    assert_eq!(session.session.protocol.as_str(), "2025-06-18");
    assert_eq!((session.n_calls, session.ended_at.is_some()), (1, true));
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
    assert!(scene.client.is_closed());
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test]
async fn sessions_record_client_title_and_capabilities() {
    let info = r#"{"name":"n","version":"1","title":"A \u0007tester"}"#;
    let capabilities = r#"{"sampling":{},"elicitation":{"form":{}},"roots":null}"#;
    let legacy = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"clientInfo":{info}}}}}"#
    );
    let modern = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{info},"io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
    );
    for message in [legacy, modern] {
        let scene = Setup::default().scene();
        scene.send(&message).await;
        let sessions = scene.store.sessions(10).await.unwrap();
        let session = &sessions[0].session;
        let metadata: Vec<(&str, &str)> = session
            .metadata
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("capabilities", "elicitation,sampling"),
            ("title", "A tester"),
        ];
        assert_eq!(metadata, expected);
        assert_eq!(session.profile, None);
    }
}

#[tokio::test]
async fn arguments_are_recorded_only_on_request_and_redacted() {
    for include_arguments in [false, true] {
        let options = RecorderOptions {
            include_arguments,
            ..RecorderOptions::default()
        };
        let scene = Setup {
            options,
            ..Setup::default()
        }
        .scene();
        scene.send(&call(1)).await;
        let calls = scene
            .store
            .invocations(&InvocationFilter::default(), 1)
            .await
            .unwrap();
        let expected = include_arguments.then(|| r#"{"secret":"[redacted]"}"#.to_owned());
        assert_eq!(calls[0].invocation.arguments, expected);
        assert!(!format!("{:?}", scene.store.records()).contains("s3cr3t"));
    }
}

#[tokio::test]
async fn tool_and_protocol_errors_are_recorded_and_forwarded_unchanged() {
    let scene = Setup::default().scene();
    let answers = [
        r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"x":1.0}}"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"m","data":null}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{"isError":false}}"#,
    ];
    for (number, answer) in (1..).zip(answers) {
        scene.send(&call(number)).await;
        scene.upstream.send_to_client(answer, None).await;
        assert_eq!(scene.last(), answer);
    }
    let expected = [Outcome::Error, Outcome::Error, Outcome::Ok].map(Some);
    assert_eq!(scene.outcomes().await, expected);
}

#[tokio::test]
async fn unrecorded_calls_fail_only_if_recording_is_required() {
    for policy in [RecordingPolicy::BestEffort, RecordingPolicy::Required] {
        let is_required = policy == RecordingPolicy::Required;
        let options = RecorderOptions {
            policy,
            ..RecorderOptions::default()
        };
        let scene = Setup {
            options,
            ..Setup::default()
        }
        .scene();
        scene.send(HELLO).await;
        scene.store.start_failing();
        scene.send(&call(1)).await;
        let n_sent = scene
            .upstream
            .sent_messages()
            .iter()
            .filter(|(_, text)| text.contains("echo"))
            .count();
        assert_eq!(n_sent, usize::from(!is_required));
        let code = RpcErrorCode::RecordingUnavailable.code().to_string();
        assert_eq!(scene.last().contains(&code), is_required);
    }
}

/// A journal that accepts records even while the database does not.
#[derive(Debug, Default)]
struct PatientJournal {
    store: Arc<MemoryStore>,
    is_behind: AtomicBool,
}

#[async_trait]
impl Journal for PatientJournal {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record).await
    }

    fn condition(&self) -> JournalCondition {
        if self.is_behind.load(Ordering::SeqCst) {
            JournalCondition::Behind {
                reason: "the database is away".into(),
            }
        } else {
            JournalCondition::Sound
        }
    }
}

#[tokio::test]
async fn required_recording_refuses_calls_while_the_journal_is_behind() {
    for policy in [RecordingPolicy::BestEffort, RecordingPolicy::Required] {
        let is_required = policy == RecordingPolicy::Required;
        let journal = Arc::new(PatientJournal::default());
        let scene = Setup {
            options: RecorderOptions {
                policy,
                ..RecorderOptions::default()
            },
            store: journal.store.clone(),
            journal: Some(journal.clone()),
            ..Setup::default()
        }
        .scene();
        scene.send(HELLO).await;
        journal.is_behind.store(true, Ordering::SeqCst);
        scene.send(&call(1)).await;
        let n_recorded = scene.outcomes().await.len();
        assert_eq!(n_recorded, usize::from(!is_required));
        let code = RpcErrorCode::RecordingUnavailable.code().to_string();
        assert_eq!(scene.last().contains(&code), is_required);

        journal.is_behind.store(false, Ordering::SeqCst);
        scene.send(&call(2)).await;
        assert_eq!(scene.outcomes().await.len(), n_recorded + 1);
    }
}

#[tokio::test]
async fn calls_work_without_records_if_recording_is_off() {
    let options = RecorderOptions {
        policy: RecordingPolicy::Off,
        ..RecorderOptions::default()
    };
    let scene = Setup {
        options,
        ..Setup::default()
    }
    .scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    scene.upstream.send_to_client(answer, None).await;
    assert_eq!(scene.last(), answer);
    assert_eq!(scene.outcomes().await, []);
}

#[tokio::test]
async fn names_and_targets_are_recorded_without_secrets_and_within_bounds() {
    let scene = Setup::default().scene();
    let read = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"https://u:s3cr3t@h/a?t=s3cr3t"}}"#;
    scene.send(read).await;
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    scene
        .send(&call(2).replace(r#""echo""#, r#"{"password":"s3cr3t"}"#))
        .await;
    scene
        .send(&call(3).replace("echo", &"x".repeat(100_000)))
        .await;
    let records = format!("{:?}", scene.store.records());
    assert!(
        !records.contains("s3cr3t") && records.len() < 25_000,
        "{records}"
    );
}

#[tokio::test]
async fn unusual_tool_names_are_recorded_and_overlong_ones_distinguished() {
    let scene = Setup::default().scene();
    let long = "n".repeat(20_000);
    let names = [
        "n".repeat(10_000),
        "a\0b".into(),
        "\u{1f980} \u{e9}".into(),
        format!("{long}a"),
        format!("{long}b"),
    ];
    for (number, name) in (1..).zip(&names) {
        let name = serde_json::to_string(name).unwrap();
        scene.send(&call(number).replace(r#""echo""#, &name)).await;
    }
    let calls = scene
        .store
        .invocations(&InvocationFilter::default(), 10)
        .await
        .unwrap();
    let recorded: Vec<&str> = calls
        .iter()
        .map(|call| call.invocation.tool.as_str())
        .collect();
    assert_eq!(recorded[..3], names[..3]);
    assert_ne!(recorded[3], recorded[4]);
    for cut in &recorded[3..] {
        assert_eq!(cut.chars().count(), 16_384);
    }
}
