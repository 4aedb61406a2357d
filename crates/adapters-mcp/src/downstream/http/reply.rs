//! Responses that are not streams.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
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
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Returns a response with an error of the proxy, for the request `id` or without an id.
pub(super) fn error(status: StatusCode, error: &RpcError, id: Option<&RequestId>) -> Response {
    let mut response = json(status, Bytes::from(error.to_json(id)));
    // Capacity may become free at any time, and the message rate is limited per second.
    if error.code == RpcErrorCode::LimitReached {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"riglm\""),
        );
    }
    response
}

/// Returns a response that refuses an HTTP request without a valid MCP message.
pub(super) fn invalid(status: StatusCode, text: &str) -> Response {
    error(
        status,
        &RpcError::new(RpcErrorCode::InvalidRequest, text),
        None,
    )
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
