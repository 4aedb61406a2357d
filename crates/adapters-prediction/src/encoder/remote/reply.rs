//! Parser of the responses of embedding servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::RemoteError;

#[derive(Deserialize)]
struct EmbeddingReply {
    data: Vec<EmbeddingEntry>,
}

#[derive(Deserialize)]
struct EmbeddingEntry {
    /// Index of the text. Servers that keep the order may omit it.
    index: Option<usize>,
    embedding: Embedding,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Embedding {
    Numbers(Vec<f32>),
    /// 32-bit floats, little-endian.
    Base64(String),
}

impl Embedding {
    fn into_numbers(self) -> Result<Vec<f32>, RemoteError> {
        let text = match self {
            Self::Numbers(numbers) => return Ok(numbers),
            Self::Base64(text) => text,
        };
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(|error| RemoteError::Form(error.into()))?;
        let (words, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            return Err(RemoteError::Form("base64 of an incomplete number".into()));
        }
        Ok(words.iter().copied().map(f32::from_le_bytes).collect())
    }
}

/// Returns the vectors of a response, scaled to length 1, in the order of the texts.
///
/// # Errors
///
/// Returns [`RemoteError`] unless there is exactly one vector with a direction for each text.
pub(super) fn vectors(body: &[u8], n_texts: usize) -> Result<Vec<Vec<f32>>, RemoteError> {
    let reply: EmbeddingReply =
        serde_json::from_slice(body).map_err(|error| RemoteError::Form(error.into()))?;
    if reply.data.len() != n_texts {
        return Err(RemoteError::Count {
            expected: n_texts,
            found: reply.data.len(),
        });
    }
    // An empty vector marks a missing one, because valid vectors are never empty.
    let mut vectors = vec![Vec::new(); n_texts];
    for (position, entry) in reply.data.into_iter().enumerate() {
        let index = entry.index.unwrap_or(position);
        let slot = vectors.get_mut(index).filter(|slot| slot.is_empty());
        let slot = slot.ok_or(RemoteError::Index(index))?;
        let numbers = entry.embedding.into_numbers()?;
        *slot = unit_vector(&numbers).ok_or(RemoteError::NoDirection(index))?;
    }
    Ok(vectors)
}

/// Returns a vector scaled to length 1, or `None` if it has no direction.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what a 32-bit float does not hold is not needed"
)]
fn unit_vector(numbers: &[f32]) -> Option<Vec<f32>> {
    let numbers = numbers.iter().copied().map(f64::from);
    let length = numbers.clone().map(|number| number * number).sum::<f64>();
    let length = length.sqrt();
    let has_direction = length.is_finite() && length > 0.0;
    has_direction.then(|| numbers.map(|number| (number / length) as f32).collect())
}
