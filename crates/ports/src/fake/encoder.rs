//! An encoder of words, without a model.

use std::hash::{Hash, Hasher};

use async_trait::async_trait;

use crate::encoder::{Encoder, EncoderError, TextRole};

/// The dimension of the vectors. Two words rarely share a component.
const DIMENSION: usize = 512;
/// The number of characters that are read.
const MAX_CHARS: usize = 2_000;

/// Counts the words of a text: texts are similar if they have words in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordEncoder;

impl WordEncoder {
    fn vector(text: &str) -> Vec<f32> {
        let read: String = text.chars().take(MAX_CHARS).collect();
        let mut counts = vec![0.0_f32; DIMENSION];
        for word in read.split_whitespace() {
            counts[component(word)] += 1.0;
        }
        let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt();
        if length == 0.0 {
            counts[0] = 1.0;
            return counts;
        }
        for count in &mut counts {
            *count /= length;
        }
        counts
    }
}

/// Returns the component of a word, from 1. The first one is for texts without words.
fn component(word: &str) -> usize {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    word.to_lowercase().hash(&mut hasher);
    let components = DIMENSION as u64 - 1;
    usize::try_from(1 + hasher.finish() % components).unwrap_or_default()
}

/// The FNV-1a hash, which is the same in every process.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[async_trait]
impl Encoder for WordEncoder {
    fn model(&self) -> &'static str {
        "words"
    }

    fn dimension(&self) -> Option<usize> {
        Some(DIMENSION)
    }

    async fn encode(
        &self,
        texts: Vec<String>,
        _role: TextRole,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        Ok(texts.iter().map(|text| Self::vector(text)).collect())
    }
}
