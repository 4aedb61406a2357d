//! A trivial token counter for tests.

use crate::token_counter::TokenCounter;

/// Counts each word between white space as one token.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordCounter;

impl TokenCounter for WordCounter {
    fn count(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}
