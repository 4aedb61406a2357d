//! What a model is told that called a tool in the wrong way, so that its next call is a right one.

use std::fmt::Write as _;
use std::sync::Arc;

use riglm_domain::excerpt::excerpt;
use riglm_domain::principal::Principal;

use crate::long_work::LongWork;
use crate::search::{Offer, OfferedTool, input_schema, nearest_tools};

/// How many names are suggested.
const N_NAMES: usize = 3;
/// The largest schema that is written out, in bytes.
const MAX_SCHEMA_BYTES: u64 = 16 << 10;
/// The largest one of a tool that is only suggested.
const MAX_SUGGESTED_BYTES: u64 = 4 << 10;
/// The longest name that is repeated, in characters.
pub(in crate::proxy) const MAX_NAME_CHARS: usize = 100;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Length {
    /// With schemas.
    Full,
    /// It was said before in this session.
    Short,
}

/// Returns what is said of arguments that do not fit the schema of their tool. `is_uncalled` says
/// that the tool was not called for that.
pub(super) fn misfit(tool: &OfferedTool, problems: &[String], is_uncalled: bool) -> String {
    misfit_of(tool, problems, (is_uncalled, Length::Full))
}

/// Returns the same at the length that is asked for.
pub(in crate::proxy) fn misfit_of(
    tool: &OfferedTool,
    problems: &[String],
    (is_uncalled, length): (bool, Length),
) -> String {
    let name = &tool.name;
    let uncalled = if is_uncalled {
        ", so it was not called"
    } else {
        ""
    };
    let mut text = format!("The arguments do not fit the input schema of {name}{uncalled}:");
    for problem in problems {
        let _ = write!(text, "\n- {problem}"); // Writing to a String cannot fail.
    }
    if length == Length::Full
        && let Some(schema) = input_schema(&tool.definition, MAX_SCHEMA_BYTES)
    {
        let _ = write!(text, "\nInput schema: {schema}");
    }
    text
}

/// Returns what is said of a name that nobody offers, see [`unknown_of`]. Comparing names takes long
/// where there are many.
pub(in crate::proxy) async fn unknown(
    work: &LongWork,
    principal: &Principal,
    name: &str,
    offer: Arc<Offer>,
    (search, length): (Option<&str>, Length),
) -> Option<String> {
    let (name, search) = (name.to_owned(), search.map(str::to_owned));
    let said = work.done(principal, move || {
        unknown_of(&name, &offer, search.as_deref(), length)
    });
    said.await.flatten()
}

/// Returns what is said of a name that nobody offers: the nearest names, and how to find others with
/// the tool for that, which is called `search` where there is one. `None` where nothing helps.
fn unknown_of(name: &str, offer: &Offer, search: Option<&str>, length: Length) -> Option<String> {
    let known = || format!("No tool is named {:?}", excerpt(name, MAX_NAME_CHARS));
    let near = nearest_tools(name, offer, N_NAMES);
    let near: Vec<&OfferedTool> = near.iter().map(|at| &offer.tools()[*at]).collect();
    if near.is_empty() {
        return search.map(|search| format!("{}; {search} finds tools by what they do.", known()));
    }
    let names: Vec<&str> = near.iter().map(|tool| tool.name.as_str()).collect();
    if length == Length::Short {
        return Some(format!(
            "{}; the nearest names are {}.",
            known(),
            names.join(", ")
        ));
    }
    let mut text = format!("{}. The nearest names:", known());
    for tool in near {
        let _ = write!(text, "\n- {}", tool.name);
        let line = tool.first_line();
        if !line.is_empty() {
            let _ = write!(text, ": {line}");
        }
        if let Some(schema) = input_schema(&tool.definition, MAX_SUGGESTED_BYTES) {
            let _ = write!(text, "\n  Input schema: {schema}");
        }
    }
    if let Some(search) = search {
        let _ = write!(text, "\n{search} finds others by what they do.");
    }
    Some(text)
}

/// Returns what a server said with something more behind it, as sentences of one text.
pub(in crate::proxy) fn with_sentence(said: &str, more: &str) -> String {
    let said = said.trim_end();
    let end = if said.is_empty() || said.ends_with(['.', '!', '?', ':', ';']) {
        ""
    } else {
        "."
    };
    let space = if said.is_empty() { "" } else { " " };
    format!("{said}{end}{space}{more}")
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;
    use riglm_domain::tool::ToolRef;
    use serde_json::json;

    use super::*;

    fn offer(names: &[&str]) -> Offer {
        let tools = names.iter().map(|name| OfferedTool {
            name: format!("u__{name}"),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: (*name).into(),
            },
            definition: json!({"name": name, "description": "Does it.\nIn two lines.",
                "inputSchema": {"type": "object", "title": name}})
            .to_string()
            .into(),
            is_hidden: false,
        });
        Offer::new(tools.collect(), Vec::new())
    }

    #[test]
    fn the_nearest_names_come_with_their_schemas_once() {
        let offer = offer(&["read_file", "write_file", "list_directory", "send"]);
        let unknown = |name: &str, length| unknown_of(name, &offer, Some("find"), length).unwrap();
        let text = unknown("ReadFile", Length::Full);
        assert!(text.starts_with("No tool is named \"ReadFile\"."), "{text}");
        assert!(text.contains("- u__read_file: Does it.\n"), "{text}");
        assert!(
            text.contains(r#"{"type":"object","title":"read_file"}"#),
            "{text}"
        );
        assert!(
            text.contains("find finds others") && !text.contains("u__send"),
            "{text}"
        );
        let short = unknown("ReadFile", Length::Short);
        assert!(
            short.contains("u__read_file") && !short.contains("object"),
            "{short}"
        );
        let none = unknown("zzz", Length::Full);
        assert_eq!(
            none,
            "No tool is named \"zzz\"; find finds tools by what they do."
        );
    }

    #[test]
    fn without_a_tool_for_searching_only_names_help() {
        let offer = offer(&["read_file"]);
        let text = unknown_of("read_fil", &offer, None, Length::Full).unwrap();
        assert!(
            text.contains("- u__read_file") && !text.contains("others"),
            "{text}"
        );
        assert_eq!(unknown_of("zzz", &offer, None, Length::Full), None);
    }

    #[test]
    fn sentences_are_joined_with_one_full_stop() {
        for said in ["Unknown tool: x", "Unknown tool: x.", "Unknown tool: x. "] {
            assert_eq!(with_sentence(said, "Try y."), "Unknown tool: x. Try y.");
        }
        assert_eq!(with_sentence("Really?", "Yes."), "Really? Yes.");
        assert_eq!(with_sentence("", "Yes."), "Yes.");
    }

    #[test]
    fn a_schema_that_was_shown_is_not_shown_again() {
        let offer = offer(&["read"]);
        let problems = ["/path: it is not a string".to_owned()];
        let full = misfit(&offer.tools()[0], &problems, true);
        assert!(
            full.contains("not called") && full.contains("- /path: it"),
            "{full}"
        );
        assert!(full.contains(r#"Input schema: {"type""#), "{full}");
        let short = misfit_of(&offer.tools()[0], &problems, (false, Length::Short));
        assert!(!short.contains("Input schema: ") && !short.contains("not called"));
    }
}
