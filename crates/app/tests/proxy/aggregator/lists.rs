//! Handshakes and lists.

use std::sync::Arc;
use std::time::Duration;

use riglm_app::limits::Limits;
use riglm_app::proxy::{NamespacePolicy, Unavailable};
use riglm_app::selection::ListFilter;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::list_policy::ListPolicy;
use riglm_ports::upstream::UpstreamError;
use serde_json::json;

use super::scene::{Setup, lists, names, upstream};

fn unavailable_error() -> UpstreamError {
    UpstreamError::Unreachable { reason: "gone" }
}

#[tokio::test]
async fn the_handshake_is_answered_for_all_upstreams() {
    let scene = Setup::default().scene(vec![upstream("a", &[]), upstream("b", &[])]);
    let answer = scene.initialize().await;
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["serverInfo"]["name"], "riglm");
    assert_eq!(result["capabilities"]["resources"]["subscribe"], true);
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(result["instructions"], "# a\n\nUse a.\n\n# b\n\nUse b.");
    for upstream in 0..2 {
        let sent = scene.sent_messages(upstream);
        assert_eq!(sent[0]["method"], "initialize");
        assert_eq!(sent[0]["params"]["capabilities"], json!({"sampling": {}}));
        assert_eq!(sent[1]["method"], "notifications/initialized");
        assert_eq!(sent.len(), 2);
    }
}

#[tokio::test]
async fn tools_are_listed_in_configuration_order_with_prefixes() {
    let scene = Setup::default().scene(vec![upstream("b", &["x", "y"]), upstream("a", &["x"])]);
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["b__x", "b__y", "a__x"]);
    assert_eq!(scene.tools(2).await, ["b__x", "b__y", "a__x"]);
}

#[tokio::test]
async fn collision_naming_prefixes_only_colliding_names() {
    let setup = Setup {
        naming: NamespacePolicy::Collision,
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("b", &["x", "y"]), upstream("a", &["x"])]);
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["b__x", "y", "a__x"]);
}

#[tokio::test]
async fn an_unavailable_upstream_hides_no_others() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    for _ in 0..4 {
        scene.upstreams[0].refuse_connection(unavailable_error());
    }
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["b__y"]);
    let states = scene.proxy.upstream_states();
    assert_eq!(
        (states[0].is_available, states[1].is_available),
        (false, true)
    );
    assert!(states[0].reason.as_deref().unwrap().contains("gone"));
}

#[tokio::test]
async fn by_configuration_the_last_known_tools_stay_listed_as_unavailable() {
    let setup = Setup {
        unavailable: Unavailable::List,
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["a__x", "b__y"]);
    for _ in 0..4 {
        scene.upstreams[0].refuse_connection(unavailable_error());
    }
    scene.upstreams[0]
        .lose_connection(unavailable_error())
        .await;
    let answer = scene.ask(2, "tools/list", json!({})).await;
    let tool = &answer["result"]["tools"][0];
    assert_eq!(tool["name"], "a__x");
    let description = tool["description"].as_str().unwrap();
    assert!(
        description.contains("unavailable") && description.contains("gone"),
        "{description}"
    );
}

#[tokio::test]
async fn late_upstreams_are_left_out_and_announced_later() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    // Gives no answer until the test sends one.
    scene.upstreams[0].reply_to("tools/list", "");
    assert_eq!(scene.tools(1).await, ["b__y"]);
    let asked = scene
        .sent_such(0, |sent| sent["method"] == "tools/list")
        .await;
    lists(&scene.upstreams[0], &["x"]);
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": [{"name": "x"}]}});
    scene.upstreams[0]
        .send_to_client(&answer.to_string(), None)
        .await;
    scene.list_changed().await;
    assert_eq!(scene.tools(2).await, ["a__x", "b__y"]);
}

#[tokio::test]
async fn own_cursors_are_bound_to_their_list() {
    let setup = Setup {
        limits: Limits {
            list_page_entries: 2,
            unite_timeout: Duration::from_millis(300),
            ..Limits::default()
        },
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("a", &["x", "y"]), upstream("b", &["z"])]);
    scene.initialize().await;
    let first = scene.ask(1, "tools/list", json!({})).await;
    let cursor = first["result"]["nextCursor"].clone();
    let second = scene.ask(2, "tools/list", json!({"cursor": cursor})).await;
    assert_eq!(second["result"]["tools"], json!([{"name": "b__z"}]));
    assert_eq!(second["result"].get("nextCursor"), None);
    // Even if the lists change meanwhile, a page belongs to the list that it was begun with.
    lists(&scene.upstreams[1], &["w"]);
    scene.tools(3).await;
    let again = scene.ask(4, "tools/list", json!({"cursor": cursor})).await;
    assert_eq!(again["result"]["tools"], json!([{"name": "b__z"}]));
    for (id, foreign) in [(5, "0123456789abcdef.2"), (6, "nonsense"), (7, "")] {
        let refused = scene
            .ask(id, "tools/list", json!({"cursor": foreign}))
            .await;
        assert_eq!(refused["error"]["code"], -32602, "{foreign}");
    }
}

#[tokio::test]
async fn all_pages_of_an_upstream_are_fetched() {
    let a = upstream("a", &[]);
    a.reply_to(
        "tools/list",
        r#""result":{"tools":[{"name":"x"}],"nextCursor":"c"}"#,
    );
    let scene = Setup::default().scene(vec![a, upstream("b", &[])]);
    scene.initialize().await;
    // The scripted upstream returns the same cursor again, at which the proxy stops.
    assert_eq!(scene.tools(1).await, ["a__x"]);
    let asked: Vec<_> = scene
        .sent_messages(0)
        .into_iter()
        .filter(|sent| sent["method"] == "tools/list")
        .collect();
    assert_eq!(asked[1]["params"], json!({"cursor": "c"}));
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn malformed_and_double_entries_leave_the_good_ones() {
    let a = upstream("a", &[]);
    let listed =
        r#""result":{"tools":[{"name":"x","n":1.0},{"x":1},null,{"name":"x"},{"name":"y"}]}"#;
    a.reply_to("tools/list", listed);
    let scene = Setup::default().scene(vec![a, upstream("b", &[])]);
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["a__x", "a__y"]);
}

#[derive(Debug)]
struct Without(&'static str);

impl ListPolicy for Without {
    fn select(&self, _context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        let positions = (0..tools.len()).filter(|at| tools[*at].as_str() == self.0);
        Selection::Without(positions.collect())
    }
}

#[tokio::test]
async fn hidden_tools_stay_hidden_in_cached_lists() {
    let slow = ScriptedUpstream::new(UpstreamName::parse("b").unwrap());
    let welcome = r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#;
    slow.reply_to("initialize", welcome);
    let setup = Setup {
        filter: ListFilter::new(Some(Arc::new(Without("y")))),
        ..Setup::default()
    };
    let mut scene = setup.scene(vec![upstream("a", &["x"]), Arc::new(slow)]);
    scene.initialize().await;
    scene
        .start(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        .await;
    let asked = scene
        .sent_such(1, |sent| sent["method"] == "tools/list")
        .await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
        "result": {"tools": [{"name": "y"}, {"name": "z"}]}});
    scene.upstreams[1]
        .send_to_client(&answer.to_string(), None)
        .await;
    let listed = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(names(&listed), ["a__x", "b__z"]);
    scene.change_client();
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["a__x", "b__z"]);
}
