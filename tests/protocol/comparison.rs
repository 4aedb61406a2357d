//! Runs of the same script directly and through the proxy, compared message by message.

use riglm_tests::fixture::{Server, Transport};
use riglm_tests::riglm::{Options, ProxiedClient};
use riglm_tests::script::Script;
use riglm_tests::transcript::Transcript;

use crate::answers;

/// Runs the script directly against the server.
pub(crate) async fn run_direct(
    server: &Server,
    transport: Transport,
    script: &Script,
) -> Transcript {
    let upstream = server.start(transport).await;
    let client = upstream.client(answers()).await;
    script.run(&client).await
}

/// Runs the script through the proxy.
pub(crate) async fn run_proxied(
    server: &Server,
    downstream: Transport,
    upstream: Transport,
    script: &Script,
) -> Transcript {
    let upstream = server.start(upstream).await;
    let line = ProxiedClient::through(downstream, &upstream, &Options::default(), answers()).await;
    script.run(&line.client).await
}

/// Fails if any message differs between the two runs.
pub(crate) async fn assert_transparent(
    server: &Server,
    downstream: Transport,
    upstream: Transport,
    script: &Script,
) {
    let expected = run_direct(server, upstream, script).await;
    let seen = run_proxied(server, downstream, upstream, script).await;
    if let Some(difference) = expected.difference(&seen) {
        panic!("{downstream:?} client, {upstream:?} server:\n{difference}");
    }
}
