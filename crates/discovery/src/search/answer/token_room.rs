//! Token budget of an answer, with a limit on the work of counting tokens.

use riglm_ports::token_counter::TokenCounter;

/// The rest of a token budget.
#[derive(Debug)]
pub(super) struct TokenRoom<'a> {
    token_budget: u64,
    pub(super) used: u64,
    counter: &'a dyn TokenCounter,
    /// Bytes that may still be counted for entries that turn out too long.
    to_waste: u64,
}

impl<'a> TokenRoom<'a> {
    /// Upper bound of bytes per token. English text and JSON have four or five. Text with more
    /// bytes than the remaining tokens can have is rejected without counting.
    const TOKEN_BYTES: u64 = 8;
    /// Factor of the byte limit that bounds the counting of rejected entries.
    const VAIN_COUNTS: u64 = 8;

    pub(super) fn new(token_budget: u64, counter: &'a dyn TokenCounter) -> Self {
        let max_bytes = token_budget.saturating_mul(Self::TOKEN_BYTES);
        Self {
            token_budget,
            used: 0,
            counter,
            to_waste: max_bytes.saturating_mul(Self::VAIN_COUNTS),
        }
    }

    /// Returns the maximum number of bytes of the next entry.
    pub(super) fn max_bytes(&self) -> u64 {
        let left = self.token_budget.saturating_sub(self.used);
        left.saturating_mul(Self::TOKEN_BYTES).min(self.to_waste)
    }

    /// Reserves the tokens of an entry. Returns whether there was room.
    pub(super) fn reserve(&mut self, entry: &str) -> bool {
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
