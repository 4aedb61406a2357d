//! What a search answers: as much of each tool as a budget of tokens has room for.

mod next;
mod room;
mod schema;

use std::borrow::Cow;

use riglm_domain::edit::{member, with_element, with_member};
use riglm_domain::retrieval::ToolText;
use riglm_domain::search::SearchQuality;
use riglm_ports::token_counter::TokenCounter;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use next::Predicted;
use next::{NextDraft, NextMatch};
use room::Room;
pub(crate) use schema::input_schema;

/// What is said of an answer that was given before.
const GIVEN_BEFORE: &str = "You searched for the same before: this is the same answer.";

/// Returns an answer that was given before, as text and as the JSON text of an object, each of which
/// says so.
pub(crate) fn given_before(text: &str, structured: &str) -> (String, String) {
    let notes = member(structured, "notes").unwrap_or("[]");
    let notes = with_element(notes, &Value::from(GIVEN_BEFORE).to_string());
    let text = format!("{}\n{GIVEN_BEFORE}\n", text.trim_end());
    (text, with_member(structured, "notes", &notes))
}

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

    /// Returns the summary of a tool, where this much is said of it; else nothing.
    fn summary_of(self, tool: &ToolText) -> Cow<'_, str> {
        if self.has_summary() {
            tool.summary()
        } else {
            Cow::Borrowed("")
        }
    }
}

/// How answers are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// The most tokens of the text.
    pub token_budget: u64,
    /// How many of the first tools are shown with their schemas, where there is room.
    pub n_schemas: usize,
    /// How many tools that are likely to be needed next are shown after those that were found.
    pub n_predicted: usize,
}

impl AnswerRules {
    /// Returns how many tokens are for what was found, where something is predicted: six of ten.
    /// What they leave is for the rest.
    fn budget_of_found(&self, has_predicted: bool) -> u64 {
        if has_predicted {
            self.token_budget / 10 * 6
        } else {
            self.token_budget
        }
    }
}

impl AnswerRules {
    /// Returns the rules for an answer that has room for saying that it was given before.
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
            n_schemas: 5,
            n_predicted: 9,
        }
    }
}

/// An answer in both forms.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) structured: String,
    /// The places, among the tools that were found, of those for which there was room.
    pub(super) shown: Vec<usize>,
    /// The same of those that are predicted.
    pub(super) predicted: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Structured<'a> {
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

/// Writes an answer: the schemas of the first tools, then signatures, then bare names, until the
/// budget is used up; then what is needed next, in the same way. The text never has more tokens than the budget, except for `notes` alone.
pub(super) fn write(
    (found, predicted): (&[Found<'_>], &[Predicted<'_>]),
    notes: &[String],
    quality: SearchQuality,
    rules: &AnswerRules,
    counter: &dyn TokenCounter,
) -> Written {
    let budget = rules.budget_of_found(!predicted.is_empty());
    let mut draft = Draft::new(found, notes, (rules, budget), counter);
    let mut notes = notes.to_vec();
    let mut text = draft.text(&notes);
    if draft.shown.len() < found.len() {
        // There has to be room for saying so, unless nothing else had room then.
        let reserve = counter.count(&left_out(found.len(), found.len()));
        let left = budget.saturating_sub(reserve);
        let shorter = Draft::new(found, &notes, (rules, left), counter);
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
    let structured = Structured {
        matches: draft.matches,
        predicted_next: next.matches,
        quality: quality.as_str(),
        notes: &notes,
    };
    Written {
        text,
        structured: serde_json::to_string(&structured).unwrap_or_else(|_| "{}".into()),
        shown: draft.shown,
        predicted: next.shown,
    }
}

fn left_out(n: usize, n_found: usize) -> String {
    format!("Left out for want of room: {n} of {n_found} tools.")
}

/// The entries for which there is room.
#[derive(Debug)]
struct Draft<'a> {
    entries: String,
    matches: Vec<Match<'a>>,
    /// The places of the tools among those that were found.
    shown: Vec<usize>,
}

impl<'a> Draft<'a> {
    const HEADING: &'static str = "Call a tool by its name, whether it is in your list or not.\n";

    /// Writes entries of at most so many tokens, the notes included. A tool that has no room leaves
    /// it to the next.
    fn new(
        found: &'a [Found<'a>],
        notes: &[String],
        (rules, budget): (&AnswerRules, u64),
        counter: &dyn TokenCounter,
    ) -> Self {
        let mut draft = Self {
            entries: String::new(),
            matches: Vec::new(),
            shown: Vec::new(),
        };
        let mut room = Room::new(budget, counter);
        room.used = counter.count(&(notes_text(notes) + Self::HEADING));
        for (at, tool) in found.iter().enumerate() {
            let n_shown = draft.shown.len();
            let is_first = n_shown < rules.n_schemas;
            let schema = is_first.then(|| input_schema(tool.definition, room.max_bytes()));
            let schema = schema.flatten();
            let fitting = (Detail::ALL.into_iter())
                .filter(|detail| is_first || *detail != Detail::Schema)
                .filter_map(|detail| {
                    let entry = entry(n_shown + 1, tool, detail, schema.as_deref())?;
                    Some((detail, entry))
                })
                .find(|(_, entry)| room.takes(entry));
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
            Self::HEADING
        };
        notes_text(notes) + heading + &self.entries
    }
}

impl Found<'_> {
    fn as_match(&self, detail: Detail, schema: Option<Box<RawValue>>) -> Match<'_> {
        Match {
            name: self.name,
            description: detail.summary_of(self.text),
            score: (self.score * 1_000.0).round() / 1_000.0,
            same_as: &self.same,
            input_schema: schema.filter(|_| detail == Detail::Schema),
        }
    }
}

fn notes_text(notes: &[String]) -> String {
    notes.iter().flat_map(|note| [note, "\n"]).collect()
}

/// Returns what is said of a tool; `None` for a schema that is not there.
fn entry(
    place: usize,
    tool: &Found<'_>,
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

/// Returns a text without characters that begin a line, change the direction of what follows or
/// are not seen: they are written as in a string of a program. Nothing that an upstream says looks
/// like an entry of its own.
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
