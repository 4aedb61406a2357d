//! Runs of the same script directly and through the proxy, compared message by message.

use riglm_tests::fixture::{Server, Transport, Upstream};
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
    // The process of a check comes with what the check has told it, so there is none.
    let arguments = upstream.as_arguments();
    let line = match arguments.split_first() {
        Some((separator, command)) if separator == "--" => {
            let command = serde_json::Value::from(command);
            let unchecked =
                format!("[upstreams.alone]\nhealth_check = false\ncommand = {command}\n");
            let options = Options::with_configuration(&unchecked);
            let configured = Upstream::from_configuration();
            ProxiedClient::through(downstream, &configured, &options, answers()).await
        }
        _ => {
            let options = Options::default();
            ProxiedClient::through(downstream, &upstream, &options, answers()).await
        }
    };
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
