//! A token counter for tests that are about something else.

use crate::token_counter::TokenCounter;

/// Counts the words between spaces as tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordCounter;

impl TokenCounter for WordCounter {
    fn count(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}
