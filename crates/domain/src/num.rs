//! Counts as floating-point numbers, for means, shares and scores.
//!
//! An `f64` holds each integer up to 2^53. Counts of calls, tools or tokens stay far below it, and
//! a mean or a share of larger numbers does not need their last digits.
//!
//! # Examples
//!
//! ```
//! use riglm_domain::num::{ratio, to_f64};
//!
//! assert_eq!(to_f64(3_usize), 3.0);
//! assert_eq!(ratio(1_u64, 4_u64), 0.25);
//! assert_eq!(ratio(0_u64, 0_u64), 0.0);
//! ```

/// An integer that counts things.
pub trait Count: Copy {
    /// Returns the count as a float, rounded above 2^53.
    fn to_f64(self) -> f64;
}

impl Count for u64 {
    #[expect(clippy::cast_precision_loss, reason = "rounding above 2^53 is wanted")]
    fn to_f64(self) -> f64 {
        self as f64
    }
}

impl Count for usize {
    #[expect(clippy::cast_precision_loss, reason = "rounding above 2^53 is wanted")]
    fn to_f64(self) -> f64 {
        self as f64
    }
}

/// Returns a count as a float, rounded above 2^53.
pub fn to_f64(n: impl Count) -> f64 {
    n.to_f64()
}

/// Returns a part divided by the whole; a whole of nothing counts as 1.
pub fn ratio(part: impl Count, whole: impl Count) -> f64 {
    part.to_f64() / whole.to_f64().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_up_to_53_bits() {
        assert!((to_f64((1_u64 << 53) - 1) - 9_007_199_254_740_991.0).abs() < 0.5);
        assert!((to_f64(u64::MAX) - 18_446_744_073_709_551_615.0).abs() < 1.0);
    }

    #[test]
    fn a_ratio_is_finite() {
        assert!((ratio(3_usize, 4_usize) - 0.75).abs() < f64::EPSILON);
        assert!(ratio(0_u64, 0_u64).abs() < f64::EPSILON);
        assert!(ratio(u64::MAX, 0_u64).is_finite());
    }
}
