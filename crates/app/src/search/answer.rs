//! What a search answers: as much of each tool as a budget of tokens has room for.

use riglm_domain::edit::member;
use riglm_domain::retrieval::ToolText;
use riglm_domain::search::SearchQuality;
use riglm_ports::token_counter::TokenCounter;
use serde::Serialize;
use serde_json::value::RawValue;

/// A tool that is answered, before it is known how much of it there is room for.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// The name by which the client calls it.
    pub(super) name: &'a str,
    pub(super) text: &'a ToolText,
    /// The JSON text of its definition.
    pub(super) definition: &'a str,
    pub(super) score: f64,
    /// Names of tools that are almost the same and are left out.
    pub(super) same: Vec<&'a str>,
}

/// How much is said of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Name,
    Signature,
    Schema,
}

/// How answers are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// The most tokens of the text.
    pub token_budget: u64,
    /// How many of the first tools are shown with their schemas, where there is room.
    pub n_schemas: usize,
}

impl Default for AnswerRules {
    fn default() -> Self {
        Self {
            token_budget: 2_500,
            n_schemas: 5,
        }
    }
}

/// An answer in both forms.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) structured: String,
    /// How many of the tools there was room for.
    pub(super) n_tools: usize,
}

#[derive(Debug, Serialize)]
struct Structured<'a> {
    matches: Vec<Match<'a>>,
    predicted_next: [(); 0],
    quality: &'static str,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct Match<'a> {
    name: &'a str,
    description: &'a str,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Box<RawValue>>,
}

/// Writes an answer: the schemas of the first tools, then signatures, then bare names, until the
/// budget is used up. The text never has more tokens than the budget, except for `notes` alone.
pub(super) fn write(
    found: &[Found<'_>],
    notes: &[String],
    quality: SearchQuality,
    rules: &AnswerRules,
    counter: &dyn TokenCounter,
) -> Written {
    let mut text = String::new();
    for note in notes {
        text.push_str(note);
        text.push('\n');
    }
    if !found.is_empty() {
        text.push_str("Call a tool by its name, whether it is in your list or not.\n");
    }
    let mut used = counter.count(&text);
    let mut matches = Vec::new();
    for (place, tool) in found.iter().enumerate() {
        let wanted = if place < rules.n_schemas {
            Detail::Schema
        } else {
            Detail::Signature
        };
        let schema = input_schema(tool.definition);
        let schema = schema.as_deref();
        let fitting = [Detail::Schema, Detail::Signature, Detail::Name]
            .into_iter()
            .filter(|detail| *detail as u8 <= wanted as u8)
            .filter_map(|detail| entry(place + 1, tool, detail, schema).map(|text| (detail, text)))
            .map(|(detail, entry)| (detail, counter.count(&entry), entry))
            .find(|(_, n_tokens, _)| used + n_tokens <= rules.token_budget);
        let Some((detail, n_tokens, entry)) = fitting else {
            break;
        };
        used += n_tokens;
        text.push_str(&entry);
        matches.push(Match {
            name: tool.name,
            description: if detail == Detail::Name {
                ""
            } else {
                tool.text.summary()
            },
            score: (tool.score * 1_000.0).round() / 1_000.0,
            input_schema: schema
                .filter(|_| detail == Detail::Schema)
                .map(ToOwned::to_owned),
        });
    }
    let n_tools = matches.len();
    let structured = Structured {
        matches,
        predicted_next: [],
        quality: quality.as_str(),
        notes,
    };
    Written {
        text,
        structured: serde_json::to_string(&structured).unwrap_or_else(|_| "{}".into()),
        n_tools,
    }
}

/// Returns what is said of a tool; `None` for a schema that is not there.
fn entry(
    place: usize,
    tool: &Found<'_>,
    detail: Detail,
    schema: Option<&RawValue>,
) -> Option<String> {
    let name = tool.name;
    let mut entry = match detail {
        Detail::Name => return Some(format!("{place}. {name}\n")),
        Detail::Signature | Detail::Schema => {
            let signature = tool.text.signature();
            let summary = tool.text.summary();
            let dash = if summary.is_empty() { "" } else { " - " };
            format!("{place}. {name}{signature}{dash}{summary}\n")
        }
    };
    if detail == Detail::Schema {
        entry.push_str("   arguments: ");
        entry.push_str(schema?.get());
        entry.push('\n');
    }
    if !tool.same.is_empty() {
        entry.push_str("   same as: ");
        entry.push_str(&tool.same.join(", "));
        entry.push('\n');
    }
    Some(entry)
}

/// Returns the schema of the arguments that stands in a definition, without spaces between its
/// tokens.
fn input_schema(definition: &str) -> Option<Box<RawValue>> {
    let schema = member(definition, "inputSchema").filter(|schema| schema.starts_with('{'))?;
    RawValue::from_string(compact(schema)).ok()
}

/// Returns a JSON text without spaces between its tokens, and everything else as it is written.
fn compact(json: &str) -> String {
    let mut compact = String::new();
    let (mut kept_from, mut is_in_string, mut is_escaped) = (0, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_string,
            b'"' => is_in_string = !is_in_string,
            b' ' | b'\t' | b'\r' | b'\n' if !is_in_string => {
                compact.push_str(&json[kept_from..at]);
                kept_from = at + 1;
            }
            _ => {}
        }
    }
    compact.push_str(&json[kept_from..]);
    compact
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A token is a byte.
    #[derive(Debug)]
    struct Bytes;

    impl TokenCounter for Bytes {
        fn count(&self, text: &str) -> u64 {
            text.len() as u64
        }
    }

    const DEFINITION: &str = r#"{"name":"a","description":"Does it. More.",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}}"#;

    fn written(n: usize, token_budget: u64) -> Written {
        let text = ToolText::of_definition("a", DEFINITION);
        let found: Vec<Found<'_>> = (0..n)
            .map(|_| Found {
                name: "a",
                text: &text,
                definition: DEFINITION,
                score: 0.123_456,
                same: Vec::new(),
            })
            .collect();
        let rules = AnswerRules {
            token_budget,
            ..AnswerRules::default()
        };
        write(
            &found,
            &["note".into()],
            SearchQuality::High,
            &rules,
            &Bytes,
        )
    }

    #[test]
    fn the_first_tools_have_schemas_and_the_others_signatures() {
        let answer = written(6, 10_000);
        assert_eq!(answer.text.matches("arguments: ").count(), 5);
        assert!(answer.text.contains("6. a(x?: string) - Does it.\n"));
        let structured: Value = serde_json::from_str(&answer.structured).unwrap();
        assert_eq!(structured["matches"][0]["score"], 0.123);
        assert_eq!(structured["matches"][4]["input_schema"]["type"], "object");
        assert!(structured["matches"][5].get("input_schema").is_none());
        assert_eq!(structured["quality"], "high");
    }

    #[test]
    fn both_forms_have_the_schema_without_the_spaces_between_its_tokens() {
        let spaces = " \n\t\r".repeat(100_000);
        let definition = format!(
            r#"{{"name":"a","inputSchema":{spaces}{{{spaces}"type" :{spaces}"object", "x": "a  \" b"{spaces}}}{spaces}}}"#
        );
        let text = ToolText::of_definition("a", &definition);
        let found = Found {
            name: "a",
            text: &text,
            definition: &definition,
            score: 0.5,
            same: Vec::new(),
        };
        let rules = AnswerRules::default();
        let answer = write(&[found], &[], SearchQuality::High, &rules, &Bytes);
        let schema = r#"{"type":"object","x":"a  \" b"}"#;
        assert!(answer.text.contains(schema), "{}", answer.text);
        let in_structured = format!(r#""input_schema":{schema}"#);
        assert!(answer.structured.contains(&in_structured));
        assert!(answer.structured.len() < 400, "{}", answer.structured.len());
    }

    #[test]
    fn a_compact_text_says_the_same() {
        for text in [
            "",
            " a ",
            "\"",
            "\\",
            "\\\" ,{",
            "\\\\ : \n",
            "a\" b \" c",
            "漢 字",
        ] {
            let value = serde_json::json!({"a b": [text, {"c": 1.5}, text], "d": {}});
            let spaced = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(compact(&spaced), value.to_string());
        }
    }

    #[test]
    fn an_answer_never_exceeds_its_budget() {
        for budget in 70..700 {
            let answer = written(9, budget);
            assert!(
                answer.text.len() as u64 <= budget,
                "{budget}: {}",
                answer.text
            );
        }
        assert!(written(9, 70).text.contains("1. a\n"));
        assert_eq!(written(9, 10).n_tools, 0);
    }
}
