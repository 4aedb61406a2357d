//! Snapshots of the problem bodies, at least one for each status.

use http::{HeaderName, header};
use serde_json::{Value, json};

use super::scene::{self, Server, server};
use super::*;
use crate::MetricsSource;
use crate::state::ControlParts;

pub(super) const OPERATOR: (HeaderName, &str) =
    (header::AUTHORIZATION, "Bearer the token of the operator");
const DASHBOARD: (HeaderName, &str) = (header::AUTHORIZATION, "Bearer the key of a dashboard");

/// A request that fails: method and path, headers, body.
pub(super) type FailingRequest<'a> = (
    (&'static str, &'a str),
    &'a [(HeaderName, &'static str)],
    &'a str,
);

/// Returns the responses to the requests, each with its request.
pub(super) async fn problems(server: &Server, requests: &[FailingRequest<'_>]) -> Vec<Value> {
    let mut problems = Vec::new();
    for (target, headers, sent) in requests {
        let response = server.exchange(*target, headers, sent).await;
        let header = |name: HeaderName| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap())
        };
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        problems.push(json!({
            "request": format!("{} {}", target.0, target.1),
            "sent": sent.chars().take(120).collect::<String>(),
            "status": response.status().as_u16(),
            "content-type": header(header::CONTENT_TYPE),
            "www-authenticate": header(header::WWW_AUTHENTICATE),
            "body": body,
        }));
    }
    problems
}

#[tokio::test]
async fn requests_without_permission_get_documented_problems() {
    let wrong = (header::AUTHORIZATION, "Bearer wrong");
    let host = &[(header::HOST, "evil.example")][..];
    let origin = &[(header::ORIGIN, "http://evil.example")][..];
    let problems = problems(
        &server().await,
        &[
            (("GET", "/tools"), &[], ""),
            (("GET", "/tools"), &[wrong], ""),
            (("POST", "/override"), &[DASHBOARD], "{}"),
            (("DELETE", "/overrides/x"), &[DASHBOARD], ""),
            (("PUT", "/config"), &[DASHBOARD], "{}"),
            (("GET", "/health"), host, ""),
            (("GET", "/health"), origin, ""),
            (("GET", "/nothing"), host, ""),
            (("GET", "/nothing"), origin, ""),
        ],
    )
    .await;
    insta::assert_json_snapshot!(problems);
}

#[tokio::test]
async fn unknown_paths_and_objects_get_documented_problems() {
    let operator = &[OPERATOR][..];
    let approval = r#"{"tool": "t", "hash": "00"}"#;
    let problems = problems(
        &server().await,
        &[
            (("GET", "/nothing"), &[], ""),
            (("POST", "/health"), &[], ""),
            (("GET", "/override"), operator, ""),
            (("GET", "/experiments/none"), operator, ""),
            (("POST", "/upstreams/none/approve"), operator, approval),
            (("GET", "/upstreams/none/held"), operator, ""),
            (("GET", "/page/none.js"), &[], ""),
            (("POST", "/page/tokens"), &[], r#"{"code": "unknown"}"#),
            (("GET", "/config"), operator, ""),
        ],
    )
    .await;
    insta::assert_json_snapshot!(problems);
}

#[tokio::test]
async fn missing_data_and_failures_get_documented_problems() {
    let operator = &[OPERATOR][..];
    let recommend = r#"{"query": "read a page"}"#;
    let without_store = scene::serve(scene::parts(scene::health(), None), Arc::default()).await;
    let mut problems_in_order = problems(
        &without_store,
        &[
            (("GET", "/sessions"), operator, ""),
            (("POST", "/recommendations"), operator, recommend),
        ],
    )
    .await;
    let failing = server().await;
    failing.store.start_failing();
    let decision = json!({
        "tool": "t", "action": "pin", "scope": {"kind": "global"}, "allow_unknown": true,
    });
    let decision = (("POST", "/override"), operator, &*decision.to_string());
    let of_store = problems(&failing, &[decision]).await;
    problems_in_order.extend(of_store);
    let without_metrics = ControlParts {
        metrics: MetricsSource::new("text/plain", || Err("broken".into())),
        ..scene::parts(scene::health(), None)
    };
    let without_metrics = scene::serve(without_metrics, Arc::default()).await;
    let of_metrics = problems(&without_metrics, &[(("GET", "/metrics"), operator, "")]).await;
    problems_in_order.extend(of_metrics);
    insta::assert_json_snapshot!(problems_in_order);
}
