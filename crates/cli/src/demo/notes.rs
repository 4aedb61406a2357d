//! A server that stores notes in memory.

use parking_lot::Mutex;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{schemars, tool, tool_router};
use serde::Deserialize;

use super::ToolFailure;

const MAX_NOTES: usize = 1_000;

/// The longest note, in bytes.
const MAX_NOTE_BYTES: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: Mutex<Vec<String>>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct AddNote {
    /// Text to remember.
    text: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct SearchNotes {
    /// Words that must all be in the note, in any case and order.
    query: String,
}

/// The reason why a note is not kept, or why a search has no answer.
#[derive(Debug, thiserror::Error)]
enum NoteError {
    /// The note is empty.
    #[error("a note needs a text")]
    EmptyNote,
    /// The note is too long.
    #[error("a note may have {MAX_NOTE_BYTES} bytes at most")]
    LongNote,
    /// There are too many notes.
    #[error("limit of {MAX_NOTES} notes reached")]
    TooManyNotes,
    /// The query has no words.
    #[error("a search needs at least one word")]
    EmptyQuery,
}

#[tool_router(server_handler)]
impl Notes {
    #[tool(description = "Keep a note")]
    fn add_note(
        &self,
        Parameters(AddNote { text }): Parameters<AddNote>,
    ) -> Result<String, ToolFailure> {
        let text = text.trim();
        if text.is_empty() {
            return Err(NoteError::EmptyNote.into());
        }
        if text.len() > MAX_NOTE_BYTES {
            return Err(NoteError::LongNote.into());
        }
        let mut notes = self.notes.lock();
        if notes.len() >= MAX_NOTES {
            return Err(NoteError::TooManyNotes.into());
        }
        notes.push(text.into());
        Ok(format!("kept note {}", notes.len()))
    }

    #[tool(
        description = "Find the notes that contain every word of a query",
        annotations(read_only_hint = true)
    )]
    fn search_notes(
        &self,
        Parameters(SearchNotes { query }): Parameters<SearchNotes>,
    ) -> Result<String, ToolFailure> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return Err(NoteError::EmptyQuery.into());
        }
        Ok(self.matching_lines(|note| {
            let note = note.to_lowercase();
            words.iter().all(|word| note.contains(word))
        }))
    }

    #[tool(
        description = "List all notes, oldest first",
        annotations(read_only_hint = true)
    )]
    fn list_notes(&self) -> String {
        self.matching_lines(|_| true)
    }
}

impl Notes {
    /// Returns the matching notes, one per line with its number.
    fn matching_lines(&self, fits: impl Fn(&str) -> bool) -> String {
        let notes = self.notes.lock();
        let lines: Vec<String> = notes
            .iter()
            .enumerate()
            .filter(|(_, note)| fits(note))
            .map(|(position, note)| format!("{}. {note}", position + 1))
            .collect();
        if lines.is_empty() {
            "no notes".into()
        } else {
            lines.join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_by_all_their_words() {
        let notes = Notes::default();
        let add = |text: &str| notes.add_note(Parameters(AddNote { text: text.into() }));
        let search = |query: &str| {
            notes.search_notes(Parameters(SearchNotes {
                query: query.into(),
            }))
        };
        assert_eq!(notes.list_notes(), "no notes");
        assert_eq!(add(" Buy oat milk "), Ok("kept note 1".into()));
        assert_eq!(add("Call the milkman"), Ok("kept note 2".into()));
        assert_eq!(search("milk oat"), Ok("1. Buy oat milk".into()));
        assert_eq!(search("tea"), Ok("no notes".into()));
        assert_eq!(notes.list_notes(), "1. Buy oat milk\n2. Call the milkman");
        assert!(add("  ").is_err() && search("").is_err());
        assert!(add(&"x".repeat(MAX_NOTE_BYTES + 1)).is_err());
    }
}
