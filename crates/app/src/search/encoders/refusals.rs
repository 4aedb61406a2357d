//! Texts that an encoder refuses: servers refuse a whole request for one text that is too long or
//! that they do not like.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use tokio::time::Instant;

/// How many refused texts are remembered.
const MAX_TEXTS: usize = 10_000;
/// How many texts are refused before the encoder counts as one that refuses every text.
const MAX_REFUSED: usize = 4;
/// A text of fewer bytes is not refused for its length.
const MIN_CUT_BYTES: usize = 256;
/// What is left of a text that is refused, in turn: the half, then the quarter.
const CUTS: [usize; 2] = [2, 4];
/// How long an encoder that refuses every text is left alone, at first and at most.
const REST: Duration = Duration::from_secs(30);
const MAX_REST: Duration = Duration::from_mins(10);

/// What an encoder refused.
#[derive(Debug)]
pub(super) struct Refusals {
    /// The hashes of texts that it does not take, however short they are cut.
    texts: Mutex<LruCache<String, ()>>,
    rest: Mutex<Option<Rest>>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    length: Duration,
    until: Instant,
}

impl Default for Refusals {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_TEXTS).unwrap_or(NonZeroUsize::MIN);
        Self {
            texts: Mutex::new(LruCache::new(n)),
            rest: Mutex::default(),
        }
    }
}

impl Refusals {
    /// Returns whether a text was refused before.
    pub(super) fn has(&self, hash: &str) -> bool {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(hash).is_some()
    }

    /// Remembers texts that were refused.
    pub(super) fn add(&self, hashes: Vec<String>) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        for hash in hashes {
            texts.put(hash, ());
        }
    }

    /// Returns whether the encoder is left alone.
    pub(super) fn is_resting(&self) -> bool {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.is_some_and(|rest| Instant::now() < rest.until)
    }

    /// Leaves the encoder alone, twice as long as the last time.
    pub(super) fn rest(&self) {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let length = rest.map_or(REST, |rest| (rest.length * 2).min(MAX_REST));
        let until = Instant::now() + length;
        *rest = Some(Rest { length, until });
    }

    /// Forgets that it was left alone.
    pub(super) fn end_rest(&self) {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What came of a batch of texts.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// Hashes of texts with their vectors.
    pub(super) vectors: Vec<(String, Vec<f32>)>,
    /// The hashes of texts that were refused.
    pub(super) refused: Vec<String>,
}

/// Encodes texts, given with their hashes. A batch that is refused is halved down to the text that
/// is to blame, of which a part is tried then.
///
/// # Errors
///
/// Returns [`EncoderError`] when the encoder cannot be reached or loaded, and when it takes no text
/// at all: unless `has_taken` says that it has taken others, it is not asked for more than a few.
pub(super) async fn encoded(
    encoder: &dyn Encoder,
    batch: &[(&String, &String)],
    role: TextRole,
    has_taken: bool,
) -> Result<Encoded, EncoderError> {
    let mut done = Encoded::default();
    let mut parts = vec![batch];
    let mut last_error = None;
    while let Some(part) = parts.pop() {
        let texts = part.iter().map(|(_, text)| (*text).clone()).collect();
        let error = match encoder.encode(texts, role).await {
            Ok(vectors) => {
                let hashes = part.iter().map(|(hash, _)| (*hash).clone());
                done.vectors.extend(hashes.zip(vectors));
                continue;
            }
            Err(error @ EncoderError::Failed { .. }) => error,
            Err(error) => return Err(error),
        };
        let [(hash, text)] = part else {
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first]);
            continue;
        };
        if let Some(vector) = of_a_part(encoder, text, role).await? {
            done.vectors.push(((*hash).clone(), vector));
            continue;
        }
        let reason = &error as &(dyn std::error::Error + 'static);
        let (model, bytes) = (encoder.model(), text.len());
        tracing::debug!(error = reason, %model, bytes, "a text is refused and has no vector");
        done.refused.push((*hash).clone());
        last_error = Some(error);
        if !has_taken && done.vectors.is_empty() && done.refused.len() >= MAX_REFUSED {
            break;
        }
    }
    match last_error {
        Some(error) if !has_taken && done.vectors.is_empty() => Err(error),
        _ => Ok(done),
    }
}

/// Returns the vector of the beginning of a text that is refused as a whole.
async fn of_a_part(
    encoder: &dyn Encoder,
    text: &str,
    role: TextRole,
) -> Result<Option<Vec<f32>>, EncoderError> {
    if text.len() < MIN_CUT_BYTES {
        return Ok(None);
    }
    for cut in CUTS {
        let part = &text[..text.floor_char_boundary(text.len() / cut)];
        match encoder.encode(vec![part.to_owned()], role).await {
            Ok(mut vectors) => return Ok(vectors.pop()),
            Err(EncoderError::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
