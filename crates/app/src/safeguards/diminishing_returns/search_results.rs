//! Query and results of a call of an upstream search tool, as far as searches are compared by them.

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::{members, unescape};
use riglm_domain::mcp::tool_result::is_error;
use riglm_domain::privacy::canonical::write_canonical;
use riglm_domain::safeguards::diminishing_returns::{ResultSet, SearchSummary, normalize_query};
use serde_json::Value;

use super::search_tools::is_query;
use crate::safeguards::GuardedCall;

// Longer results are ignored: the start shows enough of them, and reading takes time.
const MAX_BYTES: usize = 256 << 10;
/// The members that identify an element of a list, the most specific first.
const IDENTITIES: [&str; 8] = ["id", "uri", "url", "link", "path", "key", "name", "title"];
// A line with fewer letters and digits does not identify a result: `},`, or a ruler.
const LEAST_LETTERS: usize = 4;

/// Returns the search that a call makes, with its result, which is JSON text. Scores of the results
/// are unknown.
pub(super) fn search_of(call: &GuardedCall<'_>, result: &str) -> SearchSummary {
    SearchSummary {
        query: query_of(call),
        words: words_of(call),
        results: if is_error(result) {
            ResultSet::default()
        } else {
            results_of(result)
        },
        top_score: None,
    }
}

/// Returns the text by which searches are compared: the tool and all of its arguments, so that the
/// next page counts as another search.
fn query_of(call: &GuardedCall<'_>) -> String {
    let mut canonical = Vec::new();
    let mut write = |piece: &[u8]| canonical.extend_from_slice(piece);
    let is_known = (call.arguments).is_some_and(|text| write_canonical(text, &mut write).is_ok());
    let arguments = String::from_utf8(canonical).unwrap_or_default();
    let upstream = call.upstream.map_or("", UpstreamName::as_str);
    if is_known {
        format!("{upstream}\n{}\n{}", call.tool, normalize_query(&arguments))
    } else {
        // Arguments that were not stored must not equal any others.
        format!("{upstream}\n{}\n{:?}", call.tool, call.at)
    }
}

/// Returns the words of a search for quoting: its query, or its first text argument, or the tool.
fn words_of(call: &GuardedCall<'_>) -> String {
    let arguments = call.arguments.unwrap_or_default();
    let texts = || members(arguments).filter_map(|(name, value)| Some((name, unescape(value)?)));
    let query = texts().find(|(name, _)| is_query(name));
    let words = query.or_else(|| texts().next());
    words.map_or_else(|| call.tool.to_string(), |(_, words)| words.into_owned())
}

/// Returns the identities of the results: elements of the lists in `structuredContent` or in JSON
/// text, otherwise the lines of the texts.
fn results_of(result: &str) -> ResultSet {
    if let Some(structured) = member(result, "structuredContent").filter(|it| it.len() <= MAX_BYTES)
        && let Some(elements) = elements_of(structured)
    {
        return ResultSet::of(elements);
    }
    let content = member(result, "content").filter(|content| content.len() <= 2 * MAX_BYTES);
    let content: Vec<Value> = content
        .and_then(|content| serde_json::from_str(content).ok())
        .unwrap_or_default();
    let texts = content.iter().filter_map(|part| {
        let text = part.get("text").or_else(|| part.get("uri"))?;
        text.as_str()
    });
    let mut identities = Vec::new();
    for text in texts {
        match elements_of(text) {
            Some(elements) => identities.extend(elements),
            None => identities.extend(lines_of(text)),
        }
    }
    ResultSet::of(identities)
}

/// Returns the identities of the elements of a list: the JSON text itself, or its longest member.
/// `None` if there is no list.
fn elements_of(json: &str) -> Option<Vec<String>> {
    let is_container = json.trim_start().starts_with(['{', '[']);
    let value: Value = is_container.then(|| serde_json::from_str(json).ok())??;
    let elements = match &value {
        Value::Array(elements) => elements,
        Value::Object(object) => {
            let lists = object.values().filter_map(Value::as_array);
            lists.max_by_key(|list| list.len())?
        }
        _ => return None,
    };
    Some(elements.iter().map(identity_of).collect())
}

fn identity_of(element: &Value) -> String {
    let identity = IDENTITIES.iter().find_map(|name| element.get(name));
    let identity = identity.filter(|value| value.is_string() || value.is_number());
    identity.unwrap_or(element).to_string()
}

fn lines_of(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(|line| line.trim().to_lowercase());
    lines.filter(|line| {
        let letters = line.chars().filter(|it| it.is_alphanumeric());
        letters.take(LEAST_LETTERS).count() == LEAST_LETTERS
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::safeguards::testing::Scene;

    fn set(identities: &[&str]) -> ResultSet {
        ResultSet::of(identities)
    }

    fn text(text: &str) -> String {
        json!({"content": [{"type": "text", "text": text}]}).to_string()
    }

    #[test]
    fn elements_are_identified_by_key_members_or_content() {
        let result = r#"{"content":[],"structuredContent":{"total":9,"tags":["x"],"items":[
            {"score":0.9,"url":"a"},{"score":0.1,"url":"b"},{"score":7}]}}"#;
        let expected = set(&["\"a\"", "\"b\"", r#"{"score":7}"#]);
        assert_eq!(results_of(result), expected);
        let as_text = text(r#" [{"id":1,"at":"now"},{"id":2}]"#);
        assert_eq!(results_of(&as_text), set(&["1", "2"]));
    }

    #[test]
    fn texts_are_known_by_their_lines() {
        let result = text("# Found\n- First  page\n\n---\n- SECOND page\n{},\n");
        let expected = set(&["# found", "- first  page", "- second page"]);
        assert_eq!(results_of(&result), expected);
        let link = json!({"content": [{"type": "resource_link", "uri": "file:///a"}]});
        assert_eq!(results_of(&link.to_string()), set(&["file:///a"]));
    }

    #[test]
    fn malformed_results_have_no_elements() {
        for odd in [
            "{}",
            "",
            "7",
            r#"{"content":7}"#,
            r#"{"structuredContent":[]}"#,
        ] {
            assert!(results_of(odd).is_empty(), "{odd}");
        }
    }

    #[test]
    fn searches_are_compared_by_arguments_and_quoted_by_query() {
        let scene = Scene::new(&[]);
        let tool = "find".into();
        let of = |arguments| search_of(&scene.call(&tool, arguments), "{}");
        let first = of(r#"{"page":1,"query":"Some  words"}"#);
        assert_eq!(first.words, "Some  words");
        assert_eq!(
            first.query,
            of(r#"{ "query":"some words", "page":1 }"#).query
        );
        assert_ne!(first.query, of(r#"{"page":2,"query":"some words"}"#).query);
        let other = "search".into();
        let elsewhere = scene.call(&other, r#"{"page":1,"query":"some words"}"#);
        assert_ne!(first.query, search_of(&elsewhere, "{}").query);
        assert_eq!(of(r#"{"n":1,"text":"b"}"#).words, "b");
        assert_eq!(of("{}").words, "find");
    }

    #[test]
    fn searches_without_stored_arguments_are_never_equal() {
        let scene = Scene::new(&[]);
        let tool = "find".into();
        let kept = scene.call(&tool, "{}");
        let call = |after| GuardedCall {
            arguments: None,
            at: kept.at + std::time::Duration::from_nanos(after),
            ..kept
        };
        let query = |after| search_of(&call(after), "{}").query;
        assert_ne!(query(1), query(2));
    }

    #[test]
    fn failed_searches_have_no_results() {
        let scene = Scene::new(&[]);
        let tool = "find".into();
        let result = text("what was not found").replacen('{', r#"{"isError":true,"#, 1);
        assert!(
            search_of(&scene.call(&tool, "{}"), &result)
                .results
                .is_empty()
        );
    }
}
