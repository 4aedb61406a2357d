//! Latency histograms, in buckets whose width grows with the latency.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The number of buckets between a number and its double.
const PER_OCTAVE: u64 = 16;

/// A range of durations: whole microseconds up to 16, then 16 ranges for each power of two. The
/// width of a range is at most a sixteenth of its lower end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyBucket(pub u16);

impl LatencyBucket {
    /// Returns the bucket of a duration in microseconds.
    #[must_use]
    pub fn of(micros: u64) -> Self {
        let index = if micros < PER_OCTAVE {
            micros
        } else {
            // The highest bit and the four bits after it select the bucket.
            let octave = u64::from(micros.ilog2()) - 4;
            PER_OCTAVE * octave + (micros >> octave)
        };
        // 60 octaves of 16 buckets each, and the first 16.
        Self(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Returns the largest duration of the bucket, in microseconds.
    #[must_use]
    pub fn upper_us(self) -> u64 {
        let index = u64::from(self.0);
        if index < PER_OCTAVE {
            return index;
        }
        let octave = (index / PER_OCTAVE - 1).min(59);
        let first = u128::from(PER_OCTAVE + index % PER_OCTAVE) << octave;
        u64::try_from(first + (1 << octave) - 1).unwrap_or(u64::MAX)
    }
}

/// The number of calls for each range of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram(BTreeMap<LatencyBucket, u64>);

impl LatencyHistogram {
    /// Adds calls to a bucket.
    pub fn add(&mut self, bucket: LatencyBucket, n_calls: u64) {
        *self.0.entry(bucket).or_default() += n_calls;
    }

    /// Returns the number of added calls.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns a duration in microseconds that the given share of the calls, of 0 to 1, did not
    /// exceed; `None` without calls. It is the upper end of the bucket of the call with that rank,
    /// at most a sixteenth above the duration of that call.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let n_calls = self.n_calls();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among the calls; the cast of a float saturates"
        )]
        let rank = ((n_calls as f64 * share).ceil() as u64).clamp(1, n_calls.max(1));
        let mut n_seen = 0;
        self.0.iter().find_map(|(bucket, n)| {
            n_seen += n;
            (n_seen >= rank).then(|| bucket.upper_us())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket(micros: u64) {
            let bucket = LatencyBucket::of(micros);
            prop_assert!(micros <= bucket.upper_us());
            prop_assert!(bucket.upper_us() - micros <= micros / 16);
            if bucket.0 > 0 {
                prop_assert!(LatencyBucket(bucket.0 - 1).upper_us() < micros);
            }
        }

        #[test]
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the rank of one of a few values"
        )]
        fn a_quantile_is_the_value_with_its_rank_or_little_more(
            mut durations in prop::collection::vec(0_u64..10_000_000, 1..200),
            share in 0.0..=1.0_f64,
        ) {
            let mut histogram = LatencyHistogram::default();
            for micros in &durations {
                histogram.add(LatencyBucket::of(*micros), 1);
            }
            durations.sort_unstable();
            let rank = (durations.len() as f64 * share).ceil().max(1.0) as usize;
            let exact = durations[rank - 1];
            let quantile = histogram.quantile_us(share).unwrap();
            prop_assert!(quantile >= exact && quantile <= exact + exact / 16);
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(LatencyHistogram::default().quantile_us(0.5), None);
    }

    #[test]
    fn the_longest_duration_has_a_bucket() {
        assert_eq!(LatencyBucket::of(u64::MAX).upper_us(), u64::MAX);
        assert_eq!(LatencyBucket(u16::MAX).upper_us(), u64::MAX);
    }
}
