//! HTTP headers of requests of revision 2026-07-28, which repeat parts of the body so that
//! intermediaries need not read it (basic/transports/streamable-http, "Request Metadata").
//!
//! Header and body can differ. A server that processes the body must reject a request with headers
//! that contradict it: [`check_standard`] for the headers of every request, [`check_params`] for
//! the headers that a tool requires. Error texts of both contain the name of the header, never its
//! value.

mod annotation;
mod param;

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::mcp::edit::member;
use crate::mcp::meta::RequestMeta;
use crate::mcp::rpc_error::{RpcError, RpcErrorCode};
use crate::mcp::scan::unescape;

pub use annotation::{AnnotationError, ParamAnnotation, annotations};
pub use param::{check_params, param_headers};

/// The header with the protocol revision of a request, in lower case for comparisons.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The header with the method of a request, in lower case.
pub const METHOD: &str = "mcp-method";
/// The header with the name of the tool, prompt, resource or task of a request, in lower case; see
/// [`name_of`].
pub const NAME: &str = "mcp-name";
/// Prefix of the names of headers that repeat arguments of a tool, in lower case.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Prefix of a Base64-encoded value.
const ENCODED_START: &str = "=?base64?";
/// Suffix of a Base64-encoded value.
const ENCODED_END: &str = "?=";

/// Returns the header text for `value`: the value itself if it is visible ASCII without spaces at
/// its ends, else its Base64 form. A value that looks like the Base64 form is encoded, too.
#[must_use]
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && !value.starts_with(' ')
        && !value.ends_with(' ');
    let is_like_encoded = value.starts_with(ENCODED_START) && value.ends_with(ENCODED_END);
    if is_plain && !is_like_encoded {
        return Cow::Borrowed(value);
    }
    let encoded = BASE64_STANDARD.encode(value);
    Cow::Owned(format!("{ENCODED_START}{encoded}{ENCODED_END}"))
}

/// Returns the value of a header text. `None` for an invalid text: with characters other than
/// visible ASCII, spaces and tabs, with invalid Base64, or with Base64 of bytes that are not UTF-8.
#[must_use]
pub fn decode_value(text: &str) -> Option<Cow<'_, str>> {
    let encoded = text
        .strip_prefix(ENCODED_START)
        .and_then(|rest| rest.strip_suffix(ENCODED_END));
    if let Some(encoded) = encoded {
        let bytes = BASE64_STANDARD.decode(encoded).ok()?;
        return String::from_utf8(bytes).ok().map(Cow::Owned);
    }
    text.bytes()
        .all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        .then_some(Cow::Borrowed(text))
}

/// Returns the name in a request that the header [`NAME`] must repeat: `params.name` of
/// `tools/call` and `prompts/get`, `params.uri` of `resources/read`, `params.taskId` of the
/// requests about a task. `None` for other methods, or if this member is not a string.
#[must_use]
pub fn name_of<'a>(method: &str, params: Option<&'a str>) -> Option<Cow<'a, str>> {
    unescape(member(params?, name_member(method)?)?)
}

/// Returns the member of `params` that the header [`NAME`] repeats.
fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The values of the standard headers, as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandardHeaders<'a> {
    /// The value of [`PROTOCOL_VERSION`].
    pub protocol_version: Option<&'a str>,
    /// The value of [`METHOD`].
    pub method: Option<&'a str>,
    /// The value of [`NAME`], encoded or not.
    pub name: Option<&'a str>,
}

/// A header contradicts the body of its request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Header mismatch: the header {header} {problem}")]
pub struct HeaderMismatch {
    /// The name of the header.
    header: String,
    /// The end of the sentence about the header.
    problem: &'static str,
}

impl HeaderMismatch {
    fn new(header: impl Into<String>, problem: &'static str) -> Self {
        let header = header.into();
        Self { header, problem }
    }
}

impl From<HeaderMismatch> for RpcError {
    fn from(error: HeaderMismatch) -> Self {
        Self::new(RpcErrorCode::HeaderMismatch, error.to_string())
    }
}

/// Compares the standard headers of a request with its body: the revision in `_meta`, the method,
/// and the name. A required header must be present.
///
/// [`NAME`] is ignored for methods without a name.
///
/// # Errors
///
/// Returns [`HeaderMismatch`] if a header is missing, cannot be decoded or differs from the body.
pub fn check_standard(
    headers: &StandardHeaders<'_>,
    method: &str,
    params: Option<&str>,
) -> Result<(), HeaderMismatch> {
    let revision = RequestMeta::read(params).protocol_version;
    let revision = revision.map(|json| unescape(json).unwrap_or(Cow::Borrowed(json)));
    compare_header(
        "MCP-Protocol-Version",
        headers.protocol_version,
        revision.as_deref(),
    )?;
    compare_header("Mcp-Method", headers.method, Some(method))?;
    if name_member(method).is_none() {
        return Ok(());
    }
    let name = headers.name.map(|text| decode_value(text).ok_or(()));
    match (name, name_of(method, params)) {
        (Some(Err(())), _) => Err(HeaderMismatch::new("Mcp-Name", "cannot be decoded")),
        (Some(Ok(said)), meant) => compare_header("Mcp-Name", Some(&said), meant.as_deref()),
        (None, Some(meant)) if is_name_required(method) => {
            compare_header("Mcp-Name", None, Some(&meant))
        }
        (None, _) => Ok(()),
    }
}

/// Returns whether [`NAME`] is required. The specification does not require it for the methods of
/// the tasks extension, so requests without it are accepted.
fn is_name_required(method: &str) -> bool {
    !method.starts_with("tasks/")
}

/// Compares the value in a header with the value in the body.
fn compare_header(
    name: &str,
    said: Option<&str>,
    meant: Option<&str>,
) -> Result<(), HeaderMismatch> {
    match said {
        None => Err(HeaderMismatch::new(name, "is missing")),
        Some(said) if meant == Some(said) => Ok(()),
        Some(_) => Err(HeaderMismatch::new(name, "differs from the body")),
    }
}

#[cfg(test)]
mod tests;
