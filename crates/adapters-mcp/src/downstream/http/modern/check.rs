//! What a message and its headers must say before anybody acts on them.

use http::HeaderMap;
use riglm_domain::mcp_header::{
    METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, StandardHeaders, check_standard,
};
use riglm_domain::message::{Message, ParamHeader};
use riglm_domain::meta::{self, RequestMeta};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};

/// Checks a request or notification, of which `meta` was read, against its headers.
///
/// # Errors
///
/// Returns the error that refuses it: [`RpcErrorCode::InvalidParams`] for a request that does not
/// say what each must, [`RpcErrorCode::MethodNotFound`] for one that its revision no longer has,
/// [`RpcErrorCode::HeaderMismatch`] for headers that are missing, stand twice, have characters that
/// none may have or say something else.
pub(super) fn message(
    headers: &HeaderMap,
    message: &Message,
    meta: &RequestMeta<'_>,
) -> Result<(), RpcError> {
    let Some(envelope) = message.single() else {
        return Ok(());
    };
    let (Some(method), params) = (envelope.method(), message.params(envelope)) else {
        return Ok(());
    };
    if envelope.id().is_none() {
        return notification(headers, method, meta);
    }
    if meta.protocol_version.is_none() {
        let text = format!("the request lacks {} in its _meta", meta::PROTOCOL_VERSION);
        return Err(RpcError::new(RpcErrorCode::InvalidParams, text));
    }
    check_standard(&standard(headers)?, method, params).map_err(mismatch)?;
    meta.check_complete(method)?;
    Ok(())
}

/// Checks a notification. Nothing is asked of its headers; what they say must be true.
fn notification(headers: &HeaderMap, method: &str, meta: &RequestMeta<'_>) -> Result<(), RpcError> {
    let standard = standard(headers)?;
    if standard.method.is_some_and(|said| said != method) {
        let text = "Header mismatch: the header Mcp-Method says something else than the body";
        return Err(mismatch(text.into()));
    }
    let Some(revision) = meta.revision() else {
        return Ok(());
    };
    if standard
        .protocol_version
        .is_some_and(|said| said != revision.as_str())
    {
        let text =
            "Header mismatch: the header MCP-Protocol-Version says something else than the body";
        return Err(mismatch(text.into()));
    }
    Ok(())
}

fn standard(headers: &HeaderMap) -> Result<StandardHeaders<'_>, RpcError> {
    Ok(StandardHeaders {
        protocol_version: once(headers, PROTOCOL_VERSION)?,
        method: once(headers, METHOD)?,
        name: once(headers, NAME)?,
    })
}

/// Returns all headers that repeat arguments, also those that no tool is known to ask for.
///
/// # Errors
///
/// Returns [`RpcErrorCode::HeaderMismatch`] for one that stands twice or has characters that none
/// may have.
pub(super) fn param_headers(headers: &HeaderMap) -> Result<Vec<ParamHeader>, RpcError> {
    headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with(PARAM_PREFIX))
        .filter_map(|name| {
            let value = once(headers, name).transpose()?;
            Some(value.map(|value| (name.into(), value.into())))
        })
        .collect()
}

/// Returns the value of a header that may stand once only: those before and behind the proxy could
/// each go by another one.
fn once<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(mismatch(format!("Header mismatch: {name} stands twice")));
    }
    value.to_str().map(Some).map_err(|_| {
        let text = format!("Header mismatch: {name} has characters that no header may have");
        mismatch(text)
    })
}

fn mismatch(text: String) -> RpcError {
    RpcError::new(RpcErrorCode::HeaderMismatch, text)
}
