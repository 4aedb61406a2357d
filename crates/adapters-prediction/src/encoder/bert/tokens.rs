//! Tokenizer of a model, `tokenizer.json`.

use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::encoder::model::{self, ModelError};

/// Maximum size of the file. Files with 250,000 tokens have 17 MB.
const MAX_BYTES: u64 = 256 << 20;

/// Bytes of a text that are read per token of the limit. The mean token is shorter in any script.
/// This bounds the cost of long texts.
const MAX_BYTES_PER_TOKEN: usize = 32;

/// A tokenizer with the limits of its model.
#[derive(Debug)]
pub(super) struct BertTokenizer {
    tokenizer: Tokenizer,
    most_bytes: usize,
}

impl BertTokenizer {
    /// Reads a tokenizer. It truncates texts to `max_tokens`. All token numbers are below
    /// `vocabulary`.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the file cannot be read, is no tokenizer, has more tokens than
    /// the network, or returns no token for the empty text.
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
                "it has {known} tokens, but config.json has vocab_size {vocabulary}"
            )));
        }
        let beyond = |number: u32| {
            wrong(format!(
                "it has a token with number {number}, but config.json has vocab_size {vocabulary}"
            ))
        };
        let is_beyond = |number: &u32| *number as usize >= vocabulary;
        if let Some(number) = numbers.into_values().max().filter(is_beyond) {
            return Err(beyond(number));
        }
        // Files contain settings of their authors, such as padding to 128 tokens.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(Some(TruncationParams {
                max_length: max_tokens,
                ..TruncationParams::default()
            }))
            .map_err(|error| wrong(error.to_string()))?;
        let tokens = Self {
            tokenizer,
            most_bytes: max_tokens.saturating_mul(MAX_BYTES_PER_TOKEN),
        };
        // Special tokens around a text are not part of the vocabulary, so they are checked
        // separately.
        let around = tokens.ids("")?;
        if let Some(number) = around.iter().copied().find(is_beyond) {
            return Err(beyond(number));
        }
        if around.is_empty() {
            return Err(wrong("it has no token for the empty text".to_owned()));
        }
        Ok(tokens)
    }

    /// Returns the token numbers of a text, including special tokens.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError::Compute`] when the tokenizer fails, for example because it has no
    /// token for unknown text.
    pub(super) fn ids(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let text = &text[..text.floor_char_boundary(self.most_bytes)];
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(ModelError::Compute)?;
        Ok(encoding.get_ids().to_vec())
    }
}
