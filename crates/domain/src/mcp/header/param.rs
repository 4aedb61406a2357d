//! The headers `Mcp-Param-*`: created from the arguments of a call, and checked against them.

use std::borrow::Cow;

use super::annotation::ParamAnnotation;
use super::{HeaderMismatch, PARAM_PREFIX, decode_value, encode_value};
use crate::mcp::edit::member;
use crate::mcp::message::ParamHeader;
use crate::mcp::scan::unescape;

/// The largest integer that every peer can represent (the safe range of JavaScript).
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Returns the headers of a call, in the order of the annotations. `arguments` is JSON text.
///
/// A name is `Mcp-Param-` with the annotation; a value is encoded. Integers are written in decimal,
/// whatever their form in the arguments. Arguments that are absent, `null` or not primitive have no
/// header.
#[must_use]
pub fn param_headers(annotations: &[ParamAnnotation], arguments: Option<&str>) -> Vec<ParamHeader> {
    annotations
        .iter()
        .filter_map(|annotation| {
            let value = value_at(annotation, arguments)?;
            let name = format!("Mcp-Param-{}", annotation.header);
            Some((name.into(), encode_value(&value.text()).into()))
        })
        .collect()
}

/// Compares the headers of a call with its arguments, JSON text. Headers without an annotation are
/// ignored, because they have another purpose.
///
/// Names are compared case-insensitively, numbers by value.
///
/// # Errors
///
/// Returns [`HeaderMismatch`] if a header is missing, appears twice, has no argument, cannot be
/// decoded or has another value.
pub fn check_params(
    annotations: &[ParamAnnotation],
    arguments: Option<&str>,
    headers: &[ParamHeader],
) -> Result<(), HeaderMismatch> {
    for annotation in annotations {
        let mut said = headers
            .iter()
            .filter(|(name, _)| is_header_of(annotation, name))
            .map(|(_, text)| text);
        let meant = value_at(annotation, arguments);
        let problem = match (said.next(), &meant) {
            _ if said.next().is_some() => "occurs twice",
            (None, None) => continue,
            (None, Some(_)) => "is missing",
            (Some(_), None) => "has no matching argument",
            (Some(text), Some(meant)) => match decode_value(text) {
                None => "cannot be decoded",
                Some(said) if meant.matches_header(&said) => continue,
                Some(_) => "differs from the arguments",
            },
        };
        let header = format!("Mcp-Param-{}", annotation.header);
        return Err(HeaderMismatch::new(header, problem));
    }
    Ok(())
}

fn is_header_of(annotation: &ParamAnnotation, name: &str) -> bool {
    let prefix = name.get(..PARAM_PREFIX.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PARAM_PREFIX))
        && name[PARAM_PREFIX.len()..].eq_ignore_ascii_case(&annotation.header)
}

/// A value of an argument that a header can repeat.
enum Param<'a> {
    /// The text of a string, `true` or `false`.
    Text(Cow<'a, str>),
    /// A number, as written.
    Number(&'a str),
}

impl<'a> Param<'a> {
    /// Returns the text of the value, not yet encoded.
    fn text(&self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => match integer(number) {
                Some(integer) => Cow::Owned(integer.to_string()),
                None => Cow::Borrowed(number),
            },
        }
    }

    /// Returns whether the decoded text of a header has this value.
    fn matches_header(&self, said: &str) -> bool {
        match self {
            Self::Text(text) => text == said,
            Self::Number(number) => {
                let is_same = |a: i128| integer(said) == Some(a);
                *number == said
                    || integer(number).is_some_and(is_same)
                    || has_same_value(number, said)
            }
        }
    }
}

/// Returns the value of an argument; `None` if it is absent or not primitive.
fn value_at<'a>(annotation: &ParamAnnotation, arguments: Option<&'a str>) -> Option<Param<'a>> {
    let value = annotation
        .path
        .iter()
        .try_fold(arguments?, |object, name| member(object, name))?;
    match value.as_bytes().first()? {
        b'"' => unescape(value).map(Param::Text),
        b't' | b'f' => Some(Param::Text(Cow::Borrowed(value))),
        b'-' | b'0'..=b'9' => Some(Param::Number(value)),
        _ => None,
    }
}

/// Returns the value of a JSON number that is an integer. A number with a fraction or an exponent
/// must be within the safe range.
fn integer(json: &str) -> Option<i128> {
    let value = number(json)?;
    // Not from `value`: a float would round integers above the safe range.
    if let Ok(integer) = json.parse() {
        return Some(integer);
    }
    let is_safe = value.fract() == 0.0 && value.abs() <= MAX_SAFE;
    is_safe.then(|| format!("{value:.0}").parse().ok())?
}

/// Returns whether two JSON numbers have the same value within the safe range.
fn has_same_value(a: &str, b: &str) -> bool {
    let both = number(a).zip(number(b));
    both.is_some_and(|(a, b)| a.abs() <= MAX_SAFE && (a - b).abs() == 0.0)
}

/// Returns the value of a JSON number; `None` for other text, such as `+1`, `1.`, `inf` or a number
/// with white space around it.
fn number(json: &str) -> Option<f64> {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if json.starts_with('+') || !json.bytes().all(is_part) {
        return None;
    }
    serde_json::from_str(json).ok()
}
