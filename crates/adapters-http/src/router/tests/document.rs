//! The `OpenAPI` document.

use std::collections::BTreeSet;

use serde_json::Value;

use super::scene::server;

#[tokio::test]
async fn the_document_describes_every_route() {
    let (status, document) = server().await.get("/openapi.json").await;
    assert_eq!(status, 200);
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let version = (r#""version": "\d+\.\d+\.\d+""#, r#""version": "<version>""#);
    insta::with_settings!({filters => [version]}, {
        insta::assert_json_snapshot!(document);
    });
}

#[tokio::test]
async fn operations_have_names_of_their_own() {
    let (_, document) = server().await.get("/openapi.json").await;
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let names = operations.map(|operation| operation["operationId"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "{names:?}");
}

#[tokio::test]
async fn documented_security_is_enforced() {
    let server = server().await;
    let (_, document) = server.get("/openapi.json").await;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_open = path.starts_with("/health") || path == "/page/tokens";
            assert_eq!(operation["security"] == Value::Null, is_open, "{path}");
            let path = path.replace(['{', '}'], "");
            let method = method.to_uppercase();
            let (status, _, _) = server.send(&method, &path, None, "{}").await;
            assert_eq!(status == 401, !is_open, "{method} {path}: {status}");
        }
    }
}
