//! Revision 2026-07-28 through the proxy: every message is equal to the message of the server.

use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::{Server, Transport};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Options, ProxiedClient};
use riglm_tests::transcript::Transcript;

use crate::{modern_odd, modern_script, odd_with};

async fn direct(server: &Server, transport: Transport) -> Transcript {
    let upstream = server.start(transport).await;
    let client = upstream.modern_client();
    modern_script::everything().run(&client).await
}

async fn assert_transparent(downstream: Transport, upstream: Transport) {
    let server = modern_odd();
    let expected = direct(&server, upstream).await;
    let started = server.start(upstream).await;
    let line = ProxiedClient::modern(downstream, &started, &Options::default()).await;
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

/// The specification requires a stream of events, but some servers stream JSON without them.
#[tokio::test]
async fn messages_in_a_body_of_json_are_relayed_as_they_come() {
    let expected = direct(&modern_odd(), Transport::Streamable).await;
    for framing in ["lines", "nothing"] {
        let server = odd_with(&["--era", "modern", "--framing", framing]);
        let started = server.start(Transport::Streamable).await;
        let line =
            ProxiedClient::modern(Transport::Streamable, &started, &Options::default()).await;
        let seen = modern_script::everything().run(&line.client).await;
        if let Some(difference) = expected.difference(&seen) {
            panic!("{framing} between messages:\n{difference}");
        }
    }
}

#[tokio::test]
async fn direct_transcripts_are_equal_over_both_transports() {
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
    // The server reports the received headers, and over stdio there are none.
    assert_eq!(differing.len(), 1, "{report}");
    assert!(differing[0].contains("what the server saw"), "{report}");
}

#[tokio::test]
async fn unknown_argument_headers_reach_the_server() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = ProxiedClient::modern(Transport::Streamable, &upstream, &Options::default()).await;
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
async fn servers_refuse_the_other_era_with_the_specified_error() {
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
