//! The size of texts in tokens.

use std::fmt;

/// Counts the tokens of texts.
///
/// A count may take milliseconds, more the first time; callers keep it off the path of requests.
///
/// # Promises
///
/// - The empty text has no tokens. A text of words has some, and more of them has more.
/// - The same text has the same count, whatever was counted before and in other threads.
/// - Any text is counted, one of a megabyte too.
///
/// `contract::token_counter` has a clause for each.
pub trait TokenCounter: Send + Sync + fmt::Debug {
    /// Returns the number of tokens in the text.
    fn count(&self, text: &str) -> u64;
}
