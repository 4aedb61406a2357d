//! The headers that requests of revision 2026-07-28 carry over HTTP so that it can be told what
//! they are without reading their bodies (basic/transports/streamable-http, "Request Metadata").
//!
//! What is said twice can differ. Who acts on the body must refuse a request whose headers say
//! something else: [`check_standard`] for those that every request has, [`check_params`] for those
//! that a tool asks for. Texts of both say which header it is, never what is in it.

mod annotation;
mod param;

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::edit::member;
use crate::meta::RequestMeta;
use crate::scan::unescaped;

pub use annotation::{AnnotationError, ParamAnnotation, annotations};
pub use param::{check_params, param_headers};

/// The header with the revision of a request, as header names compare: in lower case.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The header with the method of a request, in lower case.
pub const METHOD: &str = "mcp-method";
/// The header with what a request names, in lower case; see [`name_of`].
pub const NAME: &str = "mcp-name";
/// What the names of headers begin with that repeat arguments of a tool, in lower case.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// What stands before the Base64 text of a value that cannot stand there itself.
const ENCODED_START: &str = "=?base64?";
/// What stands behind it.
const ENCODED_END: &str = "?=";

/// Returns the text by which a header says `value`: the value itself where that is visible ASCII
/// with spaces inside, or else its Base64 form.
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

/// Returns the value that a header says; `None` for a text that no header value may have: with
/// characters other than visible ASCII, spaces and tabs, or with Base64 text that is none or does
/// not give UTF-8.
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

/// Returns what a request names and the header [`NAME`] must repeat: `params.name` of `tools/call`
/// and `prompts/get`, `params.uri` of `resources/read`, `params.taskId` of the requests about a task.
/// `None` for other methods and where that member is no string.
#[must_use]
pub fn name_of<'a>(method: &str, params: Option<&'a str>) -> Option<Cow<'a, str>> {
    unescaped(member(params?, name_member(method)?)?)
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

/// The headers that every request has, as they are written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandardHeaders<'a> {
    /// The value of [`PROTOCOL_VERSION`].
    pub protocol_version: Option<&'a str>,
    /// The value of [`METHOD`].
    pub method: Option<&'a str>,
    /// The value of [`NAME`], encoded or not.
    pub name: Option<&'a str>,
}

/// Checks that the standard headers of a request are there and say what its body says: the revision
/// in `_meta`, the method, and what the request names.
///
/// [`NAME`] is not looked at for methods that name nothing.
///
/// # Errors
///
/// Returns the text for an error with the code
/// [`HeaderMismatch`](crate::rpc_error::RpcErrorCode::HeaderMismatch).
pub fn check_standard(
    headers: &StandardHeaders<'_>,
    method: &str,
    params: Option<&str>,
) -> Result<(), String> {
    let revision = RequestMeta::read(params).protocol_version;
    let revision = revision.map(|json| unescaped(json).unwrap_or(Cow::Borrowed(json)));
    check_one(
        "MCP-Protocol-Version",
        headers.protocol_version,
        revision.as_deref(),
    )?;
    check_one("Mcp-Method", headers.method, Some(method))?;
    if name_member(method).is_none() {
        return Ok(());
    }
    let name = headers.name.map(|text| decode_value(text).ok_or(()));
    match (name, name_of(method, params)) {
        (Some(Err(())), _) => {
            Err("Header mismatch: the value of Mcp-Name cannot be decoded".into())
        }
        (Some(Ok(said)), meant) => check_one("Mcp-Name", Some(&said), meant.as_deref()),
        (None, Some(meant)) if is_name_required(method) => {
            check_one("Mcp-Name", None, Some(&meant))
        }
        (None, _) => Ok(()),
    }
}

/// Returns whether [`NAME`] must be there. For the methods of the tasks extension the revision
/// itself does not ask for it, so that who leaves it out is let through.
fn is_name_required(method: &str) -> bool {
    !method.starts_with("tasks/")
}

/// Compares what a header says with what is meant.
fn check_one(name: &str, said: Option<&str>, meant: Option<&str>) -> Result<(), String> {
    match said {
        None => Err(format!("Header mismatch: the header {name} is missing")),
        Some(said) if meant == Some(said) => Ok(()),
        Some(_) => Err(format!(
            "Header mismatch: the header {name} says something else than the body"
        )),
    }
}

#[cfg(test)]
mod tests;
