//! Checks of an HTTP request before MCP: the sender, the accepted types, and the size of the body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use riglm_app::proxy::ClientIdentity;
use riglm_domain::id::ProfileName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::request_hints::{
    CONTEXT_HEADER, RequestHints, SESSION_HEADER, TOKEN_BUDGET_HEADER,
};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::authenticator::Revocation;

use super::port::ServerState;
use super::reply;
use crate::downstream::refusal::{too_large, unreadable};
use crate::trace_headers;
use riglm_adapters_programs::compact::compact;

/// The maximum size of all headers of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The maximum time for a body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The maximum number of bytes that are read and discarded of a body over the limit.
const DISCARDED_BYTES: usize = 64 << 20;
/// The maximum time for discarding them.
const DISCARD_WITHIN: Duration = Duration::from_secs(2);

/// The reason why a request is refused, whatever the form of its response.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) error: RpcError,
}

impl Refusal {
    fn invalid(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            error: RpcError::new(RpcErrorCode::InvalidRequest, text.into()),
        }
    }
}

impl From<Refusal> for Box<Response> {
    fn from(refusal: Refusal) -> Self {
        Self::new(reply::error(refusal.status, &refusal.error, None))
    }
}

/// Checks a request as [`check_sender`] does. The error is the refusing response; it is boxed
/// because it is large and rare.
pub(super) fn admit(port: &ServerState, head: &Parts) -> Result<Principal, Box<Response>> {
    check_sender(port, head).map_err(Box::from)
}

/// Checks the size of the headers, `Host`, `Origin` and the key of a request.
pub(super) fn check_sender(port: &ServerState, head: &Parts) -> Result<Principal, Refusal> {
    let headers = &head.headers;
    let sizes = (headers.iter()).map(|(name, value)| name.as_str().len() + value.len());
    if sizes.sum::<usize>() > MAX_HEAD_BYTES {
        let text = "the headers of this request are too large";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::invalid(status, text));
    }
    let values = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let target = head.uri.authority().map(http::uri::Authority::as_str);
    let (hosts, origins) = (values(header::HOST), values(header::ORIGIN));
    if let Err(refused) = port.admission.check(hosts, origins, target) {
        let advice = refused.advice("listen");
        log_refusal(&advice, headers);
        return Err(Refusal {
            status: StatusCode::FORBIDDEN,
            error: RpcError::new(RpcErrorCode::Forbidden, advice),
        });
    }
    port.authenticator
        .authenticate(bearer(headers))
        .ok_or_else(|| {
            let text = "missing or unknown key; send \"Authorization: Bearer KEY\" with a key from \
                        [auth.keys]";
            Refusal {
                status: StatusCode::UNAUTHORIZED,
                error: RpcError::new(RpcErrorCode::Forbidden, text),
            }
        })
}

/// Returns a future that completes when the key of an admitted request is revoked.
pub(super) fn revocation(port: &ServerState, headers: &HeaderMap) -> Revocation {
    port.authenticator.revocation(bearer(headers))
}

/// Logs a refusal: the first one as a warning, further ones only at debug level, because a peer can
/// cause many of them.
fn log_refusal(advice: &str, headers: &HeaderMap) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let host = headers.get(header::HOST);
    let origin = headers.get(header::ORIGIN);
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::debug!(?host, ?origin, "rejected a request: {advice}");
    } else {
        tracing::warn!(?host, ?origin, "rejected a request: {advice}");
    }
}

/// Checks a request as [`admit`] does, and the profile in its URL.
pub(super) fn admit_with_profile(
    port: &ServerState,
    head: &Parts,
    profile: Option<&str>,
) -> Result<ClientIdentity, Box<Response>> {
    let principal = admit(port, head)?;
    // After authentication, so that only known clients can find out which profiles exist.
    let profile = profile.map(|name| known_profile(port, name)).transpose()?;
    Ok(ClientIdentity { principal, profile })
}

pub(super) fn known_profile(port: &ServerState, name: &str) -> Result<ProfileName, Refusal> {
    let profile = ProfileName::parse(name).ok();
    let known = profile.filter(|name| port.profiles.contains(name));
    known.ok_or_else(|| {
        let text = format!("unknown profile {name:?}; section profiles does not have it");
        Refusal::invalid(StatusCode::NOT_FOUND, text)
    })
}

/// Counts a message of an authenticated client for the rate limit. The body of a message over the
/// limit is not read.
pub(super) fn count_message(port: &ServerState, principal: &Principal) -> Result<(), Refusal> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let counted = port.proxy.admit_message(principal, Instant::now());
    counted.map_err(|error| Refusal { status, error })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Returns whether the `Accept` header allows a media type. A request without the header accepts
/// all.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let (family, _) = media_type.split_once('/').unwrap_or((media_type, ""));
    let mut has_any = false;
    for value in headers.get_all(header::ACCEPT) {
        has_any = true;
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let range = range.split(';').next().unwrap_or_default().trim();
            let is_family = range.strip_suffix("/*").is_some_and(|of| of == family);
            if range.eq_ignore_ascii_case(media_type) || range == "*/*" || is_family {
                return true;
            }
        }
    }
    !has_any
}

/// Returns whether the content type of the body is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads a JSON body of at most `limit` bytes.
pub(super) async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
) -> Result<Bytes, Refusal> {
    if !is_json(headers) {
        let text = "the content type must be application/json";
        return Err(Refusal::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match tokio::time::timeout(BODY_WITHIN, collect(&mut body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge)) => {
            discard(&mut body).await;
            Err(Refusal {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                error: too_large(limit),
            })
        }
        Ok(Err(BodyError::Broken)) => {
            let text = "the request body is incomplete";
            Err(Refusal::invalid(StatusCode::BAD_REQUEST, text))
        }
        Err(_) => {
            let text = "timeout while reading the request body";
            Err(Refusal::invalid(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

/// Reads the body and parses the message in it.
pub(super) async fn message(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Message, Box<Response>> {
    let bytes = read_body(headers, body, limit).await?;
    let message = Message::parse(&bytes).map_err(|source| {
        let (error, id): (RpcError, Option<RequestId>) = unreadable(source);
        Box::new(reply::error(StatusCode::BAD_REQUEST, &error, id.as_ref()))
    })?;
    let message = match trace_headers::of_headers(headers) {
        Some(trace) => message.with_trace(Some(Arc::new(trace))),
        None => message,
    };
    Ok(match hints(headers) {
        Some(hints) => message.with_hints(hints),
        None => message,
    })
}

/// Returns the hints in the headers; `None` if there are none.
pub(super) fn hints(headers: &HeaderMap) -> Option<RequestHints> {
    let value = |name| headers.get(name).map(HeaderValue::as_bytes);
    let [session, context, budget] =
        [SESSION_HEADER, CONTEXT_HEADER, TOKEN_BUDGET_HEADER].map(value);
    let has_any = session.or(context).or(budget).is_some();
    has_any.then(|| RequestHints::of_headers(session, context, budget))
}

enum BodyError {
    TooLarge,
    Broken,
}

/// Collects a body. A long body that arrived in one chunk is not copied.
async fn collect(body: &mut Body, limit: usize) -> Result<Bytes, BodyError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    // Refused before reading, because the announced size is already too large.
    if announced > limit {
        return Err(BodyError::TooLarge);
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
            continue;
        };
        if whole.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        if whole.is_empty() {
            if body.is_end_stream() {
                let n_bytes = data.len();
                return Ok(compact(data, n_bytes));
            }
            whole.reserve(announced);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads and discards the rest of a body for a while. Otherwise a client that is still sending
/// would see its connection reset and never get the response.
async fn discard(body: &mut Body) {
    let reading = async {
        let mut n_bytes = 0;
        while n_bytes < DISCARDED_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            n_bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // After the timeout the rest of the body is dropped with the connection.
    let _ = tokio::time::timeout(DISCARD_WITHIN, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn accept_is_read_as_a_list_of_ranges() {
        let both = with(header::ACCEPT, "application/json, text/event-stream;q=0.9");
        assert!(accepts(&both, "text/event-stream") && accepts(&both, "application/json"));
        assert!(accepts(&HeaderMap::new(), "text/event-stream"));
        assert!(accepts(&with(header::ACCEPT, "*/*"), "text/event-stream"));
        assert!(accepts(
            &with(header::ACCEPT, "text/*"),
            "text/event-stream"
        ));
        assert!(!accepts(
            &with(header::ACCEPT, "application/json"),
            "text/event-stream"
        ));
    }

    #[test]
    fn the_content_type_may_have_parameters() {
        assert!(is_json(&with(
            header::CONTENT_TYPE,
            "Application/JSON; charset=utf-8"
        )));
        assert!(!is_json(&with(header::CONTENT_TYPE, "text/plain")));
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn only_a_bearer_key_is_a_key() {
        assert_eq!(
            bearer(&with(header::AUTHORIZATION, "bearer abc ")),
            Some("abc")
        );
        assert_eq!(bearer(&with(header::AUTHORIZATION, "Basic abc")), None);
    }
}
