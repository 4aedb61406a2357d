//! Vectors from a table of tokens in the program: there without any file, at microseconds a text.
//!
//! The table is that of potion-base-8M, whose weights are rounded to 4 bits; `data/floor` tells
//! how it is made. The vector of a text is the mean of the rows of its tokens: which words are in
//! it counts, their order does not.

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

const MODEL: &str = concat!("potion-base-8M:int4@", env!("FLOOR_DIGEST"));

/// The most tokens that count in a text.
const MAX_TOKENS: usize = 512;

/// The most texts, and the most bytes of text, that are encoded on the thread of the caller: about
/// a millisecond.
const MAX_INLINE_TEXTS: usize = 64;
const MAX_INLINE_BYTES: usize = 16 << 10;

/// Looks tokens up in a table that is part of the program; queries and passages alike.
///
/// Nothing is loaded, at the start or later. The first 512 tokens of a text count, in its first
/// 16,384 characters. What the vocabulary does not know is left out; a text in which it knows
/// nothing has the vector of the padding token, which is near to no text: the inner product of the
/// two is at most about 0.15.
#[derive(Clone, Copy, Debug, Default)]
pub struct FloorEncoder;

#[async_trait]
impl Encoder for FloorEncoder {
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

/// Returns the vector of a text.
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
    sum.direction().unwrap_or_else(|| {
        let mut padding = RowSum::default();
        padding.add(PADDING);
        padding.direction().unwrap_or_default()
    })
}

/// Calls `take` with the row of each known token, in order, until it breaks.
fn for_each_token(text: &str, mut take: impl FnMut(u32) -> ControlFlow<()>) {
    let mut pieces = WordPieces::default();
    for_each_word(text, |word| {
        pieces.of(word).iter().copied().try_for_each(&mut take)
    });
}

#[cfg(test)]
mod tests;
