//! Responses that are not streams.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(super) fn json(status: StatusCode, message: Bytes) -> Response {
    let mut response = Response::new(Body::from(message));
    *response.status_mut() = status;
    set_header(&mut response, header::CONTENT_TYPE, "application/json");
    response
}

/// Returns the response to a method that the address does not have.
pub(super) fn not_allowed(allowed: &'static str) -> Response {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    set_header(&mut response, header::ALLOW, allowed);
    response
}

pub(super) fn set_header(response: &mut Response, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    response.headers_mut().insert(name, value);
}

/// Returns a response with an error of the proxy, for the request `id` or without an id.
pub(super) fn error(status: StatusCode, error: &RpcError, id: Option<&RequestId>) -> Response {
    let mut response = json(status, Bytes::from(error.to_json(id)));
    // Capacity may become free at any time, and the message rate is limited per second.
    if error.code == RpcErrorCode::LimitReached {
        set_header(&mut response, header::RETRY_AFTER, "1");
    }
    if status == StatusCode::UNAUTHORIZED {
        let realm = "Bearer realm=\"riglm\"";
        set_header(&mut response, header::WWW_AUTHENTICATE, realm);
    }
    response
}

/// Returns a response that refuses an HTTP request without a valid MCP message.
pub(super) fn invalid(status: StatusCode, text: &str) -> Response {
    let refusal = RpcError::new(RpcErrorCode::InvalidRequest, text);
    error(status, &refusal, None)
}

/// Returns the HTTP status of an error that answers no request.
pub(super) fn status_of(code: RpcErrorCode) -> StatusCode {
    match code {
        RpcErrorCode::ParseError
        | RpcErrorCode::InvalidRequest
        | RpcErrorCode::InvalidParams
        | RpcErrorCode::HeaderMismatch
        | RpcErrorCode::MissingRequiredClientCapability
        | RpcErrorCode::UnsupportedProtocolVersion => StatusCode::BAD_REQUEST,
        RpcErrorCode::SessionNotFound | RpcErrorCode::MethodNotFound => StatusCode::NOT_FOUND,
        RpcErrorCode::LimitReached
        | RpcErrorCode::UpstreamUnavailable
        | RpcErrorCode::RecordingUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        RpcErrorCode::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        RpcErrorCode::UpstreamGarbled => StatusCode::BAD_GATEWAY,
        RpcErrorCode::Forbidden => StatusCode::FORBIDDEN,
    }
}
