//! Texts turned into the numbers of tokens, by `tokenizer.json`.

use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::encoder::model::{self, ModelError};

/// The largest file that is read. Those of 250,000 tokens have 17 MB.
const MAX_BYTES: u64 = 256 << 20;

/// How many bytes of a text are looked at for each token that the model reads. Tokens of any
/// script are shorter in the mean, and a text of a megabyte costs no more than one of this length.
const BYTES_FOR_A_TOKEN: usize = 32;

/// The tokenizer of a model, set to what the model reads.
#[derive(Debug)]
pub(super) struct Tokens {
    tokenizer: Tokenizer,
    most_bytes: usize,
}

impl Tokens {
    /// Reads a tokenizer that gives at most `max_tokens` tokens with numbers below `vocabulary`.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the file cannot be read, is no tokenizer, has more tokens than
    /// the network, or gives none for the empty text.
    pub(super) fn load(
        path: &Path,
        max_tokens: usize,
        vocabulary: usize,
    ) -> Result<Self, ModelError> {
        let wrong = |reason: String| ModelError::Content {
            path: path.to_owned(),
            reason,
        };
        let bytes = model::read(path, MAX_BYTES)?;
        let mut tokenizer =
            Tokenizer::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        let numbers = tokenizer.get_vocab(true);
        let known = numbers.len();
        if known > vocabulary {
            return Err(wrong(format!(
                "it has {known} tokens, and config.json says vocab_size {vocabulary}"
            )));
        }
        let beyond = |number: u32| {
            wrong(format!(
                "it has a token with number {number}, and config.json says vocab_size {vocabulary}"
            ))
        };
        let is_beyond = |number: &u32| *number as usize >= vocabulary;
        if let Some(number) = numbers.into_values().max().filter(is_beyond) {
            return Err(beyond(number));
        }
        // Files carry what their authors used, such as 128 tokens with padding.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(Some(TruncationParams {
                max_length: max_tokens,
                ..TruncationParams::default()
            }))
            .map_err(|error| wrong(error.to_string()))?;
        let tokens = Self {
            tokenizer,
            most_bytes: max_tokens.saturating_mul(BYTES_FOR_A_TOKEN),
        };
        // Those that are put around every text are listed apart from the vocabulary.
        let around = tokens.ids("")?;
        if let Some(number) = around.iter().copied().find(is_beyond) {
            return Err(beyond(number));
        }
        if around.is_empty() {
            return Err(wrong("it gives no token for the empty text".to_owned()));
        }
        Ok(tokens)
    }

    /// Returns the numbers of the tokens of a text, special ones included.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError::Compute`] when the tokenizer fails, for example because it has no
    /// token for what is unknown.
    pub(super) fn ids(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let text = &text[..text.floor_char_boundary(self.most_bytes)];
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(ModelError::Compute)?;
        Ok(encoding.get_ids().to_vec())
    }
}
