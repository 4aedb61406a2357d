//! Observed events of requests, and the limits for requests.

use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::limits::Limits;
use riglm_ports::observer::{Event, Observer};
use serde_json::json;

use super::scene::{Setup, upstream};

/// Records the ends of requests: method, upstream, tool, outcome, and whether the time of the proxy
/// is known.
#[derive(Debug, Default)]
struct Ends(Mutex<Vec<String>>);

impl Observer for Ends {
    fn observe(&self, event: &Event<'_>) {
        if let Event::RequestEnded(ended) = event {
            let upstream = ended.upstream.map_or("", |name| name.as_str());
            let tool = ended.tool.map_or("", |tool| tool.as_str());
            let known = if ended.with_upstream.is_some() {
                ""
            } else {
                "?"
            };
            let (method, outcome) = (ended.method, ended.outcome.as_str());
            let line = format!("{method} {upstream} {tool} {outcome}{known}");
            self.0.lock().push(line);
        }
    }
}

#[tokio::test]
async fn each_client_request_is_observed_once() {
    let ends = Arc::new(Ends::default());
    let setup = Setup {
        observer: ends.clone(),
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.upstreams[1].reply_to("tools/call", r#""result":{"content":[]}"#);
    scene.initialize().await;
    scene.tools(1).await;
    scene.ask(2, "prompts/list", json!({})).await;
    scene.ask(3, "ping", json!({})).await;
    scene.ask(4, "tools/call", json!({"name": "b__y"})).await;
    scene.ask(5, "tools/call", json!({"name": "nobody"})).await;
    let told = ends.0.lock().clone();
    let expected = [
        "initialize   ok?",
        "tools/list   ok?",
        "prompts/list   ok?",
        "ping   ok?",
        "tools/call b y ok",
        "tools/call   error?",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn internal_requests_do_not_count_as_in_flight() {
    let setup = Setup {
        limits: Limits {
            in_flight: 1,
            ..Limits::default()
        },
        ..Setup::default()
    };
    let upstreams = ["a", "b", "c"].map(|name| upstream(name, &["x"]));
    let scene = setup.scene(upstreams.into());
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["a__x", "b__x", "c__x"]);
}

#[tokio::test]
async fn list_pages_can_be_unlimited() {
    let setup = Setup {
        limits: Limits {
            list_page_entries: 1,
            ..Limits::default()
        },
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("a", &["x", "y"]), upstream("b", &["z"])]);
    scene.initialize().await;
    let first = scene.ask(1, "tools/list", json!({})).await;
    let cursor = first["result"]["nextCursor"].clone();
    scene.proxy.set_limits(Limits {
        list_page_entries: usize::MAX,
        ..Limits::default()
    });
    let rest = scene.ask(2, "tools/list", json!({"cursor": cursor})).await;
    assert_eq!(rest["result"]["tools"].as_array().map(Vec::len), Some(2));
    assert!(rest["result"].get("nextCursor").is_none(), "{rest}");
}
