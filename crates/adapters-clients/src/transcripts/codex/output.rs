//! Outcomes of calls of Codex, from what the model was told.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::event::CallOutcome;

/// Texts of results of calls that the user or a rule refused or stopped.
const REFUSALS: [&str; 6] = [
    "user rejected MCP tool call",
    "user cancelled MCP tool call",
    "aborted by user",
    "exec command rejected by user",
    "patch rejected by user",
    "rejected by user",
];

/// Beginnings of results that are errors of the client.
const ERRORS: [&str; 5] = [
    "err:",
    "tool call error",
    "unsupported call",
    "failed to parse function arguments",
    "execution error",
];

/// The lines in which an output says how a command ended.
const HEADER_LINES: usize = 6;

/// The end of a call, from its output.
pub(super) struct CallOutput {
    pub(super) outcome: CallOutcome,
    /// The duration, if the output says it.
    pub(super) duration: Option<Duration>,
}

/// An output as an object: with `success` in old files, with `metadata` within a text.
#[derive(Default, Deserialize)]
struct OutputObject<'a> {
    success: Option<bool>,
    content: Option<Cow<'a, str>>,
    metadata: Option<OutputMetadata>,
}

#[derive(Deserialize)]
struct OutputMetadata {
    exit_code: Option<i64>,
}

#[derive(Deserialize)]
struct OutputPart<'a> {
    text: Option<Cow<'a, str>>,
}

/// The result of an MCP call.
#[derive(Deserialize)]
struct ToolResult<'a> {
    #[serde(rename = "Ok")]
    ok: Option<ToolAnswer>,
    #[serde(rename = "Err", borrow)]
    err: Option<&'a RawValue>,
    #[serde(rename = "isError", alias = "is_error")]
    is_error: Option<bool>,
}

#[derive(Deserialize)]
struct ToolAnswer {
    #[serde(rename = "isError", alias = "is_error")]
    is_error: Option<bool>,
}

/// Reads the output of a call. A result with `isError` is a success here, because the output does
/// not have the flag; newer versions have it in the line of [`outcome_of_result`].
pub(super) fn read(output: Option<&RawValue>) -> CallOutput {
    let raw = output.map_or("null", RawValue::get);
    let mut is_failed = false;
    let text = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(raw).unwrap_or_default(),
        Some(b'[') => {
            let parts: Vec<OutputPart<'_>> = serde_json::from_str(raw).unwrap_or_default();
            let first = parts.into_iter().find_map(|part| part.text);
            first.map(Cow::into_owned).unwrap_or_default()
        }
        Some(b'{') => {
            let object: OutputObject<'_> = serde_json::from_str(raw).unwrap_or_default();
            is_failed = object.success == Some(false);
            object.content.map(Cow::into_owned).unwrap_or_default()
        }
        _ => String::new(),
    };
    let outcome = outcome_of_text(&text);
    CallOutput {
        outcome: if is_failed && outcome == CallOutcome::Success {
            CallOutcome::Error
        } else {
            outcome
        },
        duration: header(&text).find_map(|line| {
            let seconds = line.strip_prefix("Wall time: ")?.split(' ').next()?;
            Duration::try_from_secs_f64(seconds.parse().ok()?).ok()
        }),
    }
}

/// Returns the outcome of the result of an MCP call: `Ok` with the answer of the server, or `Err`
/// with a message.
pub(super) fn outcome_of_result(result: &RawValue) -> CallOutcome {
    let Ok(parsed) = serde_json::from_str::<ToolResult<'_>>(result.get()) else {
        return CallOutcome::Unknown;
    };
    if let Some(error) = parsed.err {
        return outcome_of_error(error.get());
    }
    let in_answer = parsed.ok.and_then(|answer| answer.is_error);
    if in_answer.or(parsed.is_error) == Some(true) {
        CallOutcome::Error
    } else {
        CallOutcome::Success
    }
}

/// Returns the outcome of a call with this error.
pub(super) fn outcome_of_error(message: &str) -> CallOutcome {
    if REFUSALS.iter().any(|refusal| message.contains(refusal)) {
        CallOutcome::Cancelled
    } else {
        CallOutcome::Error
    }
}

fn outcome_of_text(text: &str) -> CallOutcome {
    let first = header(text).next().unwrap_or_default();
    if first == "aborted" || REFUSALS.iter().any(|refusal| first.contains(refusal)) {
        return CallOutcome::Cancelled;
    }
    let exit_code = if text.starts_with('{') {
        let object: OutputObject<'_> = serde_json::from_str(text).unwrap_or_default();
        object.metadata.and_then(|metadata| metadata.exit_code)
    } else {
        header(text).find_map(|line| {
            let code = (line.strip_prefix("Exit code: "))
                .or_else(|| line.strip_prefix("Process exited with code "))?;
            code.trim().parse::<i64>().ok()
        })
    };
    let is_error = exit_code.is_some_and(|code| code != 0)
        || ERRORS.iter().any(|start| first.starts_with(start));
    if is_error {
        CallOutcome::Error
    } else {
        CallOutcome::Success
    }
}

/// Returns the lines before the output itself.
fn header(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().take(HEADER_LINES);
    lines.take_while(|line| *line != "Output:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn outputs_say_how_a_call_ended() {
        use CallOutcome::{Cancelled, Error, Success};
        for (output, outcome) in [
            (r#""fine""#, Success),
            (r#""err: \"timeout\"""#, Error),
            (r#""user rejected MCP tool call""#, Cancelled),
            (r#""aborted by user after 3.1s""#, Cancelled),
            (r#""the text aborted by\naborted by user""#, Success),
            (
                r#""{\"output\":\"x\",\"metadata\":{\"exit_code\":2}}""#,
                Error,
            ),
            (
                r#""{\"output\":\"x\",\"metadata\":{\"exit_code\":0}}""#,
                Success,
            ),
            (
                r#""Exit code: 1\nWall time: 0.5 seconds\nOutput:\nx""#,
                Error,
            ),
            (r#""Wall time: 1 seconds\nOutput:\nExit code: 1""#, Success),
            (r#"[{"type":"input_text","text":"fine"}]"#, Success),
            (r#"{"content":"x","success":false}"#, Error),
            ("null", Success),
            ("7", Success),
        ] {
            assert_eq!(read(Some(&raw(output))).outcome, outcome, "{output}");
        }
        let timed = read(Some(&raw(r#""Wall time: 0.25 seconds\nOutput:\nx""#)));
        assert_eq!(timed.duration, Some(Duration::from_millis(250)));
        let odd = read(Some(&raw(r#""Wall time: -1e999 seconds\nOutput:\nx""#)));
        assert_eq!(odd.duration, None);
    }

    #[test]
    fn results_of_servers_have_a_flag_for_errors() {
        use CallOutcome::{Cancelled, Error, Success, Unknown};
        for (result, outcome) in [
            (r#"{"Ok":{"content":[],"isError":false}}"#, Success),
            (r#"{"Ok":{"content":[],"isError":true}}"#, Error),
            (r#"{"Ok":{"content":[],"is_error":true}}"#, Error),
            (r#"{"Ok":{"content":[]}}"#, Success),
            (r#"{"content":[],"isError":true}"#, Error),
            (r#"{"Err":"tool call error: timeout"}"#, Error),
            (r#"{"Err":"user rejected MCP tool call"}"#, Cancelled),
            ("7", Unknown),
        ] {
            assert_eq!(outcome_of_result(&raw(result)), outcome, "{result}");
        }
    }
}
