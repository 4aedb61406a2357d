//! What asking a language model costs, and how that fails.

use std::error::Error;
use std::ops::AddAssign;

/// How many tokens a model read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Tokens that it read.
    pub n_input_tokens: u64,
    /// Tokens that it wrote.
    pub n_output_tokens: u64,
}

impl ModelUsage {
    /// How many bytes a token of English has, about.
    const BYTES_PER_TOKEN: usize = 4;

    /// Returns the usage as it is estimated where the model does not say: from bytes.
    #[must_use]
    pub fn estimated(n_input_bytes: usize, n_output_bytes: usize) -> Self {
        let tokens = |n_bytes: usize| n_bytes.div_ceil(Self::BYTES_PER_TOKEN) as u64;
        Self {
            n_input_tokens: tokens(n_input_bytes),
            n_output_tokens: tokens(n_output_bytes),
        }
    }
}

impl AddAssign for ModelUsage {
    fn add_assign(&mut self, other: Self) {
        self.n_input_tokens = self.n_input_tokens.saturating_add(other.n_input_tokens);
        self.n_output_tokens = self.n_output_tokens.saturating_add(other.n_output_tokens);
    }
}

/// Why a model gave no answer that can be used. No text has what was asked or answered.
#[derive(Debug, thiserror::Error)]
pub enum ModelCallError {
    /// It cannot be reached, or fails.
    #[error("the language model is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// It took longer than it may.
    #[error("the language model took too long")]
    Late,
    /// It, or who decides over it, does not want to.
    #[error("the language model was not allowed to answer")]
    Refused,
    /// It answered with something else than it was asked for.
    #[error("the answer of the language model is not what was asked for")]
    Nonsense(ModelUsage),
}

impl ModelCallError {
    /// Returns what the answer cost that could not be used.
    #[must_use]
    pub fn usage(&self) -> ModelUsage {
        match self {
            Self::Nonsense(usage) => *usage,
            Self::Unavailable(_) | Self::Late | Self::Refused => ModelUsage::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_quarter_of_a_token_each_and_part_of_one_counts() {
        let usage = ModelUsage::estimated(9, 0);
        assert_eq!((usage.n_input_tokens, usage.n_output_tokens), (3, 0));
    }
}
