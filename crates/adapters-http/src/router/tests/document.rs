//! The `OpenAPI` document.

use serde_json::Value;

use super::scene::server;

#[tokio::test]
async fn the_document_has_every_route_once_with_a_name_of_its_own() {
    let (status, document) = server().await.get("/openapi.json").await;
    assert_eq!(status, 200);
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let paths = document["paths"].as_object().unwrap();
    let mut routes: Vec<String> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            routes.push(format!("{method} {path}"));
            names.push(operation["operationId"].as_str().unwrap());
        }
    }
    routes.sort_unstable();
    let expected = [
        "delete /overrides/{id}",
        "get /audit",
        "get /config",
        "get /events",
        "get /experiments",
        "get /experiments/{name}",
        "get /health",
        "get /health/ready",
        "get /metrics",
        "get /overrides",
        "get /predictions/{session_id}",
        "get /sessions",
        "get /sessions/{id}",
        "get /tools",
        "get /tools/{tool_name}/stats",
        "get /upstreams",
        "post /experiments/{name}/stop",
        "post /feedback",
        "post /override",
        "post /recommendations",
        "post /upstreams/{name}/approve",
        "put /config",
    ];
    assert_eq!(routes, expected);
    let n_names = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n_names);
}

#[tokio::test]
async fn what_asks_for_a_token_says_so_and_is_refused_without() {
    let server = server().await;
    let (_, document) = server.get("/openapi.json").await;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_open = path.starts_with("/health");
            assert_eq!(operation["security"] == Value::Null, is_open, "{path}");
            let path = path.replace(['{', '}'], "");
            let method = method.to_uppercase();
            let (status, _, _) = server.send(&method, &path, None, "{}").await;
            assert_eq!(status == 401, !is_open, "{method} {path}: {status}");
        }
    }
}
