//! The unusual server over HTTP+SSE as of 2024-11-05.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::http_server::{Server, as_json, event_stream};
use super::outlet::{Framing, SessionOutput};
use super::session::Session;
use super::streams::QUEUE;

#[derive(Debug, Deserialize)]
pub(super) struct SessionQuery {
    #[serde(rename = "sessionId")]
    session_id: String,
}

pub(super) async fn open(State(server): State<Arc<Server>>) -> Response {
    let id = server.next_id("odd-legacy");
    let (pipe, events) = mpsc::channel(QUEUE);
    let endpoint = format!("event: endpoint\ndata: /messages?sessionId={id}\n\n");
    // The queue is new and has room for its first event.
    let _ = pipe.try_send(Bytes::from(endpoint));
    let session = Session::new(
        SessionOutput::Pipe(pipe, Framing::Events),
        Arc::clone(&server.settings),
    );
    server.sessions.lock().insert(id, (session, None));
    event_stream(None, events)
}

pub(super) async fn take(
    State(server): State<Arc<Server>>,
    Query(named): Query<SessionQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some((session, _)) = server.session(&named.session_id) else {
        return (StatusCode::NOT_FOUND, "odd: no such session").into_response();
    };
    session.with_record(|seen| seen.headers = as_json(&headers));
    session
        .accept(String::from_utf8_lossy(&body).into_owned())
        .await;
    (StatusCode::ACCEPTED, "Accepted").into_response()
}
