//! Overrides over HTTP.

use jiff::SignedDuration;
use serde_json::{Value, json};

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
async fn who_has_no_token_or_not_the_scope_is_refused() {
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
async fn what_does_not_fit_is_refused_with_the_reason() {
    let server = server().await;
    let global = json!({"kind": "global"});
    for (body, status, reason) in [
        (
            json!({"action": "pin", "scope": global}),
            422,
            "missing field `tool`",
        ),
        (
            json!({"tool": "", "action": "pin", "scope": global}),
            422,
            "tool must have 1 to 10000",
        ),
        (
            json!({"tool": 7, "action": "pin", "scope": global}),
            422,
            "invalid type",
        ),
        (
            json!({"tool": "t", "action": "show", "scope": global}),
            422,
            "unknown variant",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": global, "x": 1}),
            422,
            "unknown field `x`",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": {"kind": "client"}}),
            422,
            "scope.id",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": {"kind": "global", "id": "x"}}),
            422,
            "scope.id must not",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": global, "expires_at": "soon"}),
            422,
            "invalid body",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": global, "expires_at": NOW}),
            422,
            "in the past",
        ),
        (
            json!({"tool": "t", "action": "pin", "scope": global, "reason": "x".repeat(1_001)}),
            422,
            "at most 1000 characters",
        ),
        (
            json!({"tool": "t".repeat(100_000)}),
            413,
            "more than 65536 bytes",
        ),
        (json!([]), 422, "invalid body"),
    ] {
        let (answered, _, problem) = server.decide(&body).await;
        let detail = problem["detail"].as_str().unwrap();
        let start: String = body.to_string().chars().take(80).collect();
        assert_eq!(answered, status, "{start}: {detail}");
        assert!(detail.contains(reason), "{start}: {detail}");
    }
    let (status, _, problem) = server.send("POST", "/override", Some(KEYS[0].1), "{").await;
    assert_eq!(
        (status, &problem["detail"]),
        (400, &json!("the body is not valid JSON"))
    );
    for query in ["0", "1001", "-1", "x", "1&x=2"] {
        let path = format!("/audit?limit={query}");
        let (status, _, _) = server.send("GET", &path, Some(KEYS[0].1), "").await;
        assert_eq!(status, 422, "{query}");
    }
    for id in [
        "x",
        "%ff",
        "019b7ca9-8c88-7909-8909-090909090909",
        "%F0%9F%94%A7",
    ] {
        let path = format!("/overrides/{id}");
        let (status, _, _) = server.send("DELETE", &path, Some(KEYS[0].1), "").await;
        assert_eq!(status, 404, "{id}");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_told_as_such() {
    let server = server().await;
    server.store.start_failing();
    let body = json!({"tool": "t", "action": "pin", "scope": {"kind": "global"}});
    let (status, _, problem) = server.decide(&with_allow_unknown(&body)).await;
    assert_eq!(status, 503);
    assert_eq!(problem["detail"], "the database is unavailable");
}
