//! Single precision and hashes of numbers, and selection of the smallest values.

use std::num::NonZero;

/// Converts to single precision, to save memory: counts and weights need no more than seven digits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a weight, not a number of things"
)]
pub(super) fn to_f32(value: f64) -> f32 {
    value as f32
}

/// Returns the log-odds of a probability. Probabilities near 0 and 1 are limited.
pub(super) fn logit(p: f64) -> f64 {
    const LEAST: f64 = 1e-5;
    let p = p.clamp(LEAST, 1.0 - LEAST);
    (p / (1.0 - p)).ln()
}

/// Returns a 64-bit hash of two numbers (the finaliser of `SplitMix64`, Steele et al. 2014).
pub(super) fn mix_hash(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a 64-bit hash of a text that is equal on every machine (FNV-1a).
#[must_use]
pub(super) fn text_key(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Selects the smallest of many values to drop; of equal values the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallestCut {
    limit: f32,
    /// Number of values equal to the limit that are still to be dropped.
    n_equal: usize,
}

impl SmallestCut {
    /// Number of bits of a value per radix step.
    const DIGIT: u32 = 11;

    /// Returns a cut that leaves at most `most` of the values, which must not be negative; `None`
    /// if there are no more than that. It finds the limit without a copy of the values, by radix
    /// selection from the highest digit: the bits of such floats have the same order as the floats.
    pub(super) fn new(values: impl Iterator<Item = f32> + Clone, most: usize) -> Option<Self> {
        let n_dropped = values.clone().count().checked_sub(most)?;
        let mut n_equal = NonZero::new(n_dropped)?.get();
        let bits = values.map(|value| value.abs().to_bits());
        let mut limit = 0;
        // Three digits of 11 bits cover the 32 bits of a float.
        for shift in [22, 11, 0] {
            let above = shift + Self::DIGIT;
            let is_candidate = |bits: &u32| u64::from(*bits) >> above == u64::from(limit) >> above;
            let mut n_with = [0_usize; 1 << Self::DIGIT];
            for bits in bits.clone().filter(is_candidate) {
                n_with[(bits >> shift) as usize % n_with.len()] += 1;
            }
            for (digit, n) in (0..).zip(n_with) {
                if n >= n_equal {
                    limit |= digit << shift;
                    break;
                }
                n_equal -= n;
            }
        }
        Some(Self {
            limit: f32::from_bits(limit),
            n_equal,
        })
    }

    /// Returns whether to drop a value. Call it once for each value, in the original order.
    pub(super) fn drops(&mut self, value: f32) -> bool {
        if value < self.limit {
            return true;
        }
        let is_dropped = value <= self.limit && self.n_equal > 0;
        self.n_equal -= usize::from(is_dropped);
        is_dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_published_algorithm() {
        assert_eq!(text_key(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(text_key("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(mix_hash(1, 2), mix_hash(2, 1));
    }

    #[test]
    fn the_smallest_are_dropped_and_of_equal_ones_the_first() {
        let values = [3.5, 0.25, 1.0, 7e30, 1.0, 0.0, 1.0, 2.5e-20];
        for (most, left) in [
            (8, vec![0, 1, 2, 3, 4, 5, 6, 7]),
            (6, vec![0, 1, 2, 3, 4, 6]),
            (4, vec![0, 3, 4, 6]),
            (1, vec![3]),
            (0, vec![]),
        ] {
            let mut cut = SmallestCut::new(values.iter().copied(), most);
            let kept = (0..values.len()).filter(|at| {
                let cut = cut.as_mut();
                cut.is_none_or(|cut| !cut.drops(values[*at]))
            });
            assert_eq!(kept.collect::<Vec<_>>(), left);
        }
    }
}
