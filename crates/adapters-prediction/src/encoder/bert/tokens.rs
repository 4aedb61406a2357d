//! Texts turned into the numbers of tokens, by `tokenizer.json`.

use std::fs;
use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::encoder::model::ModelError;

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
        let bytes = fs::read(path).map_err(|source| ModelError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut tokenizer =
            Tokenizer::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        let known = tokenizer.get_vocab_size(true);
        if known > vocabulary {
            return Err(wrong(format!(
                "it has {known} tokens, and config.json says vocab_size {vocabulary}"
            )));
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
        if tokens.ids("")?.is_empty() {
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
