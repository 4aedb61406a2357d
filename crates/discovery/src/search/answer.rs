//! Text and JSON of a search answer: as much detail for each tool as the token budget allows.

mod next;
mod schema;
mod token_room;

use std::borrow::Cow;

use riglm_domain::mcp::edit::{member, with_element, with_member};
use riglm_domain::retrieval::ToolText;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_ports::token_counter::TokenCounter;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use next::PredictedTool;
use next::{NextDraft, NextMatch};
pub use schema::input_schema;
use strum::VariantArray;
use token_room::TokenRoom;

// Appended to a cached answer, so that a model notices that it repeats a search.
const GIVEN_BEFORE: &str = "You made this search before. The answer is the same.";

/// Returns the text and the JSON of a cached answer, each with a note that it was given before.
/// `structured` is the JSON text of an object.
pub fn given_before(text: &str, structured: &str) -> (String, String) {
    let notes = member(structured, "notes").unwrap_or("[]");
    let notes = with_element(notes, &Value::from(GIVEN_BEFORE).to_string());
    let text = format!("{}\n{GIVEN_BEFORE}\n", text.trim_end());
    (text, with_member(structured, "notes", &notes))
}

/// A tool of the answer, before the writer knows how much detail fits into the budget.
#[derive(Debug)]
pub(super) struct FoundTool<'a> {
    /// The name by which the client calls the tool.
    pub(super) name: &'a str,
    pub(super) text: &'a ToolText,
    /// JSON text of the definition.
    pub(super) definition: &'a str,
    pub(super) score: f64,
    /// Names of duplicates, which have no entry of their own.
    pub(super) same: Vec<&'a str>,
}

/// The level of detail of an entry, the most detailed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum Detail {
    Schema,
    Signature,
    Name,
    /// The name, without duplicates.
    BareName,
}

impl Detail {
    fn has_summary(self) -> bool {
        matches!(self, Self::Signature | Self::Schema)
    }

    /// Returns the summary of a tool, or an empty string if this level has none.
    fn summary_of(self, tool: &ToolText) -> Cow<'_, str> {
        if self.has_summary() {
            tool.summary()
        } else {
            Cow::Borrowed("")
        }
    }
}

/// The number of first tools of an answer that come with their schemas: what a model needs to call
/// them.
pub const N_SCHEMAS: usize = 5;

/// The limits of a search answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// Maximum number of tokens of the text.
    pub token_budget: u64,
    /// The number of first tools that are shown with their schemas, if the budget allows.
    pub n_schemas: usize,
    /// Maximum number of predicted tools after the matches.
    pub n_predicted: usize,
    /// The name of the tool with which clients call tools that their list does not have. `None` if
    /// they call all tools directly.
    pub call_tool: Option<String>,
}

impl AnswerRules {
    /// Returns the first line of an answer: how the tools are called.
    fn heading(&self) -> String {
        let way = self.call_tool.as_ref();
        way.map_or_else(
            || "Call a tool by its name.\n".to_owned(),
            |call| format!("Call a tool that is not in your list with {call}.\n"),
        )
    }

    /// Returns the token budget of the matches. It is 60 % of the whole if tools are predicted.
    /// Predicted tools may use all that the matches leave.
    fn budget_of_found(&self, has_predicted: bool) -> u64 {
        if has_predicted {
            self.token_budget / 10 * 6
        } else {
            self.token_budget
        }
    }
}

impl AnswerRules {
    /// Returns the rules with a smaller budget, which leaves room for the note that an answer was
    /// given before.
    pub(super) fn with_room_to_say_again(&self, counter: &dyn TokenCounter) -> Self {
        let line = counter.count(&format!("\n{GIVEN_BEFORE}"));
        Self {
            token_budget: self.token_budget.saturating_sub(line),
            ..self.clone()
        }
    }
}

impl Default for AnswerRules {
    fn default() -> Self {
        Self {
            token_budget: 2_500,
            n_schemas: N_SCHEMAS,
            n_predicted: 9,
            call_tool: None,
        }
    }
}

/// An answer as text and as JSON.
#[derive(Debug)]
pub(super) struct WrittenAnswer {
    pub(super) text: String,
    pub(super) structured: String,
    /// Indexes of the matches for which there was room.
    pub(super) shown: Vec<usize>,
    /// Indexes of the predicted tools for which there was room.
    pub(super) predicted: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct StructuredAnswer<'a> {
    matches: Vec<Match<'a>>,
    predicted_next: Vec<NextMatch<'a>>,
    quality: &'static str,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct Match<'a> {
    name: &'a str,
    description: Cow<'a, str>,
    score: f64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    same_as: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Box<RawValue>>,
}

/// Writes an answer within the budget: the first tools with schemas, further ones with signatures,
/// then bare names. Predicted tools follow in the same form. The text exceeds the budget only if
/// `notes` alone do.
pub(super) fn write_answer(
    found: &[FoundTool<'_>],
    predicted: &[PredictedTool<'_>],
    notes: &[String],
    quality: SearchQuality,
    rules: &AnswerRules,
    counter: &dyn TokenCounter,
) -> WrittenAnswer {
    let budget = rules.budget_of_found(!predicted.is_empty());
    let mut draft = Draft::new(found, notes, rules, budget, counter);
    let mut notes = notes.to_vec();
    let mut text = draft.text(&notes);
    if draft.shown.len() < found.len() {
        // The note about omitted tools needs room too, unless the reserve would push out every
        // tool.
        let reserve = counter.count(&left_out(found.len(), found.len()));
        let left = budget.saturating_sub(reserve);
        let shorter = Draft::new(found, &notes, rules, left, counter);
        if !shorter.shown.is_empty() {
            text = shorter.text(&notes);
            draft = shorter;
        }
        let note = left_out(found.len() - draft.shown.len(), found.len());
        let with_note = format!("{text}{note}\n");
        if counter.count(&with_note) <= rules.token_budget {
            text = with_note;
        }
        notes.push(note);
    }
    let next = NextDraft::new(predicted, &text, rules, counter);
    text.push_str(&next.text);
    let structured = StructuredAnswer {
        matches: draft.matches,
        predicted_next: next.matches,
        quality: quality.as_str(),
        notes: &notes,
    };
    WrittenAnswer {
        text,
        structured: serde_json::to_string(&structured).unwrap_or_else(|_| "{}".into()),
        shown: draft.shown,
        predicted: next.shown,
    }
}

fn left_out(n: usize, n_found: usize) -> String {
    format!("Left out to save space: {n} of {n_found} tools.")
}

/// The entries that fit into a budget.
#[derive(Debug)]
struct Draft<'a> {
    entries: String,
    matches: Vec<Match<'a>>,
    /// Indexes of the shown tools among the matches.
    shown: Vec<usize>,
    heading: String,
}

impl<'a> Draft<'a> {
    /// Writes entries of at most `budget` tokens, including the notes. A tool that does not fit at
    /// any level of detail is skipped, and the next one is tried.
    fn new(
        found: &'a [FoundTool<'a>],
        notes: &[String],
        rules: &AnswerRules,
        budget: u64,
        counter: &dyn TokenCounter,
    ) -> Self {
        let mut draft = Self {
            entries: String::new(),
            matches: Vec::new(),
            shown: Vec::new(),
            heading: rules.heading(),
        };
        let mut room = TokenRoom::new(budget, counter);
        room.used = counter.count(&(notes_text(notes) + &draft.heading));
        for (at, tool) in found.iter().enumerate() {
            let n_shown = draft.shown.len();
            let is_first = n_shown < rules.n_schemas;
            let schema = is_first.then(|| input_schema(tool.definition, room.max_bytes()));
            let schema = schema.flatten();
            let fitting = (Detail::VARIANTS.iter().copied())
                .filter(|detail| is_first || *detail != Detail::Schema)
                .filter_map(|detail| {
                    let entry = entry(n_shown + 1, tool, detail, schema.as_deref())?;
                    Some((detail, entry))
                })
                .find(|(_, entry)| room.reserve(entry));
            if let Some((detail, entry)) = fitting {
                draft.entries.push_str(&entry);
                draft.matches.push(tool.as_match(detail, schema));
                draft.shown.push(at);
            }
        }
        draft
    }

    fn text(&self, notes: &[String]) -> String {
        let heading = if self.shown.is_empty() {
            ""
        } else {
            &self.heading
        };
        notes_text(notes) + heading + &self.entries
    }
}

impl FoundTool<'_> {
    fn as_match(&self, detail: Detail, schema: Option<Box<RawValue>>) -> Match<'_> {
        Match {
            name: self.name,
            description: detail.summary_of(self.text),
            // Rounded, because further digits only cost tokens.
            score: (self.score * 1_000.0).round() / 1_000.0,
            same_as: &self.same,
            input_schema: schema.filter(|_| detail == Detail::Schema),
        }
    }
}

fn notes_text(notes: &[String]) -> String {
    notes.iter().flat_map(|note| [note, "\n"]).collect()
}

/// Returns the entry of a tool, or `None` if the schema is missing at [`Detail::Schema`].
fn entry(
    place: usize,
    tool: &FoundTool<'_>,
    detail: Detail,
    schema: Option<&RawValue>,
) -> Option<String> {
    let name = plain(tool.name);
    let mut entry = format!("{place}. {name}");
    if detail.has_summary() {
        entry.push_str(&plain(&tool.text.signature()));
        let summary = tool.text.summary();
        let summary = plain(&summary);
        entry.push_str(if summary.is_empty() { "" } else { " - " });
        entry.push_str(&summary);
    }
    entry.push('\n');
    if detail == Detail::Schema {
        entry.push_str("   arguments: ");
        entry.push_str(schema?.get());
        entry.push('\n');
    }
    if !tool.same.is_empty() && detail != Detail::BareName {
        entry.push_str("   same as: ");
        entry.push_str(&plain(&tool.same.join(", ")));
        entry.push('\n');
    }
    Some(entry)
}

/// Escapes line breaks, other control characters, and invisible or bidirectional characters, as in
/// a string literal. Text of an upstream can therefore not imitate an entry of the answer.
fn plain(text: &str) -> Cow<'_, str> {
    let is_special = |it: char| {
        it.is_control()
            || matches!(it,
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{e0000}'..='\u{e007f}')
    };
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_special(character) {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests;
