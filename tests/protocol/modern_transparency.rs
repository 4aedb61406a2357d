//! Revision 2026-07-28 through the proxy: no message differs from what the server itself says.

use riglm_tests::envelope::{integer_at, raw_at};
use riglm_tests::fixture::{Server, Transport};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Line, Options};
use riglm_tests::transcript::Transcript;

use crate::{modern_odd, modern_script};

async fn direct(server: &Server, transport: Transport) -> Transcript {
    let upstream = server.start(transport).await;
    let client = upstream.modern_client();
    modern_script::everything().run(&client).await
}

async fn assert_transparent(downstream: Transport, upstream: Transport) {
    let server = modern_odd();
    let expected = direct(&server, upstream).await;
    let started = server.start(upstream).await;
    let line = Line::modern(downstream, &started, &Options::default()).await;
    let seen = modern_script::everything().run(&line.client).await;
    if let Some(difference) = expected.difference(&seen) {
        panic!("{downstream:?} client, {upstream:?} server:\n{difference}");
    }
}

macro_rules! pairings {
    ($($name:ident: $downstream:ident, $upstream:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            assert_transparent(Transport::$downstream, Transport::$upstream).await;
        })*
    };
}

pairings! {
    stdio_client_with_stdio_server: Stdio, Stdio;
    stdio_client_with_http_server: Stdio, Streamable;
    http_client_with_stdio_server: Streamable, Stdio;
    http_client_with_http_server: Streamable, Streamable;
}

#[tokio::test]
async fn direct_conversations_are_alike_whatever_the_transport() {
    let over_stdio = direct(&modern_odd(), Transport::Stdio).await;
    let over_http = direct(&modern_odd(), Transport::Streamable).await;
    let again = direct(&modern_odd(), Transport::Streamable).await;
    assert_eq!(over_http.difference(&again), None);
    assert!(over_http.n_messages() > 90, "{}", over_http.n_messages());
    let report = over_stdio.difference(&over_http).unwrap_or_default();
    let differing: Vec<&str> = report
        .lines()
        .filter(|line| line.starts_with("step"))
        .collect();
    // Only stdio has no headers, and the server reports those that it saw.
    assert_eq!(differing.len(), 1, "{report}");
    assert!(differing[0].contains("what the server saw"), "{report}");
}

/// A POST that is refused, by what is wrong with it.
struct Wrong {
    name: &'static str,
    text: String,
    headers: &'static [(&'static str, Option<&'static str>)],
    status: u16,
    code: i64,
}

fn wrong_posts() -> Vec<Wrong> {
    let meta = Meta::default();
    let call = meta.call("7", "echo", r#"{"text":"t"}"#);
    let list = meta.request("7", "tools/list", "");
    let wrong = |name, text: &str, headers, status, code| Wrong {
        name,
        text: text.to_owned(),
        headers,
        status,
        code,
    };
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
        wrong(
            "no version header",
            &list,
            &[("mcp-protocol-version", None)],
            400,
            -32020,
        ),
        wrong(
            "another version in the header",
            &list,
            &[("mcp-protocol-version", Some("2025-11-25"))],
            400,
            -32020,
        ),
        wrong(
            "no method header",
            &list,
            &[("mcp-method", None)],
            400,
            -32020,
        ),
        wrong(
            "another method in the header",
            &list,
            &[("mcp-method", Some("tools/call"))],
            400,
            -32020,
        ),
        wrong(
            "another case of the method",
            &list,
            &[("mcp-method", Some("Tools/List"))],
            400,
            -32020,
        ),
        wrong("no name header", &call, &[("mcp-name", None)], 400, -32020),
        wrong(
            "another name in the header",
            &call,
            &[("mcp-name", Some("odd"))],
            400,
            -32020,
        ),
        wrong(
            "a name header that cannot be decoded",
            &call,
            &[("mcp-name", Some("=?base64?!!?="))],
            400,
            -32020,
        ),
        wrong(
            "no name header for a prompt",
            &meta.request("7", "prompts/get", r#""name":"p""#),
            &[("mcp-name", None)],
            400,
            -32020,
        ),
        wrong(
            "another URI in the header",
            &meta.request("7", "resources/read", r#""uri":"odd://r/1""#),
            &[("mcp-name", Some("odd://r/2"))],
            400,
            -32020,
        ),
        wrong(
            "an unknown version",
            &unknown_version.request("7", "tools/list", ""),
            &[],
            400,
            -32022,
        ),
        wrong("no capabilities", &bare(version), &[], 400, -32602),
        wrong(
            "a client that cannot be asked",
            &meta.with_capabilities("{}").call("7", "elicit", "{}"),
            &[],
            400,
            -32021,
        ),
        wrong(
            "an unknown method",
            &Meta::default().request("7", "odd/unknown", ""),
            &[],
            404,
            -32601,
        ),
        wrong(
            "a method that is gone",
            &Meta::default().request("7", "ping", ""),
            &[],
            404,
            -32601,
        ),
    ]
}

async fn assert_refused(client: &riglm_tests::client::RawClient, who: &str) {
    let mut failures = Vec::new();
    for post in wrong_posts() {
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
        let line = Line::modern(Transport::Streamable, &upstream, &Options::default()).await;
        assert_refused(&line.client, &format!("in front of {transport:?}")).await;
    }
}

#[tokio::test]
async fn headers_that_differ_from_the_arguments_are_refused() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = Line::modern(Transport::Streamable, &upstream, &Options::default()).await;
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
    let line = Line::modern(Transport::Streamable, &upstream, &Options::default()).await;
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

#[tokio::test]
async fn headers_of_arguments_reach_the_server_known_or_not() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = Line::modern(Transport::Streamable, &upstream, &Options::default()).await;
    line.client.set_header("Mcp-Param-Unknown", "x y");
    let seen = line
        .client
        .request(&Meta::default().call("1", "seen", "{}"))
        .await;
    let headers = raw_at(&seen.text, &["result", "structuredContent", "headers"]);
    let headers = headers.unwrap_or_else(|| panic!("{}", seen.text));
    for (name, value) in [
        ("mcp-param-unknown", "x y"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "seen"),
    ] {
        let expected = format!("\"{value}\"");
        assert_eq!(raw_at(&headers, &[name]), Some(expected), "{headers}");
    }
}

#[tokio::test]
async fn a_server_of_one_era_refuses_the_other_one_as_the_specification_says() {
    let initialize = riglm_tests::messages::initialize("0", "2025-11-25");
    let over_stdio = modern_odd().start(Transport::Stdio).await.modern_client();
    let refused = over_stdio.request(&initialize).await;
    assert!(
        raw_at(&refused.text, &["error"]).is_some_and(|error| error.contains("2026-07-28")),
        "{}",
        refused.text
    );
    let upstream = modern_odd().start(Transport::Streamable).await;
    let client = upstream.modern_client();
    let delivery = client.send(&initialize).await;
    assert_eq!(delivery.status, 400);
    assert!(delivery.body.contains("2026-07-28"), "{}", delivery.body);
    let url = upstream.url.clone().expect("the server has an address");
    for method in [http::Method::GET, http::Method::DELETE] {
        let answer = riglm_tests::plain_http::exchange(method, &url, &[], "")
            .await
            .unwrap_or_else(|error| panic!("{}", error.0));
        assert_eq!(answer.status, 405);
    }
}

#[tokio::test]
async fn a_server_of_both_eras_serves_both_on_one_connection() {
    let upstream = crate::dual_odd().start(Transport::Stdio).await;
    let client = upstream.client(crate::answers()).await;
    let discovered = client
        .request(&Meta::default().request("\"d\"", "server/discover", ""))
        .await;
    assert!(
        discovered.text.contains("2025-11-25"),
        "{}",
        discovered.text
    );
    client
        .initialize(&riglm_tests::messages::initialize("0", "2025-11-25"))
        .await;
    let legacy = client
        .request(&riglm_tests::messages::call("1", "elicit", "{}"))
        .await;
    assert!(legacy.text.contains("Ada"), "{}", legacy.text);
    let modern = client
        .request(&Meta::default().call("2", "elicit", "{}"))
        .await;
    assert!(modern.text.contains("input_required"), "{}", modern.text);
}
