//! Black-box tests of the protocol through the proxy: raw clients, raw servers, real processes.
#![expect(
    clippy::panic,
    reason = "the functions that tests share report failures by panicking"
)]

mod abandoned_sessions;
mod bad_input;
mod client_variant;
mod comparison;
mod era_matrix;
mod everything_script;
mod first_lists;
mod local_answers;
mod many_upstreams;
mod modern_refusals;
mod modern_script;
mod modern_transparency;
mod nesting;
mod odd_script;
mod order;
mod pairings;
mod real_servers;
mod resumption;
mod rounds;
mod search_tool;
mod security;
mod session_app;
mod sessions;
mod short_sessions;
mod slow_start;
mod transparency;
mod unavailable_upstreams;
mod upstream_failures;

use std::path::PathBuf;

use riglm_tests::answers::Answers;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::messages;
use riglm_tests::riglm::{Options, ProxiedClient};

fn odd() -> Server {
    Server::Odd(PathBuf::from(env!("CARGO_BIN_EXE_odd-server")))
}

fn odd_with(arguments: &[&str]) -> Server {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Server::OddWith(PathBuf::from(env!("CARGO_BIN_EXE_odd-server")), arguments)
}

/// Returns the unusual server with only revision 2026-07-28.
fn modern_odd() -> Server {
    odd_with(&["--era", "modern"])
}

/// Returns the unusual server with both eras.
fn dual_odd() -> Server {
    odd_with(&["--era", "dual"])
}

/// Returns the command of the unusual server over stdio.
fn odd_over_stdio() -> Upstream {
    Upstream::of_command(vec![
        env!("CARGO_BIN_EXE_odd-server").into(),
        "stdio".into(),
    ])
}

/// Returns the responses of a client that also knows `odd/ask`, the request of the unusual server.
fn answers() -> Answers {
    Answers::full().with(
        "odd/ask",
        r#"{"jsonrpc":"2.0","x-top":[null],"id":$ID,"result":{"asked":$PARAMS,"n":1.0}}"#,
    )
}

/// Connects a client through the proxy to the unusual server and initialises the session.
async fn connect(downstream: Transport, upstream: &Upstream) -> ProxiedClient {
    connect_with(downstream, upstream, &Options::default()).await
}

/// Like [`connected`], with options of the proxy.
async fn connect_with(
    downstream: Transport,
    upstream: &Upstream,
    options: &Options,
) -> ProxiedClient {
    let line = ProxiedClient::through(downstream, upstream, options, answers()).await;
    line.client
        .initialize(&messages::initialize("0", "2025-11-25"))
        .await;
    line
}
