//! Latency histograms, in buckets whose width grows with the latency.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::num::to_f64;

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

    /// Returns the smallest duration of the bucket, in microseconds.
    fn lower_us(self) -> u64 {
        let before = self.0.checked_sub(1).map(|before| Self(before).upper_us());
        before.map_or(0, |before| before.saturating_add(1))
    }

    /// Returns the duration at a part of the bucket, from 0 to 1, in microseconds.
    fn at_part(self, part: f64) -> u64 {
        let lower = self.lower_us();
        let width = self.upper_us().saturating_sub(lower);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of the width, which is not negative"
        )]
        let offset = (to_f64(width) * part.clamp(0.0, 1.0)).round() as u64;
        lower + offset.min(width)
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

    /// Returns the duration in microseconds that the given share of the calls, of 0 to 1, did not
    /// exceed; `None` without calls.
    ///
    /// It is an estimate, because the durations of the calls of a bucket are not known: they count as
    /// spread evenly over the bucket, as in `histogram_quantile` of Prometheus. The estimate and the
    /// duration of the call with that rank are in the same bucket, so they differ by at most a
    /// sixteenth.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = to_f64(self.n_calls()) * share.clamp(0.0, 1.0);
        let mut n_seen = 0_u64;
        self.0.iter().find_map(|(bucket, n)| {
            let n_before = n_seen;
            n_seen += n;
            let is_reached = *n > 0 && to_f64(n_seen) >= rank;
            is_reached.then(|| bucket.at_part((rank - to_f64(n_before)) / to_f64(*n)))
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
        fn a_quantile_is_in_the_bucket_of_the_value_with_its_rank(
            mut durations in prop::collection::vec(0_u64..10_000_000, 1..200),
            share in 0.0..=1.0_f64,
        ) {
            let histogram = histogram(&durations);
            durations.sort_unstable();
            let rank = (durations.len() as f64 * share).ceil().max(1.0) as usize;
            let exact = durations[rank - 1];
            let quantile = histogram.quantile_us(share).unwrap();
            prop_assert_eq!(LatencyBucket::of(quantile), LatencyBucket::of(exact));
            prop_assert!(quantile.abs_diff(exact) <= exact / 16);
        }

        #[test]
        fn quantiles_grow_with_their_shares(
            durations in prop::collection::vec(0_u64..10_000_000, 1..200),
            shares in prop::array::uniform2(0.0..=1.0_f64),
        ) {
            let histogram = histogram(&durations);
            let [low, high] = [shares[0].min(shares[1]), shares[0].max(shares[1])];
            prop_assert!(histogram.quantile_us(low) <= histogram.quantile_us(high));
        }
    }

    fn histogram(durations: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        for micros in durations {
            histogram.add(LatencyBucket::of(*micros), 1);
        }
        histogram
    }

    #[test]
    fn equal_durations_have_quantiles_on_both_sides_of_them() {
        let equal = histogram(&[400_000; 20]);
        // The bucket has 393,216 to 409,599 microseconds.
        assert_eq!(equal.quantile_us(0.0), Some(393_216));
        assert_eq!(equal.quantile_us(0.5), Some(401_408));
        assert_eq!(equal.quantile_us(1.0), Some(409_599));
        // Short durations are known exactly.
        assert_eq!(histogram(&[7; 3]).quantile_us(0.9), Some(7));
        let mut unused = LatencyHistogram::default();
        unused.add(LatencyBucket::of(9), 0);
        assert_eq!(unused.quantile_us(0.5), None);
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
