//! Error responses of the provider-native face, according to RFC 9457.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use serde_json::json;

use super::super::reply;
use super::super::request::Refusal;
use super::block::BlockError;
use super::session::RequestError;

/// A response with `application/problem+json`.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// The method that the address has, if another one was used.
    allowed: Option<Method>,
}

impl Problem {
    /// Returns a problem with a status and the reason.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            allowed: None,
        }
    }

    /// Returns the problem of an invalid parameter, header or body.
    pub(super) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Returns the problem of a method that the address does not have.
    pub(super) fn method(allowed: Method) -> Self {
        let text = format!("this address has only {allowed}");
        Self {
            allowed: Some(allowed),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
        }
    }
}

impl From<BlockError> for Problem {
    fn from(error: BlockError) -> Self {
        Self::unprocessable(error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.status, refusal.error.message)
    }
}

impl From<RpcError> for Problem {
    fn from(error: RpcError) -> Self {
        Self::new(reply::status_of(error.code), error.message)
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        // The errors of riglm itself that say more than that the server failed.
        let own = [
            RpcErrorCode::UpstreamTimeout,
            RpcErrorCode::LimitReached,
            RpcErrorCode::UpstreamUnavailable,
            RpcErrorCode::RecordingUnavailable,
        ];
        let status = match error.code {
            None => StatusCode::GATEWAY_TIMEOUT,
            // The next request opens another session.
            Some(code) if code == RpcErrorCode::SessionNotFound.code() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Some(code) => own
                .into_iter()
                .find(|own| own.code() == code)
                .map_or(StatusCode::BAD_GATEWAY, reply::status_of),
        };
        Self::new(status, error.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Unknown"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let mut set = |name, value| reply::set_header(&mut response, name, value);
        set(header::CONTENT_TYPE, "application/problem+json");
        match self.status {
            StatusCode::UNAUTHORIZED => set(header::WWW_AUTHENTICATE, "Bearer realm=\"riglm\""),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                set(header::RETRY_AFTER, "1");
            }
            _ => {}
        }
        if let Some(allowed) = self.allowed
            && let Ok(allowed) = HeaderValue::try_from(allowed.as_str())
        {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }
}
