//! Requests that are refused before anything reaches the upstream.

use reqwest::{Method, StatusCode};

use crate::scene::{CompleteResponse, META, Scene, read, request};

const CALL: &str = r#""name":"t","arguments":{}"#;

/// Asserts the status, code and text of an error, and that nothing was forwarded.
fn assert_refused(scene: &Scene, read: &CompleteResponse, expected: (StatusCode, i64, &str)) {
    let (code, id) = read.error();
    assert_eq!((read.status, code, id.as_str()), expected, "{}", read.body);
    assert_eq!(scene.sent_texts(), Vec::<String>::new());
    assert_eq!(read.header("mcp-session-id"), "");
}

#[tokio::test]
async fn headers_inconsistent_with_the_body_are_refused() {
    let scene = Scene::new().await;
    let call = || request("\"a\"", "tools/call", CALL);
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let method = ("Mcp-Method", "tools/call");
    let name = ("Mcp-Name", "t");
    let cases: [&[(&str, &str)]; 10] = [
        &[method, name],
        &[version, name],
        &[version, method],
        &[("MCP-Protocol-Version", "2025-11-25"), method, name],
        &[version, ("Mcp-Method", "TOOLS/CALL"), name],
        &[version, method, ("Mcp-Name", "T")],
        &[version, method, ("Mcp-Name", "=?base64?x?=")],
        &[version, method, name, name],
        &[version, version, method, name],
        &[
            version,
            method,
            name,
            ("Mcp-Param-A", "1"),
            ("mcp-param-a", "1"),
        ],
    ];
    for headers in cases {
        let mut post = scene.post_text(call());
        for (name, value) in headers {
            post = post.header(*name, *value);
        }
        let refusal = read(post).await;
        assert_refused(&scene, &refusal, (StatusCode::BAD_REQUEST, -32020, "\"a\""));
    }
    for name in ["Mcp-Name", "Mcp-Param-Unknown"] {
        let value = reqwest::header::HeaderValue::from_bytes(b"caf\xc3\xa9").unwrap();
        let refusal = read(scene.post(call()).header(name, value)).await;
        assert_refused(&scene, &refusal, (StatusCode::BAD_REQUEST, -32020, "\"a\""));
    }
}

#[tokio::test]
async fn requests_without_required_metadata_are_refused() {
    let scene = Scene::new().await;
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let without = |key: &str| {
        let meta: Vec<&str> = META.split(",\"io").collect();
        let kept: Vec<&str> = meta
            .into_iter()
            .filter(|entry| !entry.contains(key))
            .collect();
        let meta = kept.join(",\"io");
        let meta = if meta.starts_with('"') {
            meta
        } else {
            format!("\"io{meta}")
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{meta}}}}}}}"#
        )
    };
    for text in [
        bare.to_owned(),
        without("protocolVersion"),
        without("clientCapabilities"),
    ] {
        let refusal = read(scene.post(text)).await;
        assert_refused(&scene, &refusal, (StatusCode::BAD_REQUEST, -32602, "1"));
    }
}

#[tokio::test]
async fn unknown_revisions_are_left_to_the_server() {
    let scene = Scene::new().await;
    let error = r#""error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}"#;
    scene.upstream.reply_to("tools/list", error);
    for (id, version) in [
        ("7", "1900-01-01"),
        ("8", "2099-01-01"),
        ("9", "2025-11-25"),
    ] {
        let text = request(id, "tools/list", "").replace("2026-07-28", version);
        let post = scene.post_text(text.clone());
        let post = post
            .header("MCP-Protocol-Version", version)
            .header("Mcp-Method", "tools/list");
        let refusal = read(post).await;
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{version}");
        assert!(refusal.body.contains(error), "{}", refusal.body);
        assert_eq!(scene.sent_texts().pop(), Some(text));
    }
}

#[tokio::test]
async fn removed_methods_are_not_found() {
    let scene = Scene::new().await;
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
    ] {
        let refusal = read(scene.post(request("7", method, ""))).await;
        assert_refused(&scene, &refusal, (StatusCode::NOT_FOUND, -32601, "7"));
    }
}

#[tokio::test]
async fn only_single_requests_and_notifications_are_taken() {
    let scene = Scene::new().await;
    let list = request("1", "tools/list", "");
    let cases = [
        (format!("[{list}]"), "null"),
        (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#.into(), "3"),
        (list.replace(r#""jsonrpc":"2.0","#, ""), "1"),
    ];
    for (text, id) in cases {
        let post = scene
            .post_text(text)
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/list");
        let refusal = read(post).await;
        assert_refused(&scene, &refusal, (StatusCode::BAD_REQUEST, -32600, id));
    }
}

#[tokio::test]
async fn other_methods_of_http_are_not_allowed() {
    let scene = Scene::new().await;
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let refusal = read(
            scene
                .bare(method)
                .header("accept", "text/event-stream")
                .header("MCP-Protocol-Version", "2026-07-28")
                .header("Mcp-Session-Id", "x"),
        )
        .await;
        assert_eq!(refusal.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(refusal.header("allow"), "POST");
    }
}

#[tokio::test]
async fn a_client_must_accept_both_forms_of_an_answer() {
    let scene = Scene::new().await;
    let post = scene.post(request("1", "tools/list", ""));
    let (client, request) = post.build_split();
    let mut request = request.unwrap();
    request
        .headers_mut()
        .insert("accept", "application/json".parse().unwrap());
    let response = client.execute(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(scene.sent_texts(), Vec::<String>::new());
}

#[tokio::test]
async fn handshakes_are_modern_only_with_modern_metadata() {
    let scene = Scene::new().await;
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}"#;
    let result = r#""result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
    scene.upstream.reply_to("initialize", result);
    let answer = read(scene.post(plain)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("mcp-session-id").len(), 32);
    scene
        .upstream
        .reply_to("initialize", r#""error":{"code":-32601,"message":"no"}"#);
    let answer = read(scene.post(request("1", "initialize", ""))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.header("mcp-session-id"), "");
}
