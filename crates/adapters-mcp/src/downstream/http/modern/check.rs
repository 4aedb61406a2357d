//! Validation of a message against its headers, before it is processed.

use http::HeaderMap;
use riglm_domain::mcp::header::{
    METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, StandardHeaders, check_standard,
};
use riglm_domain::mcp::message::{Message, ParamHeader};
use riglm_domain::mcp::meta::{self, RequestMeta};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

/// Checks a request or notification against its headers. `meta` was read from it.
///
/// # Errors
///
/// Returns the error that refuses it: [`RpcErrorCode::InvalidParams`] for a request without
/// mandatory metadata, [`RpcErrorCode::MethodNotFound`] for a method that its revision no longer
/// has, and [`RpcErrorCode::HeaderMismatch`] for headers that are missing, repeated, contain
/// invalid characters, or differ from the body.
pub(super) fn message(
    headers: &HeaderMap,
    message: &Message,
    meta: &RequestMeta<'_>,
) -> Result<(), RpcError> {
    let named = (message.single()).and_then(|envelope| Some((envelope, envelope.method()?)));
    let Some((envelope, method)) = named else {
        return Ok(());
    };
    if envelope.id().is_none() {
        return notification(headers, method, meta);
    }
    if meta.protocol_version.is_none() {
        let text = format!("missing {} in _meta of the request", meta::PROTOCOL_VERSION);
        return Err(RpcError::new(RpcErrorCode::InvalidParams, text));
    }
    let params = message.params(envelope);
    check_standard(&standard_headers(headers)?, method, params)?;
    meta.check_complete(method)?;
    Ok(())
}

/// Checks a notification. It needs no headers, but existing ones must match the body.
fn notification(headers: &HeaderMap, method: &str, meta: &RequestMeta<'_>) -> Result<(), RpcError> {
    let standard = standard_headers(headers)?;
    if standard.method.is_some_and(|said| said != method) {
        let text = "Header mismatch: the header Mcp-Method differs from the body";
        return Err(mismatch(text.into()));
    }
    let Some(revision) = meta.revision() else {
        return Ok(());
    };
    let said = standard.protocol_version;
    if said.is_some_and(|said| said != revision.as_str()) {
        let text = "Header mismatch: the header MCP-Protocol-Version differs from the body";
        return Err(mismatch(text.into()));
    }
    Ok(())
}

fn standard_headers(headers: &HeaderMap) -> Result<StandardHeaders<'_>, RpcError> {
    Ok(StandardHeaders {
        protocol_version: single_header(headers, PROTOCOL_VERSION)?,
        method: single_header(headers, METHOD)?,
        name: single_header(headers, NAME)?,
    })
}

/// Returns all headers that repeat arguments, even if no known tool asks for them.
///
/// # Errors
///
/// Returns [`RpcErrorCode::HeaderMismatch`] for a header that is repeated or contains invalid
/// characters.
pub(super) fn param_headers(headers: &HeaderMap) -> Result<Vec<ParamHeader>, RpcError> {
    headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with(PARAM_PREFIX))
        .filter_map(|name| {
            let value = single_header(headers, name).transpose()?;
            Some(value.map(|value| (name.into(), value.into())))
        })
        .collect()
}

/// Returns the value of a header that must not be repeated. With several values, systems in front
/// of the proxy and behind it could use different ones.
fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let text = format!("Header mismatch: the header {name} occurs twice");
        return Err(mismatch(text));
    }
    value.to_str().map(Some).map_err(|_| {
        let text = format!("Header mismatch: the header {name} has invalid characters");
        mismatch(text)
    })
}

fn mismatch(text: String) -> RpcError {
    RpcError::new(RpcErrorCode::HeaderMismatch, text)
}
