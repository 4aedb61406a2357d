//! The token usage and the errors of a request to a language model.

use std::error::Error;
use std::ops::AddAssign;

/// The number of tokens that a model read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Input tokens.
    pub n_input_tokens: u64,
    /// Output tokens.
    pub n_output_tokens: u64,
}

impl ModelUsage {
    /// The approximate number of bytes in a token of English text.
    const BYTES_PER_TOKEN: usize = 4;

    /// Returns the usage estimated from byte counts, for models that do not report it.
    #[must_use]
    pub fn estimate(n_input_bytes: usize, n_output_bytes: usize) -> Self {
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

/// The reason why a model gave no usable answer.
///
/// # Promises
///
/// Every port that asks a model keeps these:
///
/// - A model that cannot be reached is [`Unavailable`](Self::Unavailable). One that answers with an
///   error is that, or [`Refused`](Self::Refused).
/// - An answer of another form is [`Nonsense`](Self::Nonsense), with the tokens that it used.
/// - A model with a timeout of its own that does not answer is [`Late`](Self::Late).
/// - Neither the messages nor their causes contain the prompt or the answer.
///
/// `contract::model_call` has a clause for each.
#[derive(Debug, thiserror::Error)]
pub enum ModelCallError {
    /// The model cannot be reached, or fails.
    #[error("the language model is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The model exceeded the timeout.
    #[error("the language model did not answer in time")]
    Late,
    /// The model, or the person who controls it, refuses the request.
    #[error("the language model rejected the request")]
    Refused,
    /// The model answered in an unexpected form. Holds the tokens that the answer used.
    #[error("the language model gave an invalid answer")]
    Nonsense(ModelUsage),
}

impl ModelCallError {
    /// Returns the tokens used by the unusable answer.
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
    fn four_bytes_count_as_one_token_rounded_up() {
        let usage = ModelUsage::estimate(9, 0);
        assert_eq!((usage.n_input_tokens, usage.n_output_tokens), (3, 0));
    }
}
