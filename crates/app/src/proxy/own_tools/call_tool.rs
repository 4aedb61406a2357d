//! The own tool `call_tool`: unwraps the call in its arguments.

use std::borrow::Cow;
use std::sync::Arc;

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::scan::{is_deeper_than, unescape};
use serde_json::{Map, Value};

use super::OwnTools;
use super::arguments::ArgumentsProblem;
use super::own_tool::{OwnTool, TakenNames};
use crate::proxy::request_params::RequestParams;
use riglm_discovery::search::Catalog;

/// The maximum size in bytes of a string that is parsed as arguments.
const MAX_ENCODED_BYTES: usize = 1 << 20;
/// The nesting levels of a message around the arguments of a call: the message and its `params`.
const LEVELS_ABOVE: usize = 2;

impl OwnTools {
    /// Returns the `params` of the call that a call with these `params` wraps, as JSON text. The
    /// text of its arguments stays verbatim, and so do all other members. The server of the tool
    /// validates the arguments. `max_depth` is the maximum nesting depth of a message.
    ///
    /// # Errors
    ///
    /// Returns the reason if the call names no tool, or if its arguments are no object.
    pub(in crate::proxy) fn unwrap_call(
        &self,
        params: Option<&str>,
        max_depth: usize,
    ) -> Result<String, ArgumentsProblem> {
        let params = params.unwrap_or("{}");
        let own = self.name(OwnTool::CallTool).unwrap_or_default();
        let outer = RequestParams::read(Some(params)).arguments();
        let outer = outer.filter(|arguments| arguments.starts_with('{'));
        let Some(outer) = outer else {
            return Err(ArgumentsProblem::new(format!(
                r#"{own} must be called with an object such as {{"name": "a_tool", "arguments": {{}}}}"#
            )));
        };
        let expected = |problem: &str| {
            ArgumentsProblem::new(format!("name must be the name of a tool; it is {problem}"))
        };
        let name = match (
            member(outer, "name"),
            RequestParams::read(Some(outer)).name(),
        ) {
            (None, _) => return Err(expected("missing")),
            (Some(_), None) => return Err(expected("not a string")),
            (Some(_), Some(name)) if name.trim().is_empty() => return Err(expected("empty")),
            (Some(_), Some(name)) if name == own => {
                return Err(expected(
                    "this tool itself, which can only call other tools",
                ));
            }
            (Some(text), Some(name)) => (text, name),
        };
        let (name_text, name) = name;
        let arguments = match member(outer, "arguments") {
            None | Some("null") => Cow::Borrowed("{}"),
            Some(arguments) if arguments.starts_with('{') => Cow::Borrowed(arguments),
            Some(arguments) => match encoded_object(arguments, max_depth) {
                Some(object) => Cow::Owned(object),
                None => {
                    return Err(ArgumentsProblem::new(format!(
                        "arguments must be an object that fits the schema of {name}"
                    )));
                }
            },
        };
        let renamed = with_member(params, "name", name_text);
        Ok(with_member(&renamed, "arguments", &arguments))
    }

    /// Returns the call that a message wraps, if the catalog is known. Returns `None` if the
    /// message is no valid call of `call_tool`, or if its name is `taken`.
    pub(in crate::proxy) fn wrapped_call(
        &self,
        message: &Message,
        max_depth: usize,
        taken: TakenNames,
        catalog: impl FnOnce() -> Option<Arc<Catalog>>,
    ) -> Option<Message> {
        let name = self.name(OwnTool::CallTool)?;
        if taken.has(OwnTool::CallTool) {
            return None;
        }
        // A search for the name in the raw text is cheaper than parsing, and mostly sufficient.
        memchr::memmem::find(message.raw(), name.as_bytes())?;
        let part = message.single()?;
        let (method, _) = part.as_request()?;
        let params = message.params(part).filter(|_| method == "tools/call")?;
        if RequestParams::read(Some(params)).name()? != name {
            return None;
        }
        catalog().filter(|catalog| !self.taken_in(catalog).has(OwnTool::CallTool))?;
        let params = self.unwrap_call(Some(params), max_depth).ok()?;
        Some(message.with_params(&params).without_param_headers())
    }
}

/// Returns the text of an object in a JSON string, because some models encode arguments twice.
/// Returns `None` for any other value and for a string that is too long. Also returns `None` for an
/// object that is nested too deep for a message of at most `max_depth` levels.
fn encoded_object(arguments: &str, max_depth: usize) -> Option<String> {
    if arguments.len() > MAX_ENCODED_BYTES || !arguments.starts_with('"') {
        return None;
    }
    let text = unescape(arguments)?;
    let text = text.trim();
    if is_deeper_than(text.as_bytes(), max_depth.saturating_sub(LEVELS_ABOVE)) {
        return None;
    }
    // The parser has its own nesting limit, whatever `max_depth` is.
    serde_json::from_str::<Map<String, Value>>(text).ok()?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::ToolName;
    use riglm_ports::fake::WordCounter;

    use super::super::OwnToolNames;
    use super::*;
    use crate::clock::SystemClock;
    use crate::proxy::own_tools::OwnToolSet;
    use riglm_discovery::search::{SearchParts, ToolSearch};

    fn tools() -> OwnTools {
        let parts = SearchParts::words_only(Arc::new(WordCounter), Arc::new(SystemClock));
        let name = |name: &str| Some(ToolName::from(name));
        let names = OwnToolNames {
            search: name("search"),
            call_tool: name("call_tool"),
            set_context: None,
            ..OwnToolNames::default()
        };
        OwnTools::new(
            Arc::new(ToolSearch::new(parts)),
            names,
            OwnToolSet::default(),
        )
        .unwrap()
    }

    fn unwrap_params(params: &str) -> Result<String, String> {
        let unwrapped = tools().unwrap_call(Some(params), 100);
        unwrapped.map_err(String::from)
    }

    #[test]
    fn unwrapping_keeps_other_params_and_original_bytes() {
        let params = r#"{"_meta":{"progressToken":1.0},"arguments":{"arguments":{ "n":1e3,"z":0.70 },"name":"x\u0079"},"name":"call_tool","task":{"ttl":5}}"#;
        let expected = r#"{"_meta":{"progressToken":1.0},"arguments":{ "n":1e3,"z":0.70 },"name":"x\u0079","task":{"ttl":5}}"#;
        assert_eq!(unwrap_params(params), Ok(expected.into()));
        let without = r#"{"name":"call_tool","arguments":{"name":"x"}}"#;
        let expected = r#"{"name":"x","arguments":{}}"#;
        assert_eq!(unwrap_params(without), Ok(expected.into()));
    }

    #[test]
    fn arguments_encoded_as_strings_are_decoded() {
        let params = r#"{"name":"call_tool","arguments":{"name":"x",
            "arguments":" {\"n\": 1e3, \"\u0061\": {\"t\": \"\\\"\"}}"}}"#;
        let expected = r#"{"name":"x","arguments":{"n": 1e3, "a": {"t": "\""}}}"#;
        assert_eq!(unwrap_params(params), Ok(expected.into()));
    }

    #[test]
    fn arguments_encoded_as_strings_are_bounded() {
        let nested = |depth| {
            format!(
                "\"{{\\\"a\\\":{}{}}}\"",
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        // The wrapping object, the `params` and the message count as levels too.
        for limit in [30, 100] {
            assert!(encoded_object(&nested(limit - 3), limit).is_some());
            assert_eq!(encoded_object(&nested(limit - 2), limit), None);
        }
        for limit in [100, 10_000] {
            assert_eq!(encoded_object(&nested(100_000), limit), None);
        }
        let long = |n: usize| format!(r#""{{\"a\":{}}}""#, " ".repeat(n - 11) + "1");
        assert_eq!(long(MAX_ENCODED_BYTES).len(), MAX_ENCODED_BYTES);
        assert!(encoded_object(&long(MAX_ENCODED_BYTES), 100).is_some());
        assert_eq!(encoded_object(&long(MAX_ENCODED_BYTES + 1), 100), None);
        for other in ["7", "[]", r#""7""#, r#""""#, r#""{} {}""#] {
            assert_eq!(encoded_object(other, 100), None, "{other}");
        }
    }

    #[test]
    fn invalid_calls_are_refused_with_the_expected_arguments() {
        for (arguments, said) in [
            ("[1]", "must be called with an object"),
            (r#"{"arguments":{}}"#, "missing"),
            (r#"{"name":7}"#, "not a string"),
            (r#"{"name":" "}"#, "empty"),
            (
                r#"{"name":"call_tool","arguments":{"name":"x"}}"#,
                "this tool itself",
            ),
            (
                r#"{"name":"x","arguments":"[1]"}"#,
                "arguments must be an object",
            ),
            (
                r#"{"name":"x","arguments":"{\"n\":"}"#,
                "arguments must be an object",
            ),
        ] {
            let params = format!(r#"{{"name":"call_tool","arguments":{arguments}}}"#);
            let Err(text) = unwrap_params(&params) else {
                unreachable!("{arguments} was called");
            };
            assert!(text.contains(said), "{arguments}: {text}");
        }
        assert!(unwrap_params(r#"{"name":"call_tool"}"#).is_err());
    }
}
