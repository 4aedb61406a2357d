//! The unusual server over HTTP: `/mcp` here, `/sse` and `/messages` in `legacy_http`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::legacy_http;
use super::modern::{ServerState, is_modern_http, take_http};
use super::outlet::SessionOutput;
use super::session::Session;
use super::settings::{Era, Settings};
use super::streams::{Sessions, Streams};
use crate::envelope::{Envelope, json_string};

/// The maximum size of a request body.
const BODY_LIMIT: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) settings: Arc<Settings>,
    world: Arc<ServerState>,
    pub(super) sessions: Sessions<(Arc<Session>, Option<Arc<Streams>>)>,
    pub(super) opened: AtomicUsize,
    deleted: AtomicUsize,
}

impl Server {
    fn new(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self {
            world: ServerState::new(Arc::clone(&settings)),
            settings,
            sessions: Sessions::default(),
            opened: AtomicUsize::new(0),
            deleted: AtomicUsize::new(0),
        }
    }

    fn is_modern_only(&self) -> bool {
        self.settings.era == Era::Modern
    }

    pub(super) fn next_id(&self, prefix: &str) -> String {
        let n = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{prefix}-{n}")
    }

    pub(super) fn session(&self, id: &str) -> Option<(Arc<Session>, Option<Arc<Streams>>)> {
        self.sessions.lock().get(id).cloned()
    }
}

/// Serves on a free port of the loopback interface until the process ends.
///
/// # Errors
///
/// Returns the error of the listener.
pub async fn serve(settings: Settings) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let server = Server::new(settings);
    let mut router = Router::new()
        .route("/mcp", post(take).get(listen).delete(end))
        .route("/stats", get(stats));
    if !server.is_modern_only() {
        router = router
            .route("/sse", get(legacy_http::open))
            .route("/messages", post(legacy_http::take));
    }
    let router = router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Arc::new(server));
    // The head of a stream and its first event are two writes. Without `TCP_NODELAY` the second one
    // waits 40 ms.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            eprintln!("odd: TCP_NODELAY: {error}");
        }
    });
    axum::serve(listener, router).await
}

async fn take(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body).into_owned();
    let is_modern = match server.settings.era {
        Era::Legacy => false,
        Era::Modern => true,
        Era::Dual => is_modern_http(&headers, &text),
    };
    if is_modern {
        return take_http(&server.world, &headers, &text).await;
    }
    let envelopes = Envelope::all(&text);
    let is_initialize = envelopes
        .iter()
        .any(|envelope| envelope.method().as_deref() == Some("initialize"));
    let named = session_id(&headers);
    let (id, (session, streams)) = match named {
        None if is_initialize => create(&server),
        None => return refuse(StatusCode::BAD_REQUEST, "odd: no session id"),
        Some(id) => match server.session(&id) {
            Some(found) => (id, found),
            None => return refuse(StatusCode::NOT_FOUND, "odd: no such session"),
        },
    };
    session.with_record(|seen| seen.headers = as_json(&headers));
    let requests: Vec<String> = envelopes
        .iter()
        .filter(|envelope| envelope.is_request())
        .filter_map(|envelope| envelope.id().map(str::to_owned))
        .collect();
    let Some(streams) = streams.filter(|_| !requests.is_empty()) else {
        session.accept(text).await;
        return StatusCode::ACCEPTED.into_response();
    };
    let events = streams.open(requests);
    // A Streamable HTTP server may respond with a body or a stream. Both forms are tested.
    let as_body = envelopes
        .iter()
        .filter_map(Envelope::method)
        .any(|method| method.starts_with("resources/list") || method.starts_with("prompts/"));
    session.accept(text).await;
    if as_body {
        return json_body(&id, events).await;
    }
    event_stream(Some(&id), events)
}

fn create(server: &Server) -> (String, (Arc<Session>, Option<Arc<Streams>>)) {
    let id = server.next_id("odd-session");
    let streams = Arc::new(Streams::default());
    let session = Session::new(
        SessionOutput::Streams(Arc::clone(&streams)),
        Arc::clone(&server.settings),
    );
    let entry = (session, Some(streams));
    server.sessions.lock().insert(id.clone(), entry.clone());
    (id, entry)
}

async fn listen(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    if server.is_modern_only() {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let found = session_id(&headers).and_then(|id| server.session(&id));
    let Some((_, Some(streams))) = found else {
        return refuse(StatusCode::NOT_FOUND, "odd: no such session");
    };
    let last = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    match streams.resume(last) {
        Some(events) => event_stream(None, events),
        None => refuse(StatusCode::BAD_REQUEST, "odd: no such event"),
    }
}

async fn end(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    if server.is_modern_only() {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let removed = session_id(&headers).and_then(|id| server.sessions.lock().remove(&id));
    if removed.is_none() {
        return refuse(StatusCode::NOT_FOUND, "odd: no such session");
    }
    server.deleted.fetch_add(1, Ordering::Relaxed);
    StatusCode::OK.into_response()
}

async fn stats(State(server): State<Arc<Server>>) -> String {
    let open = server.sessions.lock().len();
    format!(
        r#"{{"open":{open},"opened":{},"deleted":{}}}"#,
        server.opened.load(Ordering::Relaxed),
        server.deleted.load(Ordering::Relaxed)
    )
}

/// Responds with the only message of the stream as a pretty-printed JSON body.
async fn json_body(id: &str, mut events: mpsc::Receiver<Bytes>) -> Response {
    let event = events.recv().await.unwrap_or_default();
    let mut decoder = crate::sse::Decoder::default();
    let data = decoder.feed(&event).pop().unwrap_or_default().data;
    let body = format!("\n{}\n", data.replace(r#","id""#, ",\r\n\t \"id\""));
    let headers = [("content-type", "application/json"), ("mcp-session-id", id)];
    (headers, body).into_response()
}

/// Responds with events until their sender is dropped.
pub(super) fn event_stream(id: Option<&str>, events: mpsc::Receiver<Bytes>) -> Response {
    stream_of("text/event-stream", id, events)
}

/// Responds with a body of this content type until the sender of its parts is dropped.
pub(super) fn stream_of(
    content_type: &str,
    id: Option<&str>,
    events: mpsc::Receiver<Bytes>,
) -> Response {
    let body = stream::unfold(events, |mut events| async move {
        let event = events.recv().await?;
        Some((Ok::<_, io::Error>(event), events))
    });
    let mut response = Response::builder().header("content-type", content_type);
    if let Some(id) = id {
        response = response.header("mcp-session-id", id);
    }
    response
        .body(Body::from_stream(body))
        .expect("the headers are valid")
}

fn refuse(status: StatusCode, message: &str) -> Response {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32000,"message":{}}}}}"#,
        json_string(message)
    );
    (status, [("content-type", "application/json")], body).into_response()
}

fn session_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("mcp-session-id")?.to_str().ok()?;
    Some(value.to_owned())
}

/// Returns headers as a JSON object. Values of repeated headers are joined.
pub(super) fn as_json(headers: &HeaderMap) -> String {
    let members: Vec<String> = headers
        .keys()
        .map(|name| {
            let values: Vec<String> = headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect();
            format!(
                "{}:{}",
                json_string(name.as_str()),
                json_string(&values.join(", "))
            )
        })
        .collect();
    format!("{{{}}}", members.join(","))
}
