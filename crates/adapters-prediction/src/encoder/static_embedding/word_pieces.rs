//! `WordPiece` tokenizer: splits a word into pieces of the vocabulary.

use crate::token_table::TokenTable;
use crate::token_table::layout::Layout;

static TABLE: TokenTable = TokenTable {
    layout: Layout::FLOOR,
    slots: include_bytes!(concat!(env!("OUT_DIR"), "/floor.slots")),
    ends: include_bytes!(concat!(env!("OUT_DIR"), "/floor.ends")),
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/floor.bytes")),
};

/// Prefix of a piece that continues a word.
const PREFIX: &[u8] = b"##";

/// Length of the longest token in bytes.
pub(super) const MAX_TOKEN_BYTES: usize = 18;

/// Maximum length in characters of a word that is split.
const MAX_CHARACTERS: usize = 100;

/// Splits words one at a time, and reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct WordPieces {
    /// The prefix and the word. The prefix overwrites the part that is already split.
    buffer: Vec<u8>,
    rows: Vec<u32>,
}

impl WordPieces {
    /// Returns the rows of the pieces of a word. Each piece is the longest match at its place.
    /// Returns none if the pieces do not cover the word.
    pub(super) fn split(&mut self, word: &str) -> &[u32] {
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

    /// Returns the longest token that begins at `start` in the word, and its end.
    fn longest(&self, start: usize, word: &str) -> Option<(u32, usize)> {
        // The first piece has no prefix. Positions in the buffer are positions in the word plus the
        // length of the prefix.
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
