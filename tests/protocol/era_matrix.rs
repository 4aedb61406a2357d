//! Every feature between clients and servers of both eras over every transport.
//!
//! The rows of the table are pairings, its columns are features, and each cell is one test,
//! `era_matrix::CLIENT_to_SERVER::FEATURE`. A cell asserts the messages that the client receives in
//! its own era. Cells that the specification makes impossible are in [`IMPOSSIBLE`] with the
//! sentence of the specification; they assert the expected error. The `direct_` rows contain the
//! same cells without the proxy, where client and server have the same era.

mod cell;
mod input_requests;
mod lists;
mod notifications;
mod tasks;

use riglm_tests::fixture::Transport;

use cell::{Cell, Route};

/// The protocol era of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Up to 2025-11-25, with a handshake.
    Legacy,
    Modern,
}

type Side = (Era, Transport);

const LEGACY_STDIO: Side = (Era::Legacy, Transport::Stdio);
const LEGACY_HTTP: Side = (Era::Legacy, Transport::Streamable);
const LEGACY_SSE: Side = (Era::Legacy, Transport::Legacy);
const MODERN_STDIO: Side = (Era::Modern, Transport::Stdio);
const MODERN_HTTP: Side = (Era::Modern, Transport::Streamable);

/// An impossible cell: the feature, the eras of client and server (`None` for both eras), and the
/// sentence of the specification that makes it impossible.
type Impossible = (&'static str, Option<Era>, Option<Era>, &'static str);

const IMPOSSIBLE: [Impossible; 4] = [
    (
        "ping",
        Some(Era::Modern),
        None,
        "2026-07-28, changelog: ping is removed; basic/transports/streamable-http: \"If the server \
         does not implement the requested RPC method, it MUST respond with 404 Not Found and a \
         JSON-RPC error with code -32601\"",
    ),
    (
        "request_of_an_extension",
        Some(Era::Modern),
        Some(Era::Legacy),
        "2026-07-28, basic/patterns/mrtr: \"inputRequests values are request objects that MUST be \
         one of ElicitRequest, CreateMessageRequest, or ListRootsRequest\"",
    ),
    (
        "request_of_an_extension",
        None,
        Some(Era::Modern),
        "2026-07-28, basic/transports/streamable-http: \"The server MUST NOT send independent \
         JSON-RPC requests on this stream\"",
    ),
    (
        "task_handle",
        Some(Era::Legacy),
        Some(Era::Modern),
        "tasks extension, Capability Negotiation: \"The server is the sole decider; clients do not \
         signal task preference on the request itself\"; 2025-11-25, basic/utilities/tasks: \
         \"Receivers that do not declare the task capability for a request type MUST process \
         requests of that type normally, ignoring any task-augmentation metadata if present\"",
    ),
];

/// Returns the sentence that makes a cell impossible, if any.
fn impossible_because(feature: &str, client: Era, server: Era) -> Option<&'static str> {
    IMPOSSIBLE
        .iter()
        .find(|(name, of_client, of_server, _)| {
            *name == feature
                && of_client.is_none_or(|era| era == client)
                && of_server.is_none_or(|era| era == server)
        })
        .map(|(.., sentence)| *sentence)
}

macro_rules! columns {
    ($route:expr, $client:expr, $server:expr; $($group:ident: $($feature:ident),*;)*) => {
        $($(#[tokio::test]
        async fn $feature() {
            let cell = Cell::open($route, $client, $server, stringify!($feature)).await;
            super::$group::$feature(&cell).await;
        })*)*
    };
}

macro_rules! rows {
    ($($row:ident: $route:ident, $client:ident, $server:ident;)*) => {
        $(mod $row {
            use super::*;

            columns! {
                Route::$route, $client, $server;
                lists: opening, tools, prompts, resources, skills, completion, paging, not_found, errors,
                    ping;
                notifications: progress, cancellation, logging, list_changes, subscriptions;
                input_requests: elicitation, sampling, roots, two_rounds, both_at_once, refusal,
                    client_without_elicitation, request_of_an_extension;
                tasks: task_only_tool, task_that_asks, task_that_fails, task_handle, cancelled_task;
            }
        })*
    };
}

rows! {
    direct_legacy_stdio: Direct, LEGACY_STDIO, LEGACY_STDIO;
    direct_legacy_http: Direct, LEGACY_HTTP, LEGACY_HTTP;
    direct_legacy_sse: Direct, LEGACY_SSE, LEGACY_SSE;
    direct_modern_stdio: Direct, MODERN_STDIO, MODERN_STDIO;
    direct_modern_http: Direct, MODERN_HTTP, MODERN_HTTP;

    legacy_stdio_to_legacy_stdio: Proxied, LEGACY_STDIO, LEGACY_STDIO;
    legacy_stdio_to_legacy_http: Proxied, LEGACY_STDIO, LEGACY_HTTP;
    legacy_stdio_to_legacy_sse: Proxied, LEGACY_STDIO, LEGACY_SSE;
    legacy_stdio_to_modern_stdio: Proxied, LEGACY_STDIO, MODERN_STDIO;
    legacy_stdio_to_modern_http: Proxied, LEGACY_STDIO, MODERN_HTTP;

    legacy_http_to_legacy_stdio: Proxied, LEGACY_HTTP, LEGACY_STDIO;
    legacy_http_to_legacy_http: Proxied, LEGACY_HTTP, LEGACY_HTTP;
    legacy_http_to_legacy_sse: Proxied, LEGACY_HTTP, LEGACY_SSE;
    legacy_http_to_modern_stdio: Proxied, LEGACY_HTTP, MODERN_STDIO;
    legacy_http_to_modern_http: Proxied, LEGACY_HTTP, MODERN_HTTP;

    legacy_sse_to_legacy_stdio: Proxied, LEGACY_SSE, LEGACY_STDIO;
    legacy_sse_to_legacy_http: Proxied, LEGACY_SSE, LEGACY_HTTP;
    legacy_sse_to_legacy_sse: Proxied, LEGACY_SSE, LEGACY_SSE;
    legacy_sse_to_modern_stdio: Proxied, LEGACY_SSE, MODERN_STDIO;
    legacy_sse_to_modern_http: Proxied, LEGACY_SSE, MODERN_HTTP;

    modern_stdio_to_legacy_stdio: Proxied, MODERN_STDIO, LEGACY_STDIO;
    modern_stdio_to_legacy_http: Proxied, MODERN_STDIO, LEGACY_HTTP;
    modern_stdio_to_legacy_sse: Proxied, MODERN_STDIO, LEGACY_SSE;
    modern_stdio_to_modern_stdio: Proxied, MODERN_STDIO, MODERN_STDIO;
    modern_stdio_to_modern_http: Proxied, MODERN_STDIO, MODERN_HTTP;

    modern_http_to_legacy_stdio: Proxied, MODERN_HTTP, LEGACY_STDIO;
    modern_http_to_legacy_http: Proxied, MODERN_HTTP, LEGACY_HTTP;
    modern_http_to_legacy_sse: Proxied, MODERN_HTTP, LEGACY_SSE;
    modern_http_to_modern_stdio: Proxied, MODERN_HTTP, MODERN_STDIO;
    modern_http_to_modern_http: Proxied, MODERN_HTTP, MODERN_HTTP;
}
