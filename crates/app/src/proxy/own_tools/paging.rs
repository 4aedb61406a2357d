//! The tool for paging through truncated results: its arguments and its answer.

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{ToolCaller, failure, result};
use super::arguments::ArgumentsProblem;
use crate::safeguards::{GuardedCall, Remainder, Safeguards};

/// The maximum length of a handle that is repeated, in characters.
const MAX_HANDLE_CHARS: usize = 64;

#[derive(Debug, Deserialize)]
struct PagingArguments {
    handle: String,
    #[serde(default)]
    offset: Option<f64>,
}

impl PagingArguments {
    fn read(arguments: Option<&str>) -> Result<(String, usize), ArgumentsProblem> {
        let wanted: Self = serde_json::from_str(arguments.unwrap_or("{}")).map_err(|error| {
            ArgumentsProblem::new(format!(
                r#"arguments must be an object such as {{"handle": "0123456789ab", "offset": 4000}}: {error}"#
            ))
        })?;
        let offset = wanted.offset.unwrap_or_default();
        // Below 2^53 (about 9e15) each whole number is exact as a JSON number.
        let is_place = offset >= 0.0 && offset.fract() <= 0.0 && offset < 9e15;
        if !is_place {
            let text = "offset must be a whole number, 0 or more";
            return Err(ArgumentsProblem::new(text));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it was checked to be one"
        )]
        Ok((wanted.handle, offset as usize))
    }
}

/// Returns the JSON text of the result with the next part.
pub(super) fn read_on(
    requester: &ToolCaller<'_>,
    safeguards: &Safeguards,
    call: &GuardedCall<'_>,
) -> String {
    let (handle, offset) = match PagingArguments::read(call.arguments) {
        Ok(wanted) => wanted,
        Err(problem) => return failure(requester.era, problem.as_str()),
    };
    let Some(rest) = safeguards.rest(call, &handle, offset) else {
        let handle: String = handle.chars().take(MAX_HANDLE_CHARS).collect();
        let problem = format!(
            "no text at offset {offset} of handle {handle:?}: truncated results are kept for an \
             hour, or less if memory is short; call the tool again"
        );
        return failure(requester.era, &problem);
    };
    let Remainder { text, next, n_all } = rest;
    let text = match next {
        Some(next) => format!(
            "{text}\n[{next} of {n_all} bytes so far. For the rest call this tool again with \
             {{\"handle\": \"{handle}\", \"offset\": {next}}}.]"
        ),
        None => text,
    };
    result(requester, &text, None)
}

/// Returns the JSON text of the error result if truncation is disabled.
pub(super) fn truncation_disabled(requester: &ToolCaller<'_>) -> String {
    failure(requester.era, "results are not truncated here")
}

pub(super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle of the result"},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Where to read on, in bytes",
            },
        },
        "required": ["handle"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_arguments_are_a_handle_and_an_integer_offset() {
        let read = |arguments| PagingArguments::read(Some(arguments));
        assert_eq!(read(r#"{"handle":"a"}"#), Ok(("a".into(), 0)));
        assert_eq!(
            read(r#"{"handle":"a","offset":4e3}"#),
            Ok(("a".into(), 4_000))
        );
        for (arguments, named) in [
            ("{}", "handle"),
            ("[]", "handle"),
            (r#"{"handle":7}"#, "arguments"),
            (r#"{"handle":"a","offset":-1}"#, "offset"),
            (r#"{"handle":"a","offset":1.5}"#, "offset"),
            (r#"{"handle":"a","offset":1e300}"#, "offset"),
        ] {
            let problem = read(arguments).unwrap_err();
            assert!(problem.as_str().contains(named), "{arguments}: {problem:?}");
        }
    }
}
