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
    /// The names of tools that are the same and have no entry of their own.
    pub(super) same: Vec<&'a str>,
}

/// How much is said of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Without those that are the same.
    BareName,
    Name,
    Signature,
    Schema,
}

impl Detail {
    /// All of them, the one that says most first.
    const ALL: [Self; 4] = [Self::Schema, Self::Signature, Self::Name, Self::BareName];

    fn has_summary(self) -> bool {
        matches!(self, Self::Signature | Self::Schema)
    }
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    same_as: &'a [&'a str],
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
    let mut room = Room::new(rules.token_budget, counter);
    room.used = counter.count(&text);
    let mut matches = Vec::new();
    for (place, tool) in found.iter().enumerate() {
        let is_first = place < rules.n_schemas;
        let schema = is_first.then(|| input_schema(tool.definition, room.max_bytes()));
        let schema = schema.flatten();
        let fitting = (Detail::ALL.into_iter())
            .filter(|detail| is_first || *detail != Detail::Schema)
            .filter_map(|detail| {
                let entry = entry(place + 1, tool, detail, schema.as_deref())?;
                Some((detail, entry))
            })
            .find(|(_, entry)| room.takes(entry));
        let Some((detail, entry)) = fitting else {
            break;
        };
        text.push_str(&entry);
        matches.push(Match {
            name: tool.name,
            description: if detail.has_summary() {
                tool.text.summary()
            } else {
                ""
            },
            score: (tool.score * 1_000.0).round() / 1_000.0,
            same_as: &tool.same,
            input_schema: schema.filter(|_| detail == Detail::Schema),
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

/// What room is left in an answer.
#[derive(Debug)]
struct Room<'a> {
    token_budget: u64,
    used: u64,
    counter: &'a dyn TokenCounter,
    /// How many bytes may still be counted of entries for which there is no room in the end.
    to_waste: u64,
}

impl<'a> Room<'a> {
    /// Text has fewer bytes for a token than this: English and JSON have four or five. What has
    /// more of them than the tokens that are left can have is not counted.
    const TOKEN_BYTES: u64 = 8;
    /// How many times as much as there is room for may be counted in vain.
    const VAIN_COUNTS: u64 = 8;

    fn new(token_budget: u64, counter: &'a dyn TokenCounter) -> Self {
        let max_bytes = token_budget.saturating_mul(Self::TOKEN_BYTES);
        Self {
            token_budget,
            used: 0,
            counter,
            to_waste: max_bytes.saturating_mul(Self::VAIN_COUNTS),
        }
    }

    /// Returns the most bytes that something can have for which there is room.
    fn max_bytes(&self) -> u64 {
        let left = self.token_budget.saturating_sub(self.used);
        left.saturating_mul(Self::TOKEN_BYTES).min(self.to_waste)
    }

    /// Takes the room that an entry needs. Returns whether there is so much.
    fn takes(&mut self, entry: &str) -> bool {
        let n_bytes = entry.len() as u64;
        if n_bytes > self.max_bytes() {
            return false;
        }
        let n_tokens = self.counter.count(entry);
        let fits = self.used.saturating_add(n_tokens) <= self.token_budget;
        if fits {
            self.used += n_tokens;
        } else {
            self.to_waste -= n_bytes;
        }
        fits
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
    let mut entry = if detail.has_summary() {
        let signature = tool.text.signature();
        let summary = tool.text.summary();
        let dash = if summary.is_empty() { "" } else { " - " };
        format!("{place}. {name}{signature}{dash}{summary}\n")
    } else {
        format!("{place}. {name}\n")
    };
    if detail == Detail::Schema {
        entry.push_str("   arguments: ");
        entry.push_str(schema?.get());
        entry.push('\n');
    }
    if !tool.same.is_empty() && detail != Detail::BareName {
        entry.push_str("   same as: ");
        entry.push_str(&tool.same.join(", "));
        entry.push('\n');
    }
    Some(entry)
}

/// Returns the schema of the arguments that stands in a definition, without spaces between its
/// tokens; `None` of one that has more than `max_bytes` then.
fn input_schema(definition: &str, max_bytes: u64) -> Option<Box<RawValue>> {
    let schema = member(definition, "inputSchema").filter(|schema| schema.starts_with('{'))?;
    RawValue::from_string(compact(schema, max_bytes)?).ok()
}

/// Returns a JSON text without spaces between its tokens, and everything else as it is written;
/// `None` of one that has more than `max_bytes` then, of which no more is read than that.
fn compact(json: &str, max_bytes: u64) -> Option<String> {
    let mut compact = String::new();
    let (mut kept_from, mut is_in_string, mut is_escaped) = (0, false, false);
    for (at, byte) in json.bytes().enumerate() {
        if (compact.len() + at - kept_from) as u64 > max_bytes {
            return None;
        }
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
    (compact.len() as u64 <= max_bytes).then_some(compact)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// Counts as `Bytes` does, and how much it has counted.
    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);

    impl TokenCounter for Counted {
        fn count(&self, text: &str) -> u64 {
            self.0.fetch_add(text.len(), Ordering::Relaxed);
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
    fn no_more_is_counted_than_the_budget_may_have_room_for() {
        let long = "x".repeat(100_000);
        let definitions = [
            format!(r#"{{"inputSchema":{{"type":"object","description":"{long}"}}}}"#),
            format!(r#"{{"inputSchema":{{"properties":{{"{long}":{{}}}}}}}}"#),
            format!(
                r#"{{"inputSchema":{{"properties":{{"{}":{{}}}}}}}}"#,
                &long[..7_000]
            ),
        ];
        let texts = definitions
            .each_ref()
            .map(|definition| ToolText::of_definition("a", definition));
        let found = |at: usize| Found {
            name: "a",
            text: &texts[at % 3],
            definition: &definitions[at % 3],
            score: 0.5,
            same: Vec::new(),
        };
        let found: Vec<Found<'_>> = (0..50).map(found).collect();
        let rules = AnswerRules {
            token_budget: 1_000,
            n_schemas: 50,
        };
        let counted = Counted::default();
        let answer = write(&found, &[], SearchQuality::High, &rules, &counted);
        assert!(answer.n_tools > 10, "{}", answer.text);
        let n_counted = counted.0.into_inner();
        assert!(n_counted < 1_000 * 8 * 9, "{n_counted}");
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
            let expected = value.to_string();
            let n_bytes = expected.len() as u64;
            assert_eq!(compact(&spaced, n_bytes - 1), None);
            assert_eq!(compact(&spaced, n_bytes), Some(expected));
        }
    }

    #[test]
    fn the_same_tools_are_named_as_long_as_there_is_room_and_always_in_structured() {
        let text = ToolText::of_definition("a", DEFINITION);
        for (token_budget, is_named) in [(10_000, true), (90, true), (80, false)] {
            let found = Found {
                name: "a",
                text: &text,
                definition: DEFINITION,
                score: 0.5,
                same: vec!["b__a", "c__a"],
            };
            let rules = AnswerRules {
                token_budget,
                ..AnswerRules::default()
            };
            let answer = write(&[found], &[], SearchQuality::High, &rules, &Bytes);
            let is_there = answer.text.contains("   same as: b__a, c__a\n");
            assert_eq!(is_there, is_named, "{}", answer.text);
            let structured: Value = serde_json::from_str(&answer.structured).unwrap();
            let same = &structured["matches"][0]["same_as"];
            assert_eq!(*same, serde_json::json!(["b__a", "c__a"]));
        }
        let alone: Value = serde_json::from_str(&written(1, 10_000).structured).unwrap();
        assert!(alone["matches"][0].get("same_as").is_none());
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
