//! The app of the proxy in a real browser, inside of a page that plays the host of a chat: themes,
//! hostile names, the messages in both directions, and accessibility.
//!
//! `page/session_app.mjs` makes the checks, with puppeteer and axe-core. The environment variable
//! `RIGLM_TEST_CHROMIUM` names another browser than the Chromium or Chrome in `PATH`.

use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::json_string;
use riglm_tests::kit::{proxy, server};
use riglm_tests::messages::{call, initialize_with, request, request_with};
use riglm_tests::process::command;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{node_22, output, script};

/// The deadline of all checks, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);
/// The capabilities of a client that shows apps.
const APPS: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
/// The configured name of the tool that shows the session.
const TOOL: &str = "view_session";
/// A name that would run if it were taken for markup.
const MARKUP: &str = "<img src=x onerror=alert(1)><script>alert(2)</script>";

/// Returns names with markup, terminal codes and reversed letters, and one of 10 kB.
fn hostile_names() -> [String; 5] {
    [
        MARKUP.to_owned(),
        "\"><svg/onload=alert(3)>".to_owned(),
        "\u{1b}[31mred\u{1b}]8;;http://evil.example\u{7}link".to_owned(),
        "harmless\u{202e}gpj.exe".to_owned(),
        "long_name_".repeat(1_000),
    ]
}

async fn result(client: &RawClient, text: &str) -> Value {
    let answer = client.request(text).await;
    let mut answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].take()
}

#[tokio::test]
#[ignore = "needs npm and Chromium"]
async fn session_app_shows_hostile_names_as_text() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let listing = folder.path().join("listing.json");
    let tools = hostile_names().map(|name| {
        let name = json_string(&name);
        format!(r#"{{"name": {name}, "inputSchema": {{"type": "object"}}}}"#)
    });
    std::fs::write(&listing, format!("[{}]", tools.join(", "))).expect("a file can be written");
    let configuration = "[search]\nshow_session = true\nshow_session_name = \"view_session\"\n[search.encoder]\nmodel = \"none\"\n\
                         [filtering]\ndeny = [\"harmless*\"]\n";
    let proxy = proxy()
        .configuration(configuration)
        .server(&server("hostile").listing(&listing))
        .strategy("denylist")
        .start()
        .await;
    let client = proxy.riglm.client(Answers::default());
    let hello = initialize_with("0", "2025-11-25", APPS);
    client.initialize(&hello).await;
    result(&client, &request("1", "tools/list")).await;
    for (id, arguments) in [("2", "{}"), ("3", r#"{"fail":true}"#)] {
        result(&client, &call(id, MARKUP, arguments)).await;
    }
    let view = result(&client, &call("4", TOOL, "{}")).await;
    assert_eq!(view["structuredContent"]["n_calls"], 2, "{view}");
    let read = request_with("5", "resources/read", r#"{"uri":"ui://riglm/session"}"#);
    let page = result(&client, &read).await["contents"][0]["text"].take();
    let scene = json!({
        "page": page,
        "result": view,
        "names": hostile_names(),
        "tool": TOOL,
        "profile": folder.path().join("browser"),
    });
    let file = folder.path().join("scene.json");
    std::fs::write(&file, scene.to_string()).expect("a file can be written");
    let mut command = command(node_22(), &[script("page/session_app.mjs"), file]);
    command.env("HOME", folder.path());
    let printed = output(command, PATIENCE).await;
    let report: Value = printed
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("no report: {printed}"));
    let report = &report["report"];
    let failures = report["failures"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(
        failures.is_empty(),
        "{} failures: {failures:#?}",
        failures.len()
    );
    assert!(report["checks"].as_u64() >= Some(40), "{report}");
}
