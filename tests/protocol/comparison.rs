//! The same script held directly and through the proxy, compared message by message.

use riglm_tests::fixture::{Server, Transport};
use riglm_tests::riglm::{Line, Options};
use riglm_tests::script::Script;
use riglm_tests::transcript::Transcript;

use crate::answers;

/// Holds the script directly against the server over this transport.
pub(crate) async fn direct(server: &Server, transport: Transport, script: &Script) -> Transcript {
    let upstream = server.start(transport).await;
    let client = upstream.client(answers()).await;
    script.run(&client).await
}

/// Holds the script through the proxy.
pub(crate) async fn proxied(
    server: &Server,
    downstream: Transport,
    upstream: Transport,
    script: &Script,
) -> Transcript {
    let upstream = server.start(upstream).await;
    let line = Line::through(downstream, &upstream, &Options::default(), answers()).await;
    script.run(&line.client).await
}

/// Fails unless every message is the same directly and through the proxy.
pub(crate) async fn assert_transparent(
    server: &Server,
    downstream: Transport,
    upstream: Transport,
    script: &Script,
) {
    let expected = direct(server, upstream, script).await;
    let seen = proxied(server, downstream, upstream, script).await;
    if let Some(difference) = expected.difference(&seen) {
        panic!("{downstream:?} client, {upstream:?} server:\n{difference}");
    }
}
