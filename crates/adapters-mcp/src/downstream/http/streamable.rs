//! Streamable HTTP: POST sends, GET listens or resumes, DELETE ends. What belongs to revision
//! 2026-07-28 or later is told from the rest here and served by [`modern`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use riglm_app::proxy::{ClientSession, Visitor};
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};

use super::connection::HttpLink;
use super::detachable::Detachable;
use super::event_log::{Event, Seat, StreamError};
use super::newborn::Newborn;
use super::port::Port;
use super::reader::{Opening, event_stream};
use super::{modern, reply, request};

/// The header that carries the session id.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header that carries the agreed revision.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The header that carries the id of the last event that a client saw.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A request that is answered within this time gets one JSON body; a longer one gets a stream,
/// which can carry messages meanwhile and be resumed.
pub(super) const JSON_WITHIN: Duration = Duration::from_millis(250);

type Refusal = Box<Response>;

/// Serves one HTTP request to `/mcp`.
pub(super) async fn serve(State(port): State<Arc<Port>>, request: Request<Body>) -> Response {
    served(&port, None, request).await
}

/// Serves one HTTP request to `/mcp/{profile}`.
pub(super) async fn serve_profile(
    State(port): State<Arc<Port>>,
    profile: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response {
    // What is no text is the name of no profile.
    let profile = profile.map_or_else(|_| String::new(), |Path(profile)| profile);
    served(&port, Some(&profile), request).await
}

async fn served(port: &Arc<Port>, profile: Option<&str>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let outcome = match request::visit(port, &head, profile) {
        Err(refusal) => Err(refusal),
        Ok(visitor) => match head.method {
            Method::POST => post(port, &visitor, &head.headers, body).await,
            _ if modern::is_named_in(&head.headers) => Err(Box::new(not_allowed("POST"))),
            Method::GET => get(port, &visitor, &head.headers),
            Method::DELETE => delete(port, &visitor, &head.headers).await,
            _ => Err(Box::new(not_allowed("GET, POST, DELETE"))),
        },
    };
    outcome.unwrap_or_else(|refusal| *refusal)
}

fn not_allowed(allowed: &'static str) -> Response {
    let mut response = reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

async fn post(
    port: &Arc<Port>,
    visitor: &Visitor,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let can_stream = request::accepts(headers, "text/event-stream");
    let can_json = request::accepts(headers, "application/json");
    if !can_stream || !can_json {
        let text = "the client must accept application/json and text/event-stream";
        return Err(Box::new(reply::invalid(StatusCode::NOT_ACCEPTABLE, text)));
    }
    request::count(port, &visitor.principal)?;
    let message = request::message(headers, body, port.proxy.limits().request_body_bytes).await?;
    if modern::is_meant(headers, &message) {
        return modern::post(port, visitor, headers, message).await;
    }
    if is_initialize(&message) && !headers.contains_key(SESSION_ID) {
        return initialize(port, visitor, message).await;
    }
    let (session, link) = find(port, visitor, headers)?;
    if message.is_batch()
        && !session
            .revision()
            .is_none_or(|revision| revision.allows_batches())
    {
        let text = "the revision of this session has no JSON-RPC batches";
        return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
    }
    let ids: Vec<RequestId> = message.request_ids().cloned().collect();
    if ids.is_empty() {
        return Ok(match forward(session, message).await {
            Ok(()) => reply::empty(StatusCode::ACCEPTED),
            Err(error) => reply::error(reply::status_of(error.code), &error, None),
        });
    }
    let seat = take_seat(&link, &ids)?;
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
    port: &Arc<Port>,
    visitor: &Visitor,
    message: Message,
) -> Result<Response, Refusal> {
    let ids: Vec<RequestId> = message.request_ids().cloned().collect();
    let link = Arc::new(HttpLink::new());
    let session = port
        .proxy
        .accept(
            Transport::StreamableHttp,
            visitor,
            Arc::<HttpLink>::clone(&link),
        )
        .map_err(|error| {
            Box::new(reply::error(
                StatusCode::SERVICE_UNAVAILABLE,
                &error,
                ids.first(),
            ))
        })?;
    let id = match port.streamable.add(Arc::clone(&session), Arc::clone(&link)) {
        Ok(id) => id,
        Err(error) => {
            tracing::error!("no session id can be made: {error}");
            session.close().await;
            return Err(Box::new(reply::empty(StatusCode::INTERNAL_SERVER_ERROR)));
        }
    };
    session.named_by_transport(&id);
    link.log.belongs_to(&session);
    let newborn = Newborn::new(Arc::clone(port), id, Arc::clone(&session));
    let seat = take_seat(&link, &ids)?;
    let stream = seat.stream();
    let work = exchange(Arc::clone(&session), Arc::clone(&link), stream, message);
    let exchange = Detachable::new(work);
    // No hurry to stream: most handshakes are answered at once and say nothing before that.
    let patience = port.proxy.limits().call_timeout_max;
    let mut response = answer(Arc::clone(&session), seat, exchange, patience).await;
    // Asked in this order, because the session is initialized before its answer ends the stream.
    let is_over = link.log.is_over(stream);
    let is_initialized = session.is_initialized();
    if is_over && !is_initialized {
        return Ok(response); // Refused; the session ends.
    }
    let id = HeaderValue::try_from(newborn.id())
        .map_err(|_| Box::new(reply::empty(StatusCode::INTERNAL_SERVER_ERROR)))?;
    response.headers_mut().insert(SESSION_ID, id);
    if is_initialized {
        newborn.live();
    } else {
        // The server said something before its answer, which follows on the stream. The task ends
        // with the stream: at the latest when the request times out or the session is closed.
        tokio::spawn(async move {
            link.log.over(stream).await;
            if session.is_initialized() {
                newborn.live();
            }
        });
    }
    Ok(response)
}

/// Opens the stream of a message with these requests.
fn take_seat(link: &HttpLink, ids: &[RequestId]) -> Result<Seat, Refusal> {
    link.log
        .open(ids)
        .map(|cursor| Seat::new(Arc::clone(&link.log), cursor))
        .map_err(|error| Box::new(refuse_stream(error, ids.first())))
}

/// Opens the standalone stream, or takes up a broken one.
fn get(port: &Arc<Port>, visitor: &Visitor, headers: &HeaderMap) -> Result<Response, Refusal> {
    if !request::accepts(headers, "text/event-stream") {
        let text = "the client must accept text/event-stream";
        return Err(Box::new(reply::invalid(StatusCode::NOT_ACCEPTABLE, text)));
    }
    let (session, link) = find(port, visitor, headers)?;
    session.touch();
    let opened = match headers.get(LAST_EVENT_ID) {
        None => link.log.listen(),
        Some(id) => id
            .to_str()
            .map_err(|_| StreamError::UnknownEvent)
            .and_then(|id| link.log.resume(id)),
    };
    let cursor = opened.map_err(|error| Box::new(refuse_stream(error, None)))?;
    let seat = Seat::new(Arc::clone(&link.log), cursor);
    let is_primed = primes(&session) && !headers.contains_key(LAST_EVENT_ID);
    let opening = Opening {
        first: None,
        is_primed,
        revoked: request::revoked(port, headers),
    };
    Ok(event_stream(seat, session, opening))
}

/// Ends a session.
async fn delete(
    port: &Arc<Port>,
    visitor: &Visitor,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let (session, _) = find(port, visitor, headers)?;
    if let Some(id) = headers.get(SESSION_ID).and_then(|id| id.to_str().ok()) {
        port.streamable.remove(id);
    }
    let closed = tokio::spawn(async move { session.close().await });
    Ok(match closed.await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(_) => reply::empty(StatusCode::INTERNAL_SERVER_ERROR),
    })
}

/// Returns the session that a request names, if the caller may use it.
fn find(
    port: &Port,
    visitor: &Visitor,
    headers: &HeaderMap,
) -> Result<(Arc<ClientSession>, Arc<HttpLink>), Refusal> {
    let Some(id) = headers.get(SESSION_ID) else {
        let text = "the header Mcp-Session-Id is missing; start with initialize";
        return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
    };
    let found = id
        .to_str()
        .ok()
        .and_then(|id| port.streamable.find(id, visitor));
    let Some((session, link)) = found else {
        let text = "the session is unknown or has ended; start a new one with initialize";
        let error = RpcError::new(RpcErrorCode::SessionNotFound, text);
        return Err(Box::new(reply::error(StatusCode::NOT_FOUND, &error, None)));
    };
    if let Some(version) = headers.get(PROTOCOL_VERSION) {
        let version = version.to_str().map(Revision::new).ok();
        let is_fine = version
            .is_some_and(|version| version.is_known() || session.revision() == Some(version));
        if !is_fine {
            let text = "the header MCP-Protocol-Version names a revision that this server lacks";
            return Err(Box::new(reply::invalid(StatusCode::BAD_REQUEST, text)));
        }
    }
    Ok((session, link))
}

/// Returns the response that carries the answer to what was posted: one JSON body when the answer
/// comes within `patience` and is all there is, or else a stream.
async fn answer(
    session: Arc<ClientSession>,
    mut seat: Seat,
    mut exchange: Detachable,
    patience: Duration,
) -> Response {
    let first = match first_event(&mut seat, &mut exchange, patience).await {
        Some(Some(event)) if event.is_last && event.number == 1 => {
            return reply::json(StatusCode::OK, event.data);
        }
        first => first.flatten(),
    };
    let opening = Opening {
        first,
        is_primed: primes(&session),
        // What was asked for while the key was good is answered.
        revoked: Box::pin(std::future::pending()),
    };
    event_stream(seat, session, opening)
}

/// Drives an exchange until the first event of its stream, which is `None` when the stream ends
/// without one. Returns `None` when `patience` ends before that; the exchange goes on by itself
/// when it is dropped.
async fn first_event(
    seat: &mut Seat,
    exchange: &mut Detachable,
    patience: Duration,
) -> Option<Option<Event>> {
    // Most answers come through the exchange. While it is driven here it is enough to look at the
    // log after each step: to wait for the log as well would make every answer wake its own task.
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
    tokio::time::timeout_at(started + patience, waiting)
        .await
        .ok()
}

fn primes(session: &ClientSession) -> bool {
    session.is_initialized()
        && session
            .revision()
            .is_some_and(|revision| revision.primes_streams())
}

/// Hands a message without requests to the session, on a task of its own, so that it arrives whole
/// although the client's connection may break meanwhile.
pub(super) async fn forward(session: Arc<ClientSession>, message: Message) -> Result<(), RpcError> {
    let forwarded = tokio::spawn(async move { session.receive(message).await.map(|_| ()) }).await;
    forwarded.unwrap_or_else(|_| {
        let text = "the message could not be processed";
        Err(RpcError::new(RpcErrorCode::UpstreamUnavailable, text))
    })
}

/// Takes a message to the upstream and its answer to the stream of its requests.
async fn exchange(session: Arc<ClientSession>, link: Arc<HttpLink>, stream: u64, message: Message) {
    let received = session.receive(message).await;
    // Its client may have gone before the session knew of it.
    link.log.tell_if_left(stream);
    match received {
        Ok(Some(exchange)) => exchange.run.await,
        Ok(None) => {}
        Err(error) => tracing::debug!("a message was not passed on: {}", error.message),
    }
}

fn is_initialize(message: &Message) -> bool {
    message
        .single()
        .and_then(Envelope::as_request)
        .is_some_and(|(method, _)| method == "initialize")
}

fn refuse_stream(error: StreamError, id: Option<&RequestId>) -> Response {
    let (status, code, text) = match error {
        StreamError::DuplicateId => (
            StatusCode::BAD_REQUEST,
            RpcErrorCode::InvalidRequest,
            "a request with this id is in flight already",
        ),
        StreamError::UnknownEvent => (
            StatusCode::BAD_REQUEST,
            RpcErrorCode::InvalidRequest,
            "the header Last-Event-ID names an event that is not known any more",
        ),
        StreamError::Closed => (
            StatusCode::NOT_FOUND,
            RpcErrorCode::SessionNotFound,
            "the session has ended",
        ),
    };
    reply::error(status, &RpcError::new(code, text), id)
}
