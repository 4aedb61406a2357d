//! Numbers of things as real numbers.

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of tools and calls are far below 2^52"
)]
pub(super) fn real(n: usize) -> f64 {
    n as f64
}

/// Returns the number in half the space: counts and weights need no more than seven digits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a weight, not a number of things"
)]
pub(super) fn short(value: f64) -> f32 {
    value as f32
}

/// Returns a 64-bit mix of two numbers (the finaliser of `SplitMix64`, Steele et al. 2014).
pub(super) fn mixed(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a key of a text, the same on every machine (FNV-1a, 64 bits).
#[must_use]
pub(super) fn text_key(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_published_algorithm() {
        assert_eq!(text_key(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(text_key("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(mixed(1, 2), mixed(2, 1));
    }
}
