//! The pieces of a word that are in the vocabulary.

use crate::token_table::TokenTable;
use crate::token_table::layout::Layout;

static TABLE: TokenTable = TokenTable {
    layout: Layout::FLOOR,
    slots: include_bytes!(concat!(env!("OUT_DIR"), "/floor.slots")),
    ends: include_bytes!(concat!(env!("OUT_DIR"), "/floor.ends")),
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/floor.bytes")),
};

/// What stands before a piece that goes on with a word.
const PREFIX: &[u8] = b"##";

/// The longest token, in bytes.
pub(super) const MAX_TOKEN_BYTES: usize = 18;

/// The most characters of a word that has pieces.
const MAX_CHARACTERS: usize = 100;

/// Splits words, one after another; it keeps its memory for the next one.
#[derive(Debug, Default)]
pub(super) struct WordPieces {
    /// The prefix and the word. What was before the part that is left is overwritten by the
    /// prefix.
    buffer: Vec<u8>,
    rows: Vec<u32>,
}

impl WordPieces {
    /// Returns the rows of the pieces of a word, each the longest that the vocabulary has at its
    /// place; none when they do not make up the word.
    pub(super) fn of(&mut self, word: &str) -> &[u32] {
        self.rows.clear();
        if word.len() > MAX_CHARACTERS && word.chars().nth(MAX_CHARACTERS).is_some() {
            return &self.rows;
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(PREFIX);
        self.buffer.extend_from_slice(word.as_bytes());
        let mut start = 0;
        while start < word.len() {
            self.buffer[start..start + PREFIX.len()].copy_from_slice(PREFIX);
            let Some((row, end)) = self.longest(start, word) else {
                self.rows.clear();
                break;
            };
            self.rows.push(row);
            start = end;
        }
        &self.rows
    }

    /// Returns the longest token that begins at `start` in the word, and where it ends.
    fn longest(&self, start: usize, word: &str) -> Option<(u32, usize)> {
        // The first piece has no prefix. What is at a place in the word is in the buffer as many
        // bytes later as the prefix has.
        let from = if start == 0 { PREFIX.len() } else { start };
        let most = word.len().min(from + MAX_TOKEN_BYTES - PREFIX.len());
        (start + 1..=most)
            .rev()
            .filter(|end| word.is_char_boundary(*end))
            .find_map(|end| {
                let token = &self.buffer[from..end + PREFIX.len()];
                Some((TABLE.number_of(token)?, end))
            })
    }
}
