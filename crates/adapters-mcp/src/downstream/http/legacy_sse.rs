//! HTTP+SSE of revision 2024-11-05: GET opens the single stream of a session and sends the URL to
//! which messages are posted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use riglm_app::proxy::{ClientIdentity, ClientSession};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

use super::connection::SseLink;
use super::port::ServerState;
use super::reader::{COMMENT, KEEP_ALIVE, sse_response};
use super::{reply, request};

/// Serves one HTTP request to `/sse`.
pub(super) async fn open(State(port): State<Arc<ServerState>>, request: Request<Body>) -> Response {
    let (head, _) = request.into_parts();
    let principal = match request::admit(&port, &head) {
        Ok(principal) => principal,
        Err(refusal) => return *refusal,
    };
    if head.method != Method::GET {
        return reply::not_allowed("GET");
    }
    let (link, events) = SseLink::new();
    let link = Arc::new(link);
    let receiver = Arc::<SseLink>::clone(&link);
    let accepted = port.proxy.accept(Transport::Sse, &principal, receiver);
    let session = match accepted {
        Ok(session) => session,
        Err(error) => return reply::error(StatusCode::SERVICE_UNAVAILABLE, &error, None),
    };
    // Set afterwards, because the session is created with the link.
    link.set_session(&session);
    let id = match port.legacy.add(Arc::clone(&session), link) {
        Ok(id) => id,
        Err(error) => {
            tracing::error!("failed to create a session id: {error}");
            return reply::empty(StatusCode::INTERNAL_SERVER_ERROR);
        }
    };
    let endpoint = format!("event: endpoint\ndata: /messages?sessionId={id}\n\n");
    let revoked = request::revocation(&port, &head.headers);
    let client = StreamClient { port, id, session };
    let body = futures_util::stream::unfold(
        (Some(Bytes::from(endpoint)), events, client, revoked),
        |(endpoint, mut events, client, mut revoked)| async move {
            let chunk = if let Some(endpoint) = endpoint {
                endpoint
            } else {
                tokio::select! {
                    biased;
                    () = &mut revoked => return None,
                    next = tokio::time::timeout(KEEP_ALIVE, events.recv()) => match next {
                        Ok(event) => event?.text,
                        Err(_) => COMMENT,
                    },
                }
            };
            client.session.touch();
            let chunk = Ok::<_, std::convert::Infallible>(chunk);
            Some((chunk, (None, events, client, revoked)))
        },
    );
    sse_response(Body::from_stream(body))
}

/// Serves one HTTP request to `/messages`.
pub(super) async fn post(State(port): State<Arc<ServerState>>, request: Request<Body>) -> Response {
    let received = receive(&port, request).await;
    received.unwrap_or_else(|refusal| *refusal)
}

async fn receive(port: &ServerState, request: Request<Body>) -> Result<Response, Box<Response>> {
    let (head, body) = request.into_parts();
    let principal = request::admit(port, &head)?;
    if head.method != Method::POST {
        return Ok(reply::not_allowed("POST"));
    }
    let Some(id) = head.uri.query().and_then(session_id) else {
        let text = "the parameter sessionId is missing";
        return Ok(reply::invalid(StatusCode::BAD_REQUEST, text));
    };
    let Some((session, _)) = port.legacy.find(id, &ClientIdentity::from(&principal)) else {
        let text = "the session is unknown or has ended; open a new one at /sse";
        let error = RpcError::new(RpcErrorCode::SessionNotFound, text);
        return Ok(reply::error(StatusCode::NOT_FOUND, &error, None));
    };
    request::count_message(port, &principal)?;
    let limit = port.proxy.limits().request_body_bytes;
    let message = request::message(&head.headers, body, limit).await?;
    // On a separate task, so that the message is forwarded completely even if the connection
    // breaks.
    let forwarded = tokio::spawn(async move {
        if let Some(exchange) = session.receive(message).await? {
            tokio::spawn(exchange.run);
            exchange.on_its_way.await;
        }
        Ok::<(), RpcError>(())
    });
    Ok(match forwarded.await {
        Ok(Ok(())) => reply::empty(StatusCode::ACCEPTED),
        Ok(Err(error)) => reply::error(reply::status_of(error.code), &error, None),
        Err(_) => reply::empty(StatusCode::INTERNAL_SERVER_ERROR),
    })
}

fn session_id(query: &str) -> Option<&str> {
    let mut pairs = query.split('&');
    pairs.find_map(|pair| pair.strip_prefix("sessionId="))
}

/// The client of a stream. When the stream is dropped, its session ends.
struct StreamClient {
    port: Arc<ServerState>,
    id: String,
    session: Arc<ClientSession>,
}

impl Drop for StreamClient {
    fn drop(&mut self) {
        self.port.legacy.remove(&self.id);
        let session = Arc::clone(&self.session);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { session.close().await });
        }
    }
}
