//! Overrides over HTTP.

use http::header;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::problems::{FailingRequest, OPERATOR, problems};
use super::scene::{NOW, Server, server};
use super::*;

impl Server {
    async fn decide(&self, body: &Value) -> (u16, Option<String>, Value) {
        let token = Some(KEYS[0].1);
        self.send("POST", "/override", token, &body.to_string())
            .await
    }
}

/// Returns the body with `allow_unknown`, because no upstream listed its tool.
fn with_allow_unknown(body: &Value) -> Value {
    let mut body = body.clone();
    body["allow_unknown"] = true.into();
    body
}

#[tokio::test]
async fn a_decision_is_made_listed_audited_and_removed() {
    let server = server().await;
    let end = NOW + SignedDuration::from_hours(1);
    let asked = json!({
        "tool": "odd/name \u{1f527} %2F",
        "action": "exclude",
        "scope": {"kind": "profile", "id": "few"},
        "expires_at": end,
        "reason": "it is being repaired",
    });
    let (status, place, decided) = server.decide(&with_allow_unknown(&asked)).await;
    assert_eq!(status, 201, "{decided}");
    for (key, value) in asked.as_object().unwrap() {
        assert_eq!(&decided[key], value, "{key}");
    }
    assert_eq!(decided["created_by"], "control");
    let place = place.unwrap();
    assert_eq!(
        place,
        format!("/overrides/{}", decided["id"].as_str().unwrap())
    );

    let (status, _, listed) = server.send("GET", "/overrides", Some(KEYS[1].1), "").await;
    assert_eq!((status, &listed), (200, &json!({"overrides": [decided]})));
    let (status, _, _) = server.send("DELETE", &place, Some(KEYS[0].1), "").await;
    assert_eq!(status, 204);
    let (status, _, problem) = server.send("DELETE", &place, Some(KEYS[0].1), "").await;
    assert_eq!((status, &problem["status"]), (404, &json!(404)));
    let (status, _, trail) = server
        .send("GET", "/audit?limit=2", Some(KEYS[1].1), "")
        .await;
    assert_eq!(status, 200);
    let actions: Vec<&Value> = trail["entries"].as_array().unwrap().iter().collect();
    assert_eq!(actions.len(), 2);
    assert_eq!(actions[0]["action"], "override.create");
    assert_eq!(actions[1]["action"], "override.remove");
}

#[tokio::test]
async fn requests_without_token_or_scope_are_refused() {
    let server = server().await;
    let body = json!({"tool": "t", "action": "pin", "scope": {"kind": "global"}}).to_string();
    for (method, path) in [
        ("POST", "/override"),
        ("GET", "/overrides"),
        ("DELETE", "/overrides/x"),
        ("GET", "/audit"),
    ] {
        for token in [
            None,
            Some(""),
            Some("wrong"),
            Some("the token of the operator2"),
        ] {
            let (status, _, problem) = server.send(method, path, token, &body).await;
            assert_eq!(
                (status, &problem["status"]),
                (401, &json!(401)),
                "{method} {path}"
            );
        }
    }
    let (status, _, problem) = server
        .send("POST", "/override", Some(KEYS[1].1), &body)
        .await;
    assert_eq!(status, 403);
    assert_eq!(
        problem["detail"],
        "the token does not have the scope override"
    );
    let (status, _, _) = server
        .send("DELETE", "/overrides/x", Some(KEYS[1].1), "")
        .await;
    assert_eq!(status, 403);
    let (status, _, _) = server.send("GET", "/override", Some(KEYS[0].1), "").await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn invalid_decisions_are_refused_with_the_reason() {
    let global = json!({"kind": "global"});
    let long = "x".repeat(1_001);
    let mut bodies: Vec<String> = [
        json!({"action": "pin", "scope": global}),
        json!({"tool": "", "action": "pin", "scope": global}),
        json!({"tool": 7, "action": "pin", "scope": global}),
        json!({"tool": "t", "action": "show", "scope": global}),
        json!({"tool": "t", "action": "pin", "scope": global, "x": 1}),
        json!({"tool": "t", "action": "pin", "scope": {"kind": "client"}}),
        json!({"tool": "t", "action": "pin", "scope": {"kind": "global", "id": "x"}}),
        json!({"tool": "t", "action": "pin", "scope": global, "expires_at": "soon"}),
        json!({"tool": "t", "action": "pin", "scope": global, "expires_at": NOW}),
        json!({"tool": "t", "action": "pin", "scope": global, "reason": long}),
        json!({"tool": "unheard_of", "action": "pin", "scope": global}),
        json!({"tool": "t".repeat(100_000)}),
        json!([]),
    ]
    .map(|body| body.to_string())
    .into();
    bodies.push("{".into());
    let operator = &[OPERATOR][..];
    let requests = bodies.iter();
    let mut requests: Vec<FailingRequest<'_>> = requests
        .map(|body| (("POST", "/override"), operator, &**body))
        .collect();
    let text = (header::CONTENT_TYPE, "text/plain");
    let as_text = [OPERATOR, text];
    requests.push((("POST", "/override"), &as_text, "{}"));
    for path in [
        "/audit?limit=0",
        "/audit?limit=1001",
        "/audit?limit=-1",
        "/audit?limit=x",
        "/audit?limit=1&x=2",
    ] {
        requests.push((("GET", path), operator, ""));
    }
    for path in [
        "/overrides/x",
        "/overrides/%ff",
        "/overrides/019b7ca9-8c88-7909-8909-090909090909",
        "/overrides/%F0%9F%94%A7",
    ] {
        requests.push((("DELETE", path), operator, ""));
    }
    insta::assert_json_snapshot!(problems(&server().await, &requests).await);
}
