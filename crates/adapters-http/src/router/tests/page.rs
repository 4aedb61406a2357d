//! The page, its one-time codes, and the routes that it alone needs.

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use http::header;
use riglm_app::proxy::Upstream;
use riglm_domain::id::UpstreamName;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::problems::OPERATOR;
use super::scene::{self, NOW, Server, server};
use super::*;

const ACCEPTS_GZIP: (HeaderName, &str) = (header::ACCEPT_ENCODING, "gzip, deflate, br");

/// Sends GET without a token.
async fn fetch(
    server: &Server,
    path: &str,
    headers: &[(HeaderName, &str)],
) -> http::Response<Bytes> {
    server.exchange(("GET", path), headers, "").await
}

fn header_of<'a>(response: &'a http::Response<Bytes>, name: &HeaderName) -> &'a str {
    let value = response.headers().get(name);
    let value = value.unwrap_or_else(|| panic!("no header {name}"));
    value.to_str().unwrap()
}

fn text_of(response: &http::Response<Bytes>) -> String {
    let body = response.body();
    if response.headers().get(header::CONTENT_ENCODING).is_none() {
        return String::from_utf8(body.to_vec()).unwrap();
    }
    assert_eq!(header_of(response, &header::CONTENT_ENCODING), "gzip");
    let mut text = String::new();
    GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn the_page_needs_one_request_and_no_token() {
    let server = server().await;
    let compressed = fetch(&server, "/", &[ACCEPTS_GZIP]).await;
    assert_eq!(compressed.status(), 200);
    let media_type = header_of(&compressed, &header::CONTENT_TYPE);
    assert_eq!(media_type, "text/html; charset=utf-8");
    assert_eq!(header_of(&compressed, &header::CACHE_CONTROL), "no-cache");
    let referrer = header_of(&compressed, &header::REFERRER_POLICY);
    assert_eq!(referrer, "no-referrer");
    let sniffing = header_of(&compressed, &header::X_CONTENT_TYPE_OPTIONS);
    assert_eq!(sniffing, "nosniff");
    assert_eq!(header_of(&compressed, &header::VARY), "accept-encoding");

    let plain = fetch(&server, "/", &[]).await;
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    assert!(plain.body().len() > compressed.body().len());
    let text = text_of(&plain);
    assert_eq!(text_of(&compressed), text);

    let (_, rest) = text.split_once("<style>").unwrap();
    let (style, _) = rest.split_once("</style>").unwrap();
    let digest = STANDARD.encode(Sha256::digest(style));
    assert_eq!(
        header_of(&plain, &header::CONTENT_SECURITY_POLICY),
        format!(
            "default-src 'none'; script-src 'self'; style-src 'sha256-{digest}'; \
             img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        )
    );
    // The policy would block these.
    let markup = text.replacen(style, "", 1);
    assert!(!markup.contains(" style="), "{markup}");
    assert!(!markup.contains("rel=\"stylesheet\""), "{markup}");
    for script in markup.split("<script").skip(1) {
        let (attributes, content) = script.split_once('>').unwrap();
        assert!(attributes.contains(" src=\"/page/"), "{attributes}");
        assert!(content.starts_with("</script>"), "{content}");
    }
}

/// Returns the paths of the files of the page that a text refers to.
fn references(text: &str) -> BTreeSet<String> {
    let after = |mark: &str| -> Vec<String> {
        (text.split(mark).skip(1))
            .filter_map(|rest| rest.split_once(['"', '\'']))
            .map(|(name, _)| format!("/page/{name}"))
            .collect()
    };
    ["\"/page/", "'/page/", "\"./", "'./"]
        .into_iter()
        .flat_map(after)
        // Requests for codes and tokens are no files.
        .filter(|path| path.contains('.'))
        .collect()
}

#[tokio::test]
async fn every_file_that_the_page_refers_to_is_served() {
    let server = server().await;
    let page = text_of(&fetch(&server, "/", &[]).await);
    let mut waiting = references(&page);
    // The script loads the file of a screen when the screen is shown.
    let screens = page.split("href=\"#/").skip(1);
    let screens = screens.filter_map(|rest| rest.split_once('"'));
    waiting.extend(screens.map(|(name, _)| format!("/page/{name}.js")));
    waiting.extend(["session", "tool"].map(|name| format!("/page/{name}.js")));
    let mut seen = BTreeSet::new();
    while let Some(path) = waiting.pop_first() {
        let file = fetch(&server, &path, &[ACCEPTS_GZIP]).await;
        assert_eq!(file.status(), 200, "{path}");
        let media_type = header_of(&file, &header::CONTENT_TYPE);
        let expected = match path.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("{path} has the unknown ending {other}"),
        };
        assert_eq!(media_type, expected, "{path}");
        seen.insert(path);
        let found = references(&text_of(&file));
        waiting.extend(found.difference(&seen).cloned());
    }
    assert!(seen.contains("/page/main.js"), "{seen:?}");
    assert!(seen.contains("/page/changes.js"), "{seen:?}");
}

#[tokio::test]
async fn unchanged_files_are_not_sent_again() {
    let server = server().await;
    for path in ["/", "/page/main.js"] {
        let compressed = fetch(&server, path, &[ACCEPTS_GZIP]).await;
        let plain = fetch(&server, path, &[]).await;
        let tag = header_of(&compressed, &header::ETAG);
        // Other bytes have another strong tag.
        assert_ne!(tag, header_of(&plain, &header::ETAG));
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let again = fetch(&server, path, &[ACCEPTS_GZIP, (header::IF_NONE_MATCH, tag)]).await;
        assert_eq!(again.status(), 304);
        assert!(again.body().is_empty());
        assert_eq!(header_of(&again, &header::ETAG), tag);
        assert_eq!(header_of(&again, &header::CACHE_CONTROL), "no-cache");
        let other = fetch(&server, path, &[(header::IF_NONE_MATCH, tag)]).await;
        assert_eq!(other.status(), 200);
    }
}

#[tokio::test]
async fn only_known_files_are_served_to_allowed_hosts() {
    let server = server().await;
    for path in [
        "/page/index.html",
        "/page/none.js",
        "/page/..%2FCargo.toml",
        "/page/%FF",
        "/page/",
        "/page",
    ] {
        let response = fetch(&server, path, &[]).await;
        assert_eq!(response.status(), 404, "{path}");
        let media_type = header_of(&response, &header::CONTENT_TYPE);
        assert_eq!(media_type, "application/problem+json", "{path}");
    }
    for path in ["/", "/page/main.js"] {
        let foreign = [(header::HOST, "evil.example")];
        assert_eq!(fetch(&server, path, &foreign).await.status(), 403, "{path}");
        let foreign = [(header::ORIGIN, "http://evil.example")];
        assert_eq!(fetch(&server, path, &foreign).await.status(), 403, "{path}");
        let head = server.exchange(("HEAD", path), &[], "").await;
        let whole = fetch(&server, path, &[]).await;
        assert_eq!(head.status(), 200);
        assert!(head.body().is_empty());
        assert_eq!(
            header_of(&head, &header::CONTENT_LENGTH),
            whole.body().len().to_string()
        );
        let posted = server.exchange(("POST", path), &[], "{}").await;
        assert_eq!(posted.status(), 405, "{path}");
    }
    let (status, document) = server.get("/openapi.json").await;
    assert_eq!(status, 200);
    assert_eq!(document["paths"]["/page/{file}"], Value::Null);
    assert_ne!(document["paths"]["/page/codes"], Value::Null);
}

#[tokio::test]
async fn a_token_is_described_by_its_principal_and_scopes() {
    let server = server().await;
    let (status, described) = server.get("/token").await;
    let all = json!(["read", "override", "config", "data"]);
    assert_eq!(status, 200);
    assert_eq!(described, json!({"principal": "control", "scopes": all}));
    let (_, _, described) = server.send("GET", "/token", Some(KEYS[1].1), "").await;
    assert_eq!(described, json!({"principal": "page", "scopes": ["read"]}));
    let (status, ..) = server.send("GET", "/token", Some("unknown"), "").await;
    assert_eq!(status, 401);
}

/// Asks for a code with a token.
async fn code(server: &Server, token: &str) -> String {
    let (status, _, created) = server.send("POST", "/page/codes", Some(token), "").await;
    assert_eq!(status, 201, "{created}");
    created["code"].as_str().unwrap().to_owned()
}

/// Exchanges a code, without a token.
async fn exchange(server: &Server, code: &str) -> (u16, Value) {
    let body = json!({ "code": code }).to_string();
    let (status, _, answer) = server.send("POST", "/page/tokens", None, &body).await;
    (status, answer)
}

#[tokio::test]
async fn a_code_is_exchanged_once_for_the_token_that_asked_for_it() {
    let server = server().await;
    let created = server
        .exchange(("POST", "/page/codes"), &[OPERATOR], "")
        .await;
    assert_eq!(created.status(), 201);
    assert_eq!(header_of(&created, &header::CACHE_CONTROL), "no-store");
    let created: Value = serde_json::from_slice(created.body()).unwrap();
    let expires_at: jiff::Timestamp = created["expires_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires_at, NOW + jiff::SignedDuration::from_mins(1));
    let first = created["code"].as_str().unwrap();
    let second = code(&server, KEYS[1].1).await;
    assert_ne!(first, second);

    let body = json!({ "code": first }).to_string();
    let exchanged = server.exchange(("POST", "/page/tokens"), &[], &body).await;
    assert_eq!(exchanged.status(), 200);
    assert_eq!(header_of(&exchanged, &header::CACHE_CONTROL), "no-store");
    let exchanged: Value = serde_json::from_slice(exchanged.body()).unwrap();
    assert_eq!(exchanged, json!({"token": KEYS[0].1}));
    assert_eq!(
        exchange(&server, &second).await,
        (200, json!({"token": KEYS[1].1}))
    );
    for used in [first, &second, "unknown"] {
        let (status, problem) = exchange(&server, used).await;
        assert_eq!((status, &problem["status"]), (404, &json!(404)), "{used}");
    }
}

#[tokio::test]
async fn codes_end_with_the_key_of_their_token() {
    let parts = scene::parts(scene::health(), None);
    let keys_in_use = parts.keys.clone();
    let server = scene::serve(parts, Arc::default()).await;
    let code = code(&server, KEYS[1].1).await;
    keys_in_use.replace(Vec::new());
    assert_eq!(exchange(&server, &code).await.0, 404);
}

#[tokio::test]
async fn codes_need_a_token_and_exchanges_an_allowed_origin() {
    let server = server().await;
    let (status, ..) = server.send("POST", "/page/codes", None, "").await;
    assert_eq!(status, 401);
    let (status, ..) = server.send("GET", "/page/codes", Some(KEYS[0].1), "").await;
    assert_eq!(status, 405);
    let code = code(&server, KEYS[0].1).await;
    let body = json!({ "code": code }).to_string();
    let foreign = [(header::ORIGIN, "http://evil.example")];
    let refused = server
        .exchange(("POST", "/page/tokens"), &foreign, &body)
        .await;
    assert_eq!(refused.status(), 403);
    for (body, status) in [("{}", 422), (r#"{"code": ""}"#, 422), ("", 400)] {
        let answer = server.exchange(("POST", "/page/tokens"), &[], body).await;
        assert_eq!(answer.status(), status, "{body}");
    }
    // A refused request does not use the code.
    let own = [(header::ORIGIN, "http://127.0.0.1:8643")];
    let allowed = server.exchange(("POST", "/page/tokens"), &own, &body).await;
    assert_eq!(allowed.status(), 200);
}

#[tokio::test]
async fn an_upstream_without_held_changes_has_an_empty_list() {
    let name = UpstreamName::parse("files").unwrap();
    let upstream = Upstream::new(Arc::new(ScriptedUpstream::new(name)));
    let parts = scene::parts_with(scene::health(), None, vec![upstream]);
    let server = scene::serve(parts, Arc::default()).await;
    let held = server.get("/upstreams/files/held").await;
    assert_eq!(held, (200, json!({"held": []})));
    let (status, problem) = server.get("/upstreams/none/held").await;
    assert_eq!(status, 404);
    assert_eq!(problem["detail"], "unknown upstream \"none\"");
}
