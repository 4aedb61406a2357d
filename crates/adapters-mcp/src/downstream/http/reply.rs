//! Responses that are no streams.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use riglm_domain::message::RequestId;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};

/// Returns an empty response.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Returns a response that carries one JSON-RPC message.
pub(super) fn json(status: StatusCode, message: Bytes) -> Response {
    let mut response = Response::new(Body::from(message));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Returns a response that carries an error of the proxy, answering `id` or nobody.
pub(super) fn error(status: StatusCode, error: &RpcError, id: Option<&RequestId>) -> Response {
    let mut response = json(status, Bytes::from(error.to_json(id)));
    // Places become free at any time, and messages are counted by the second.
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

/// Returns a response that refuses a request of HTTP that is no MCP message.
pub(super) fn invalid(status: StatusCode, text: &str) -> Response {
    error(
        status,
        &RpcError::new(RpcErrorCode::InvalidRequest, text),
        None,
    )
}

/// Returns the status for an error that answers no request.
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
