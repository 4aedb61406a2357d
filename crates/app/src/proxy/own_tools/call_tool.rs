//! The own tool `call_tool`: unwraps the call in its arguments and validates it.

use std::borrow::Cow;
use std::sync::Arc;

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::scan::{is_deeper_than, unescape};
use riglm_domain::privacy::principal::Principal;
use serde_json::{Map, Value};

use super::OwnTools;
use super::arguments::ArgumentsProblem;
use super::call_hints::{Length, UnfitCall, misfit};
use super::own_tool::{OwnTool, TakenNames};
use crate::proxy::client_context::ClientContext;
use crate::proxy::request_params::RequestParams;
use crate::proxy::shared_state::SharedState;
use riglm_discovery::search::{Catalog, CatalogTool};

/// The maximum size in bytes of a string that is parsed as arguments.
const MAX_ENCODED_BYTES: usize = 1 << 20;
/// The nesting levels of a message around the arguments of a call: the message and its `params`.
const LEVELS_ABOVE: usize = 2;

/// The principal of a call, and the limits that apply.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct CallMaker<'a> {
    principal: &'a Principal,
    /// The maximum nesting depth of a message.
    max_depth: usize,
}

impl<'a> CallMaker<'a> {
    /// Returns the client of a session under the current limits.
    pub(in crate::proxy) fn of(client_context: &'a ClientContext, shared: &SharedState) -> Self {
        Self {
            principal: &client_context.principal,
            max_depth: shared.limits().message_depth,
        }
    }
}

/// The result of unwrapping a call.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) enum UnwrapOutcome {
    /// The `params` of the wrapped call, as JSON text.
    Call(String),
    /// The reason why the call is not made, as text for the model.
    Wrong(String),
}

/// The wrapped call, as JSON text.
#[derive(Debug)]
struct WrappedCall<'a> {
    params: String,
    name: String,
    arguments: Cow<'a, str>,
}

impl OwnTools {
    /// Unwraps a call with these `params`. `catalog` is the catalog if it is known. Arguments that do
    /// not fit the schema of their tool are reported, and the call is not made. A call of a name
    /// outside the catalog is left to its server.
    pub(in crate::proxy) async fn unwrap_call(
        &self,
        maker: &CallMaker<'_>,
        params: Option<&str>,
        catalog: Option<&Catalog>,
    ) -> UnwrapOutcome {
        let inner = match self.inner(params.unwrap_or("{}"), maker.max_depth) {
            Ok(inner) => inner,
            Err(problem) => return UnwrapOutcome::Wrong(problem.into()),
        };
        if self.tool_named(&inner.name).is_some() {
            return UnwrapOutcome::Call(inner.params); // It judges its arguments itself.
        }
        let Some(tool) = catalog.and_then(|catalog| catalog.tool(&inner.name)) else {
            return UnwrapOutcome::Call(inner.params);
        };
        let problems = self.problems(maker.principal, tool, &inner.arguments);
        let problems = problems.await;
        if problems.is_empty() {
            UnwrapOutcome::Call(inner.params)
        } else {
            UnwrapOutcome::Wrong(misfit(tool, &problems, UnfitCall::Withheld, Length::Full))
        }
    }

    /// Returns the `params` of the wrapped call if it is quick to tell that the call is valid.
    fn unwrap_call_at_once(
        &self,
        maker: &CallMaker<'_>,
        params: Option<&str>,
        catalog: &Catalog,
    ) -> Option<String> {
        let inner = self.inner(params?, maker.max_depth).ok()?;
        let Some(tool) = catalog.tool(&inner.name) else {
            return Some(inner.params);
        };
        let fits = schema_of(tool)
            .is_none_or(|schema| self.checks.is_known_to_fit(schema, &inner.arguments));
        fits.then_some(inner.params)
    }

    /// Returns the call that a message wraps, if it is quick to tell that the call is valid.
    /// Returns `None` if the message is no call of `call_tool`, or if its name is `taken`.
    pub(in crate::proxy) fn wrapped_call(
        &self,
        message: &Message,
        maker: &CallMaker<'_>,
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
        let catalog = catalog().filter(|catalog| !self.taken_in(catalog).has(OwnTool::CallTool))?;
        let params = self.unwrap_call_at_once(maker, Some(params), &catalog)?;
        Some(message.with_params(&params).without_param_headers())
    }

    /// Returns at most five problems of the arguments of a call of this tool.
    pub(in crate::proxy) async fn problems(
        &self,
        principal: &Principal,
        tool: &CatalogTool,
        arguments: &str,
    ) -> Vec<String> {
        let Some(schema) = schema_of(tool) else {
            return Vec::new();
        };
        let problems = (self.checks).problems(principal, &tool.tool, schema, arguments);
        problems.await
    }

    /// Reads the wrapped call. The text of its arguments stays verbatim, and so do all other
    /// members.
    fn inner<'a>(
        &self,
        params: &'a str,
        max_depth: usize,
    ) -> Result<WrappedCall<'a>, ArgumentsProblem> {
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
        Ok(WrappedCall {
            params: with_member(&renamed, "arguments", &arguments),
            name: name.into_owned(),
            arguments,
        })
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

/// Returns the JSON text of the input schema of a tool.
fn schema_of(tool: &CatalogTool) -> Option<&str> {
    member(&tool.definition, "inputSchema").filter(|schema| schema.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use riglm_domain::catalog::tool::ToolRef;
    use riglm_domain::id::{ToolName, UpstreamName};
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

    fn catalog() -> Catalog {
        let definition = r#"{"name":"u__read","inputSchema":{"type":"object",
            "properties":{"path":{"type":"string"}},"required":["path"]}}"#;
        let tool = CatalogTool {
            name: "u__read".into(),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: "read".into(),
            },
            definition: definition.into(),
            is_hidden: true,
        };
        Catalog::new(vec![tool], Vec::new())
    }

    async fn unwrapped_with(tools: &OwnTools, params: &str) -> UnwrapOutcome {
        let (principal, catalog) = (Principal::local(), catalog());
        let maker = maker(&principal);
        let unwrapped = tools.unwrap_call(&maker, Some(params), Some(&catalog));
        unwrapped.await
    }

    fn maker(principal: &Principal) -> CallMaker<'_> {
        CallMaker {
            principal,
            max_depth: 100,
        }
    }

    async fn unwrap_params(params: &str) -> UnwrapOutcome {
        unwrapped_with(&tools(), params).await
    }

    #[tokio::test]
    async fn unwrapping_keeps_other_params_and_original_bytes() {
        let params = r#"{"_meta":{"progressToken":1.0},"arguments":{"arguments":{ "n":1e3,"z":0.70 },"name":"x\u0079"},"name":"call_tool","task":{"ttl":5}}"#;
        let expected = r#"{"_meta":{"progressToken":1.0},"arguments":{ "n":1e3,"z":0.70 },"name":"x\u0079","task":{"ttl":5}}"#;
        assert_eq!(
            unwrap_params(params).await,
            UnwrapOutcome::Call(expected.into())
        );
        let without = r#"{"name":"call_tool","arguments":{"name":"x"}}"#;
        let expected = r#"{"name":"x","arguments":{}}"#;
        assert_eq!(
            unwrap_params(without).await,
            UnwrapOutcome::Call(expected.into())
        );
    }

    #[tokio::test]
    async fn arguments_are_checked_under_both_names_of_a_tool() {
        let (tools, principal) = (tools(), Principal::local());
        for name in ["u__read", "read"] {
            let call = |arguments: &str| {
                format!(
                    r#"{{"name":"call_tool","arguments":{{"name":"{name}","arguments":{arguments}}}}}"#
                )
            };
            let UnwrapOutcome::Wrong(text) = unwrap_params(&call(r#"{"path":7}"#)).await else {
                unreachable!("it was called");
            };
            assert!(text.contains("/path") && text.contains("string"), "{text}");
            assert!(text.contains(r#""required":["path"]"#), "{text}");
            let right = call(r#"{"path":"a"}"#);
            let UnwrapOutcome::Call(params) = unwrapped_with(&tools, &right).await else {
                unreachable!("it was not called");
            };
            let at_once = tools.unwrap_call_at_once(&maker(&principal), Some(&right), &catalog());
            assert_eq!(at_once, Some(params));
            let wrong = call("{}");
            assert_eq!(
                tools.unwrap_call_at_once(&maker(&principal), Some(&wrong), &catalog()),
                None
            );
        }
    }

    #[tokio::test]
    async fn arguments_encoded_as_strings_are_decoded_and_validated() {
        let params = r#"{"name":"call_tool","arguments":{"name":"x",
            "arguments":" {\"n\": 1e3, \"\u0061\": {\"t\": \"\\\"\"}}"}}"#;
        let expected = r#"{"name":"x","arguments":{"n": 1e3, "a": {"t": "\""}}}"#;
        assert_eq!(
            unwrap_params(params).await,
            UnwrapOutcome::Call(expected.into())
        );
        // They are validated like other arguments.
        let wrong =
            r#"{"name":"call_tool","arguments":{"name":"read","arguments":"{\"path\":7}"}}"#;
        let UnwrapOutcome::Wrong(text) = unwrap_params(wrong).await else {
            unreachable!("it was called");
        };
        assert!(text.contains("/path"), "{text}");
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

    #[tokio::test]
    async fn invalid_calls_are_refused_with_the_expected_arguments() {
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
            let UnwrapOutcome::Wrong(text) = unwrap_params(&params).await else {
                unreachable!("{arguments} was called");
            };
            assert!(text.contains(said), "{arguments}: {text}");
        }
        let wrong = unwrap_params(r#"{"name":"call_tool"}"#).await;
        assert!(matches!(wrong, UnwrapOutcome::Wrong(_)));
    }
}
