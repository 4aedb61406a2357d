//! How much may be written, and how much may be counted to find that out.

use riglm_ports::token_counter::TokenCounter;

/// What room is left in an answer.
#[derive(Debug)]
pub(super) struct Room<'a> {
    token_budget: u64,
    pub(super) used: u64,
    counter: &'a dyn TokenCounter,
    /// How many bytes may still be counted of entries for which there is no room in the end.
    to_waste: u64,
}

impl<'a> Room<'a> {
    /// Text has fewer bytes for a token than this: English and JSON have four or five. What has
    /// more of them than the tokens that are left can have is not counted.
    const TOKEN_BYTES: u64 = 8;
    /// How many times as much as there is room for may be counted in vain.
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

    /// Returns the most bytes that something can have for which there is room.
    pub(super) fn max_bytes(&self) -> u64 {
        let left = self.token_budget.saturating_sub(self.used);
        left.saturating_mul(Self::TOKEN_BYTES).min(self.to_waste)
    }

    /// Takes the room that an entry needs. Returns whether there is so much.
    pub(super) fn takes(&mut self, entry: &str) -> bool {
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
