//! Static embedding: vectors from a token table in the binary. It needs no files and takes
//! microseconds per text.
//!
//! The table is potion-base-8M, fitted to queries for tools, with weights rounded to 4 bits;
//! `data/floor` says how it is made.
//! The vector of a text is the mean of the rows of its tokens. The order of words has no effect.

mod rows;
mod word_pieces;
mod words;

use std::ops::ControlFlow;

use async_trait::async_trait;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use tokio::task::spawn_blocking;

use rows::{PADDING, RowSum};
use word_pieces::WordPieces;
use words::for_each_word;

const MODEL: &str = concat!("potion-base-8M-tools:int4@", env!("FLOOR_DIGEST"));

/// Maximum number of tokens of a text that count.
const MAX_TOKENS: usize = 512;

/// Limits on the texts that are encoded on the caller's thread, which takes about a millisecond.
/// More texts go to a blocking thread.
const MAX_INLINE_TEXTS: usize = 64;
const MAX_INLINE_BYTES: usize = 16 << 10;

/// An encoder that looks up tokens in a table in the binary. Queries and passages are treated
/// alike.
///
/// Nothing is loaded, at the start or later. Only the first 512 tokens in the first 16,384
/// characters of a text count. Unknown words are left out. A text without any known word has the
/// vector of the padding token, which is similar to no text: the inner product of the two is at
/// most about 0.15.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaticEmbedding;

#[async_trait]
impl Encoder for StaticEmbedding {
    fn model(&self) -> &str {
        MODEL
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        _role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let n_bytes: usize = texts.iter().map(String::len).sum();
        if texts.len() <= MAX_INLINE_TEXTS && n_bytes <= MAX_INLINE_BYTES {
            return Ok(vectors(&texts));
        }
        let vectors = spawn_blocking(move || vectors(&texts)).await;
        vectors.map_err(|error| EncoderError::Failed {
            model: MODEL.into(),
            source: error.into(),
        })
    }
}

fn vectors(texts: &[String]) -> Vec<Vec<f32>> {
    texts.iter().map(|text| vector(text)).collect()
}

fn vector(text: &str) -> Vec<f32> {
    let mut sum = RowSum::default();
    let mut n_tokens = 0;
    for_each_token(text, |row| {
        sum.add(row);
        n_tokens += 1;
        if n_tokens < MAX_TOKENS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    sum.unit_vector().unwrap_or_else(|| {
        let mut padding = RowSum::default();
        padding.add(PADDING);
        padding.unit_vector().unwrap_or_default()
    })
}

/// Calls `take` with the row of each known token, in order, until it breaks.
fn for_each_token(text: &str, mut take: impl FnMut(u32) -> ControlFlow<()>) {
    let mut pieces = WordPieces::default();
    for_each_word(text, |word| {
        pieces.split(word).iter().copied().try_for_each(&mut take)
    });
}

#[cfg(test)]
mod tests;
