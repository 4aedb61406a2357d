//! Streamable HTTP: POST sends, GET listens or resumes, DELETE ends. Messages of revision
//! 2026-07-28 or later are recognized here and served by [`modern`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use riglm_app::proxy::{ClientIdentity, ClientSession};
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

use super::connection::HttpLink;
use super::detachable::Detachable;
use super::event_log::{StreamError, StreamEvent, StreamReader};
use super::pending_session::PendingSession;
use super::port::ServerState;
use super::reader::{StreamOptions, event_stream};
use super::sessions::HeldSessions;
use super::{modern, reply, request};

/// The header with the session id.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header with the negotiated revision.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The header with the id of the last event that a client received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A request that is answered within this time gets one JSON body. A longer one gets a stream,
/// which can carry messages meanwhile and be resumed.
pub(super) const JSON_WITHIN: Duration = Duration::from_millis(250);

type Refusal = Box<Response>;

/// Serves one HTTP request to `/mcp` over the connection with these sessions.
pub(super) async fn serve(
    port: &Arc<ServerState>,
    sessions: &HeldSessions,
    request: Request<Body>,
) -> Response {
    respond(port, None, sessions, request).await
}

/// Serves one HTTP request to `/mcp/{profile}`.
pub(super) async fn serve_profile(
    State(port): State<Arc<ServerState>>,
    Extension(sessions): Extension<HeldSessions>,
    profile: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response {
    // A path segment that is not UTF-8 cannot be the name of a profile.
    let profile = profile.map_or_else(|_| String::new(), |Path(profile)| profile);
    respond(&port, Some(&profile), &sessions, request).await
}

async fn respond(
    port: &Arc<ServerState>,
    profile: Option<&str>,
    sessions: &HeldSessions,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let outcome = match request::admit_with_profile(port, &head, profile) {
        Err(refusal) => Err(refusal),
        Ok(visitor) => match head.method {
            Method::POST => post(port, &visitor, sessions, &head.headers, body).await,
            // Modern revisions have only POST.
            _ if modern::names_modern_revision(&head.headers) => {
                Err(Box::new(reply::not_allowed("POST")))
            }
            Method::GET => get(port, &visitor, sessions, &head.headers),
            Method::DELETE => delete(port, &visitor, &head.headers),
            _ => Err(Box::new(reply::not_allowed("GET, POST, DELETE"))),
        },
    };
    outcome.unwrap_or_else(|refusal| *refusal)
}

async fn post(
    port: &Arc<ServerState>,
    visitor: &ClientIdentity,
    sessions: &HeldSessions,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let can_stream = request::accepts(headers, "text/event-stream");
    let can_json = request::accepts(headers, "application/json");
    if !can_stream || !can_json {
        let text = "the header Accept must have application/json and text/event-stream";
        return Err(Box::new(reply::invalid(StatusCode::NOT_ACCEPTABLE, text)));
    }
    request::count_message(port, &visitor.principal)?;
    let message = request::message(headers, body, port.proxy.limits().request_body_bytes).await?;
    if modern::is_modern_message(headers, &message) {
        return modern::post(port, visitor, headers, message).await;
    }
    if is_initialize(&message) && !headers.contains_key(SESSION_ID) {
        return initialize(port, visitor, sessions, message).await;
    }
    let (session, link) = find(port, visitor, headers)?;
    sessions.hold(&session);
    let allows_batches = || (session.revision()).is_none_or(|it| it.allows_batches());
    if message.is_batch() && !allows_batches() {
        let text = "the revision of this session does not support JSON-RPC batches";
        return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
    }
    let ids: Vec<RequestId> = message.request_ids().cloned().collect();
    if ids.is_empty() {
        return Ok(match forward(session, message).await {
            Ok(()) => reply::empty(StatusCode::ACCEPTED),
            Err(error) => reply::error(reply::status_of(error.code), &error, None),
        });
    }
    let seat = open_stream(&link, &ids)?;
    let patience = if message.is_batch() {
        Duration::ZERO
    } else {
        JSON_WITHIN
    };
    let work = exchange(Arc::clone(&session), link, seat.stream(), message);
    let exchange = Detachable::new(work);
    Ok(answer(session, seat, exchange, patience).await)
}

/// Starts a session with its first message.
async fn initialize(
    port: &Arc<ServerState>,
    visitor: &ClientIdentity,
    sessions: &HeldSessions,
    message: Message,
) -> Result<Response, Refusal> {
    let ids: Vec<RequestId> = message.request_ids().cloned().collect();
    let link = Arc::new(HttpLink::new());
    let receiver = Arc::<HttpLink>::clone(&link);
    let accepted = (port.proxy).accept(Transport::StreamableHttp, visitor, receiver);
    let session = accepted.map_err(|error| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Box::new(reply::error(status, &error, ids.first()))
    })?;
    let id = match port.streamable.add(Arc::clone(&session), Arc::clone(&link)) {
        Ok(id) => id,
        Err(error) => {
            tracing::error!("failed to create a session id: {error}");
            session.close().await;
            return Err(Box::new(reply::empty(StatusCode::INTERNAL_SERVER_ERROR)));
        }
    };
    session.set_transport_id(&id);
    sessions.hold(&session);
    link.log.set_session(&session);
    // Ends the session on every early return below.
    let newborn = PendingSession::new(Arc::clone(port), id, Arc::clone(&session));
    let seat = open_stream(&link, &ids)?;
    let stream = seat.stream();
    let work = exchange(Arc::clone(&session), Arc::clone(&link), stream, message);
    let exchange = Detachable::new(work);
    // No early switch to a stream: most handshakes are answered at once, without messages before
    // the answer.
    let patience = port.proxy.limits().call_timeout_max;
    let mut response = answer(Arc::clone(&session), seat, exchange, patience).await;
    // In this order, because the session is initialized before its answer ends the stream.
    let is_over = link.log.is_over(stream);
    let is_initialized = session.is_initialized();
    if is_over && !is_initialized {
        return Ok(response); // Refused; the session ends.
    }
    let id = HeaderValue::try_from(newborn.id())
        .map_err(|_| Box::new(reply::empty(StatusCode::INTERNAL_SERVER_ERROR)))?;
    response.headers_mut().insert(SESSION_ID, id);
    if is_initialized {
        newborn.make_permanent();
    } else {
        // The server sent a message before its answer, which follows on the stream. The task ends
        // with the stream: at the latest when the request times out or the session is closed.
        tokio::spawn(async move {
            link.log.wait_until_over(stream).await;
            if session.is_initialized() {
                newborn.make_permanent();
            }
        });
    }
    Ok(response)
}

/// Opens the stream of a message with these requests.
fn open_stream(link: &HttpLink, ids: &[RequestId]) -> Result<StreamReader, Refusal> {
    link.log
        .open(ids)
        .map(|cursor| StreamReader::new(Arc::clone(&link.log), cursor))
        .map_err(|error| Box::new(refuse_stream(error, ids.first())))
}

/// Opens the standalone stream, or resumes an interrupted one.
fn get(
    port: &Arc<ServerState>,
    visitor: &ClientIdentity,
    sessions: &HeldSessions,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    if !request::accepts(headers, "text/event-stream") {
        let text = "the header Accept must have text/event-stream";
        return Err(Box::new(reply::invalid(StatusCode::NOT_ACCEPTABLE, text)));
    }
    let (session, link) = find(port, visitor, headers)?;
    sessions.hold(&session);
    session.touch();
    let opened = match headers.get(LAST_EVENT_ID) {
        None => link.log.listen(),
        Some(id) => id
            .to_str()
            .map_err(|_| StreamError::UnknownEvent)
            .and_then(|id| link.log.resume(id)),
    };
    let cursor = opened.map_err(|error| Box::new(refuse_stream(error, None)))?;
    let seat = StreamReader::new(Arc::clone(&link.log), cursor);
    let is_primed = sends_priming_event(&session) && !headers.contains_key(LAST_EVENT_ID);
    let opening = StreamOptions {
        first: None,
        is_primed,
        revoked: request::revocation(port, headers),
    };
    Ok(event_stream(seat, session, opening))
}

/// Ends a session. The processes of its upstreams may take seconds to end, and the client does not
/// wait for them.
fn delete(
    port: &Arc<ServerState>,
    visitor: &ClientIdentity,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let (session, _) = find(port, visitor, headers)?;
    if let Some(id) = headers.get(SESSION_ID).and_then(|id| id.to_str().ok()) {
        port.streamable.remove(id);
    }
    tokio::spawn(async move { session.close().await });
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Returns the session that a request names, if it belongs to the caller.
fn find(
    port: &ServerState,
    visitor: &ClientIdentity,
    headers: &HeaderMap,
) -> Result<(Arc<ClientSession>, Arc<HttpLink>), Refusal> {
    let Some(id) = headers.get(SESSION_ID) else {
        let text = "the header Mcp-Session-Id is missing; start with initialize";
        return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
    };
    let id = id.to_str().ok();
    let Some((session, link)) = id.and_then(|id| port.streamable.find(id, visitor)) else {
        let text = "the session is unknown or has ended; start a new one with initialize";
        let error = RpcError::new(RpcErrorCode::SessionNotFound, text);
        return Err(Box::new(reply::error(StatusCode::NOT_FOUND, &error, None)));
    };
    if let Some(version) = headers.get(PROTOCOL_VERSION) {
        let version = version.to_str().map(Revision::new).ok();
        let is_fine = version
            .is_some_and(|version| version.is_known() || session.revision() == Some(version));
        if !is_fine {
            let text = "the header MCP-Protocol-Version names an unsupported revision";
            return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
        }
    }
    Ok((session, link))
}

/// Returns the response to a posted message: one JSON body if the answer is the only message and
/// arrives within `patience`, otherwise a stream.
async fn answer(
    session: Arc<ClientSession>,
    mut seat: StreamReader,
    mut exchange: Detachable,
    patience: Duration,
) -> Response {
    let first = match first_event(&mut seat, &mut exchange, patience).await {
        Some(Some(event)) if event.is_last && event.number == 1 => {
            return reply::json(StatusCode::OK, event.data);
        }
        first => first.flatten(),
    };
    let opening = StreamOptions {
        first,
        is_primed: sends_priming_event(&session),
        // A request that was sent with a valid key is answered even if the key is revoked.
        revoked: Box::pin(std::future::pending()),
    };
    event_stream(seat, session, opening)
}

/// Drives an exchange until the first event of its stream, which is `None` when the stream ends
/// without one. Returns `None` after `patience`; the exchange continues by itself when it is
/// dropped.
async fn first_event(
    seat: &mut StreamReader,
    exchange: &mut Detachable,
    patience: Duration,
) -> Option<Option<StreamEvent>> {
    // Most answers come through the exchange. While it is polled here, checking the log after each
    // step is enough. Waiting for the log as well would make every answer wake its own task.
    let looking = std::future::poll_fn(|context| {
        let driven = Pin::new(&mut *exchange).poll(context);
        match seat.try_next() {
            Poll::Ready(event) => Poll::Ready(Some(event)),
            Poll::Pending => driven.map(|()| None),
        }
    });
    let started = tokio::time::Instant::now();
    if let Ok(Some(event)) = tokio::time::timeout(patience.min(JSON_WITHIN), looking).await {
        return Some(event);
    }
    let waiting = async {
        let next = seat.next();
        tokio::pin!(next);
        tokio::select! {
            biased;
            event = &mut next => event,
            () = &mut *exchange => next.await,
        }
    };
    let waited = tokio::time::timeout_at(started + patience, waiting).await;
    waited.ok()
}

fn sends_priming_event(session: &ClientSession) -> bool {
    session.is_initialized()
        && (session.revision()).is_some_and(|revision| revision.has_stream_priming())
}

/// Passes a message without requests to the session, on a separate task, so that it is forwarded
/// completely even if the client's connection breaks.
pub(super) async fn forward(session: Arc<ClientSession>, message: Message) -> Result<(), RpcError> {
    let forwarded = tokio::spawn(async move { session.receive(message).await.map(|_| ()) }).await;
    forwarded.unwrap_or_else(|_| {
        let text = "failed to process the message";
        Err(RpcError::new(RpcErrorCode::UpstreamUnavailable, text))
    })
}

/// Sends a message to the upstream and its answer to the stream of its requests.
async fn exchange(session: Arc<ClientSession>, link: Arc<HttpLink>, stream: u64, message: Message) {
    let received = session.receive(message).await;
    // The client may have left before the session knew the request.
    link.log.notify_if_left(stream);
    match received {
        Ok(Some(exchange)) => exchange.run.await,
        Ok(None) => {}
        Err(error) => tracing::debug!("failed to forward a message: {}", error.message),
    }
}

fn is_initialize(message: &Message) -> bool {
    let request = message.single().and_then(Envelope::as_request);
    request.is_some_and(|(method, _)| method == method::INITIALIZE)
}

fn refuse_stream(error: StreamError, id: Option<&RequestId>) -> Response {
    let text = match error {
        StreamError::DuplicateId => "a request with this id is already in flight",
        StreamError::UnknownEvent => "the header Last-Event-ID names an unknown or expired event",
        StreamError::Closed => "the session has ended",
    };
    let code = match error {
        StreamError::DuplicateId | StreamError::UnknownEvent => RpcErrorCode::InvalidRequest,
        StreamError::Closed => RpcErrorCode::SessionNotFound,
    };
    reply::error(reply::status_of(code), &RpcError::new(code, text), id)
}
