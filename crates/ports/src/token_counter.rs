//! The size of texts in tokens.

use std::fmt;

/// Counts the tokens of texts.
///
/// A count is a pure computation: it neither blocks nor fails, and the same text has the same
/// count, 0 for the empty text. It may take milliseconds, more the first time; callers keep it off
/// the path of requests.
pub trait TokenCounter: Send + Sync + fmt::Debug {
    /// Returns the number of tokens in the text.
    fn count(&self, text: &str) -> u64;
}
