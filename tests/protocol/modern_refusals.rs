//! Invalid POSTs of revision 2026-07-28 and their errors: the same table for the unusual server
//! itself and for the proxy in front of every server.

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{integer_at, raw_at};
use riglm_tests::fixture::Transport;
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Options, ProxiedClient};

use crate::modern_odd;

/// An invalid POST and the expected error.
struct InvalidPost {
    name: &'static str,
    text: String,
    headers: Headers,
    status: u16,
    code: i64,
}

/// Headers that differ from the ones derived from the body. `None` leaves a header out.
type Headers = &'static [(&'static str, Option<&'static str>)];

fn invalid_post(
    name: &'static str,
    text: &str,
    headers: Headers,
    (status, code): (u16, i64),
) -> InvalidPost {
    InvalidPost {
        name,
        text: text.to_owned(),
        headers,
        status,
        code,
    }
}

/// Returns POSTs whose headers do not match their bodies.
fn wrong_headers() -> Vec<InvalidPost> {
    let meta = Meta::default();
    let call = meta.call("7", "echo", r#"{"text":"t"}"#);
    let list = meta.request("7", "tools/list", "");
    let prompt = meta.request("7", "prompts/get", r#""name":"p""#);
    let read = meta.request("7", "resources/read", r#""uri":"odd://r/1""#);
    let rows: [(&'static str, &str, Headers); 10] = [
        (
            "no version header",
            &list,
            &[("mcp-protocol-version", None)],
        ),
        (
            "another version in the header",
            &list,
            &[("mcp-protocol-version", Some("2025-11-25"))],
        ),
        ("no method header", &list, &[("mcp-method", None)]),
        (
            "another method in the header",
            &list,
            &[("mcp-method", Some("tools/call"))],
        ),
        (
            "another case of the method",
            &list,
            &[("mcp-method", Some("Tools/List"))],
        ),
        ("no name header", &call, &[("mcp-name", None)]),
        (
            "another name in the header",
            &call,
            &[("mcp-name", Some("odd"))],
        ),
        (
            "a name header that cannot be decoded",
            &call,
            &[("mcp-name", Some("=?base64?!!?="))],
        ),
        (
            "no name header for a prompt",
            &prompt,
            &[("mcp-name", None)],
        ),
        (
            "another URI in the header",
            &read,
            &[("mcp-name", Some("odd://r/2"))],
        ),
    ];
    rows.into_iter()
        .map(|(name, text, headers)| invalid_post(name, text, headers, (400, -32020)))
        .collect()
}

/// Returns POSTs with missing members, or with unknown methods or revisions.
fn wrong_bodies() -> Vec<InvalidPost> {
    let meta = Meta::default();
    let unknown_version = Meta {
        version: "2099-01-01".into(),
        ..Meta::default()
    };
    let bare = |members: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{"_meta":{{{members}}}}}}}"#
        )
    };
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    vec![
        invalid_post(
            "an unknown version",
            &unknown_version.request("7", "tools/list", ""),
            &[],
            (400, -32022),
        ),
        invalid_post("no capabilities", &bare(version), &[], (400, -32602)),
        invalid_post(
            "a client that cannot be asked",
            &meta.with_capabilities("{}").call("7", "elicit", "{}"),
            &[],
            (400, -32021),
        ),
        invalid_post(
            "an unknown method",
            &Meta::default().request("7", "odd/unknown", ""),
            &[],
            (404, -32601),
        ),
        invalid_post(
            "a method that is gone",
            &Meta::default().request("7", "ping", ""),
            &[],
            (404, -32601),
        ),
    ]
}

async fn assert_refused(client: &RawClient, who: &str) {
    let mut failures = Vec::new();
    for post in wrong_headers().into_iter().chain(wrong_bodies()) {
        let delivery = client.send_with(&post.text, post.headers).await;
        let code = integer_at(&delivery.body, &["error", "code"]);
        let id = raw_at(&delivery.body, &["id"]);
        if (delivery.status, code) != (post.status, Some(post.code)) || id.as_deref() != Some("7") {
            failures.push(format!(
                "{}: expected {} and {}, got {} {}",
                post.name, post.status, post.code, delivery.status, delivery.body
            ));
        }
    }
    assert!(failures.is_empty(), "{who}:\n{}", failures.join("\n"));
}

#[tokio::test]
async fn the_server_itself_refuses_wrong_posts() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    assert_refused(&upstream.modern_client(), "directly").await;
}

#[tokio::test]
async fn wrong_posts_are_refused_in_front_of_every_server() {
    for transport in [Transport::Stdio, Transport::Streamable] {
        let upstream = modern_odd().start(transport).await;
        let line =
            ProxiedClient::modern(Transport::Streamable, &upstream, &Options::default()).await;
        assert_refused(&line.client, &format!("in front of {transport:?}")).await;
    }
}

#[tokio::test]
async fn headers_differing_from_the_arguments_are_refused() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = ProxiedClient::modern(Transport::Streamable, &upstream, &Options::default()).await;
    let text = Meta::default().call("7", "mirrored", r#"{"region":"us-west1"}"#);
    for (who, client) in [
        ("direct", upstream.modern_client()),
        ("proxied", line.client),
    ] {
        for (value, status) in [
            (None, 400),
            (Some("eu"), 400),
            (Some("=?base64?!!?="), 400),
            (Some("us-west1"), 200),
            (Some("=?base64?dXMtd2VzdDE=?="), 200),
        ] {
            let headers = [("mcp-param-region", value)];
            let delivery = client.send_with(&text, &headers).await;
            assert_eq!(
                delivery.status, status,
                "{who}, {value:?}: {}",
                delivery.body
            );
            let code = integer_at(&delivery.body, &["error", "code"]);
            assert!(
                status == 200 || code == Some(-32020),
                "{who}: {}",
                delivery.body
            );
        }
    }
}

#[tokio::test]
async fn the_error_for_an_unknown_version_names_the_known_ones() {
    let unknown = Meta {
        version: "2099-01-01".into(),
        ..Meta::default()
    };
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = ProxiedClient::modern(Transport::Streamable, &upstream, &Options::default()).await;
    for (who, client) in [
        ("direct", upstream.modern_client()),
        ("proxied", line.client),
    ] {
        let text = unknown.request("1", "tools/list", "");
        let delivery = client.send_with(&text, &[]).await;
        let data = raw_at(&delivery.body, &["error", "data"]).unwrap_or_default();
        assert_eq!(
            raw_at(&data, &["requested"]).as_deref(),
            Some("\"2099-01-01\""),
            "{who}: {}",
            delivery.body
        );
        let supported = raw_at(&data, &["supported"]).unwrap_or_default();
        assert!(supported.contains("2026-07-28"), "{who}: {}", delivery.body);
    }
}
