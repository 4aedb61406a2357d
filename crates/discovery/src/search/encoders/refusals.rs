//! Handling of texts that an encoder refuses. An embedding server refuses a whole request because
//! of one text that is too long or otherwise invalid.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::encoder::{Encoder, EncoderError, TextRole};
use tokio::time::Instant;

/// Maximum number of remembered refused texts.
const MAX_TEXTS: usize = 10_000;
/// After this many refusals without a success, the encoder counts as refusing every text.
const MAX_REFUSED: usize = 4;
/// Shorter texts are not retried in part, because their length is not the reason.
const MIN_CUT_BYTES: usize = 256;
/// Divisors of the length for retries: first half of the text, then a quarter.
const CUTS: [usize; 2] = [2, 4];
/// Back-off of an encoder that refuses every text.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

/// Refused texts and the back-off of an encoder.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Hashes of texts that the encoder refuses even in part.
    texts: Mutex<LruCache<String, ()>>,
    pause: Mutex<RefusalPause>,
}

#[derive(Debug)]
struct RefusalPause {
    failures: FailureStreak,
    until: Option<Instant>,
}

impl Default for Refusals {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_TEXTS).unwrap_or(NonZeroUsize::MIN);
        Self {
            texts: Mutex::new(LruCache::new(n)),
            pause: Mutex::new(RefusalPause {
                failures: FailureStreak::new(BACKOFF),
                until: None,
            }),
        }
    }
}

impl Refusals {
    /// Returns whether a text was refused before.
    pub(super) fn has(&self, hash: &str) -> bool {
        let mut texts = self.texts.lock();
        texts.get(hash).is_some()
    }

    pub(super) fn add(&self, hashes: Vec<String>) {
        let mut texts = self.texts.lock();
        for hash in hashes {
            texts.put(hash, ());
        }
    }

    /// Returns whether the encoder is in back-off.
    pub(super) fn is_backing_off(&self) -> bool {
        let until = self.pause.lock().until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Starts a back-off, longer than the last one.
    pub(super) fn back_off(&self) {
        let mut pause = self.pause.lock();
        let wait = pause.failures.record_failure(fastrand::f64());
        pause.until = Some(Instant::now() + wait);
    }

    /// Resets the back-off.
    pub(super) fn reset_back_off(&self) {
        let mut pause = self.pause.lock();
        pause.failures.reset();
        pause.until = None;
    }
}

/// Result of a batch.
#[derive(Debug, Default)]
pub(super) struct EncodedBatch {
    /// Hashes of texts with their vectors.
    pub(super) vectors: Vec<(String, Vec<f32>)>,
    /// Hashes of the refused texts.
    pub(super) refused: Vec<String>,
}

/// Encodes texts, each given with its hash. A refused batch is split in halves until the refused
/// text is found. A part of this text is then encoded instead.
///
/// # Errors
///
/// Returns [`EncoderError`] when the encoder cannot be reached or loaded, and when it refuses every
/// text. Unless `has_taken` says that the encoder has accepted other texts, it gets only a few
/// requests.
pub(super) async fn encode_batch(
    encoder: &dyn Encoder,
    batch: &[(&String, &String)],
    role: TextRole,
    has_taken: bool,
) -> Result<EncodedBatch, EncoderError> {
    let mut done = EncodedBatch::default();
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
        if let Some(vector) = encode_part(encoder, text, role).await? {
            done.vectors.push(((*hash).clone(), vector));
            continue;
        }
        let reason = &error as &(dyn std::error::Error + 'static);
        let (model, bytes) = (encoder.model(), text.len());
        tracing::debug!(error = reason, %model, bytes, "encoder rejected a text; it has no vector");
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

/// Encodes the beginning of a text that was refused as a whole.
async fn encode_part(
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
