//! Apps call the tools of their server by the names that the server has given them.

use riglm_app::selection::ListFilter;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};
use std::sync::Arc;

use super::scene::{Scene, Setup, upstream};
use crate::scene::HidingPolicy;

const APP: &str = "ui://map/view.html";

/// Returns an upstream with the tool `refresh` and an app.
fn with_app(name: &str, app: &str) -> Arc<ScriptedUpstream> {
    let upstream = upstream(name, &["refresh"]);
    let list = json!({"resources": [{"uri": app, "name": "view"}]});
    upstream.reply_to("resources/list", &format!(r#""result":{list}"#));
    upstream.reply_to(
        "resources/templates/list",
        r#""result":{"resourceTemplates":[]}"#,
    );
    let page =
        json!({"contents": [{"uri": app, "mimeType": "text/html;profile=mcp-app", "text": ""}]});
    upstream.reply_to("resources/read", &format!(r#""result":{page}"#));
    upstream.reply_to(
        "tools/call",
        &format!(r#""result":{{"content":[],"from":"{name}"}}"#),
    );
    upstream
}

async fn pair() -> Scene {
    let scene = Setup::default().scene(vec![
        with_app("a", "ui://other/view.html"),
        with_app("b", APP),
    ]);
    scene.initialize().await;
    scene.tools(1).await;
    scene
}

async fn call_refresh(scene: &Scene, id: u32) -> Value {
    scene
        .ask(id, "tools/call", json!({"name": "refresh"}))
        .await
}

#[tokio::test]
async fn a_call_by_an_own_name_goes_to_the_server_of_the_app() {
    let scene = pair().await;
    // Both have the tool, and no app is shown.
    let unknown = call_refresh(&scene, 2).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    scene.ask(3, "resources/read", json!({"uri": APP})).await;
    let answer = call_refresh(&scene, 4).await;
    assert_eq!(answer["result"]["from"], "b", "{answer}");
    let sent = scene.sent_messages(1).pop().unwrap();
    assert_eq!(sent["params"]["name"], "refresh");
    // The name that the model knows still means what it says.
    let named = scene
        .ask(5, "tools/call", json!({"name": "a__refresh"}))
        .await;
    assert_eq!(named["result"]["from"], "a", "{named}");
}

#[tokio::test]
async fn a_call_that_two_apps_may_have_made_reaches_no_server() {
    let scene = pair().await;
    for (id, app) in [(2, APP), (3, "ui://other/view.html")] {
        let page = scene.ask(id, "resources/read", json!({"uri": app})).await;
        assert!(page["result"].is_object(), "{page}");
    }
    let ambiguous = call_refresh(&scene, 4).await;
    assert_eq!(ambiguous["error"]["code"], -32602, "{ambiguous}");
}

#[tokio::test]
async fn searches_of_models_do_not_find_tools_for_apps() {
    let with_tools = upstream("a", &[]);
    let tools = json!({"tools": [
        {"name": "map_zoom", "description": "Zooms the map.", "_meta": {"ui": {"visibility": ["app"]}}},
        {"name": "map_route", "description": "Finds a route on the map."},
    ]});
    with_tools.reply_to("tools/list", &format!(r#""result":{tools}"#));
    let setup = Setup {
        filter: ListFilter::new(Some(Arc::new(HidingPolicy))),
        search: Some("search"),
        ..Setup::default()
    };
    let scene = setup.scene(vec![with_tools, upstream("b", &["x"])]);
    scene.initialize().await;
    let search = json!({"name": "search", "arguments": {"query": "zoom the map"}});
    let found = scene.ask(1, "tools/call", search).await;
    let text = found["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("a__map_route") && !text.contains("map_zoom"),
        "{text}"
    );
}
