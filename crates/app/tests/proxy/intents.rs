//! Intents are extracted from passing messages.

use std::time::Duration;

use bytes::Bytes;
use riglm_discovery::intent::KnownIntent;
use riglm_domain::mcp::message::Message;
use riglm_domain::usage::invocation::SessionKey;
use riglm_domain::usage::record::Record;

use crate::scene::{HELLO, Scene, Setup, WELCOME, call};

impl Scene {
    /// Sends a message of the client and awaits its future.
    async fn says(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            let limit = Duration::from_secs(10);
            tokio::time::timeout(limit, exchange.run).await.unwrap();
        }
    }

    fn intent(&self) -> Option<KnownIntent> {
        let mut records = self.store.records().into_iter();
        let session = records.find_map(|record| match record {
            Record::SessionOpened(session) => Some((session.id, session.started_at)),
            _ => None,
        });
        let (session, started_at) = session?;
        self.intents
            .current(SessionKey::Connection(session), started_at)
    }

    fn lines(&self) -> Vec<String> {
        let known = self.intent().map(|known| known.text);
        let known = known.unwrap_or_default();
        known.lines().map(str::to_owned).collect()
    }
}

/// Returns a setup in which lists hide tools, because only then intents are used.
fn selecting() -> Setup {
    Setup {
        policy: Some(std::sync::Arc::new(crate::scene::HidingPolicy)),
        ..Setup::default()
    }
}

fn request(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

#[tokio::test]
async fn intent_sources_contribute_by_their_weight() {
    let setup = Setup {
        search: Some("search"),
        has_others: true,
        ..selecting()
    };
    let scene = setup.scene();
    let welcome = WELCOME.replace(r#""capabilities":{}"#, r#""capabilities":{"tools":{}}"#);
    scene.upstream.reply_to("initialize", &welcome);
    scene.says(HELLO).await;
    let tools = r#""result":{"tools":[{"name":"t"}]}"#;
    scene.upstream.reply_to("tools/list", tools);
    assert_eq!(scene.intent(), None);
    let uri = r#"{"uri":"file:///notes/today.md?key=1"}"#;
    scene.says(&request(1, "resources/read", uri)).await;
    scene.says(&call(2)).await;
    let text = r#"{"name":"echo","arguments":{"text":"water them"}}"#;
    scene.says(&request(3, "tools/call", text)).await;
    let asked = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"say it shortly"}}]}}"#;
    scene.upstream.send_to_client(asked, None).await;
    let prompt = r#"{"name":"review","arguments":{"language":"Rust"}}"#;
    scene.says(&request(4, "prompts/get", prompt)).await;
    let query = r#"{"name":"search","arguments":{"query":"find it"}}"#;
    scene.says(&request(5, "tools/call", query)).await;
    let said = r#"{"name":"set_context","arguments":{"query":"tidy up","intent":"for spring"}}"#;
    scene.says(&request(6, "tools/call", said)).await;
    let expected = [
        "tidy up",
        "for spring",
        "find it",
        "review Rust",
        "say it shortly",
        "water them",
        "[redacted]",
        "notes today md",
    ];
    assert_eq!(scene.lines(), expected);
    let stored = format!("{:?}", scene.store.records());
    for text in ["tidy", "find it", "Rust", "shortly", "water"] {
        assert!(!stored.contains(text), "{text} was stored");
    }
}

#[tokio::test]
async fn context_hints_in_request_metadata_are_read() {
    let scene = selecting().scene();
    scene.says(HELLO).await;
    for text in ["first", "then"] {
        let params = format!(r#"{{"_meta":{{"io.github.riglm/context":"{text}"}}}}"#);
        scene.says(&request(1, "tools/list", &params)).await;
    }
    assert_eq!(scene.lines(), ["then"]);
}

#[tokio::test]
async fn sampling_texts_of_modern_servers_join_the_intent() {
    let scene = selecting().scene();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"2"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}"#;
    let asks = r#""result":{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[{"content":{"type":"text","text":"sum it up"}}]}},"b":{"method":"elicitation/create","params":{"message":"no"}}}}"#;
    scene.upstream.reply_to("tools/call", asks);
    let params = format!(r#"{{"name":"t",{meta}}}"#);
    scene.says(&request(1, "tools/call", &params)).await;
    assert_eq!(scene.lines(), ["sum it up"]);
}
