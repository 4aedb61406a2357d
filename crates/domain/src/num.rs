//! Counts as floating-point numbers, for means, shares and scores, and ranges of configured
//! numbers.
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

#[cfg(feature = "validator")]
use validator::ValidationError;

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

/// Checks that a configured share is a number from 0 to 1.
///
/// # Errors
///
/// Returns an error with the range for other numbers.
#[cfg(feature = "validator")]
pub fn check_share(value: f64) -> Result<(), ValidationError> {
    check_range(value, 0.0, 1.0)
}

/// Checks that a configured number is within a range, bounds included.
///
/// # Errors
///
/// Returns an error with the range for other numbers, and for numbers that are not finite.
#[cfg(feature = "validator")]
pub fn check_range(value: f64, from: f64, to: f64) -> Result<(), ValidationError> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    let message = format!("expected a number from {from} to {to}");
    Err(ValidationError::new("range").with_message(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "validator")]
    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        assert!(check_share(0.0).is_ok() && check_share(1.0).is_ok());
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = check_share(value).unwrap_err().to_string();
            assert!(error.contains("expected a number from 0 to 1"), "{error}");
        }
    }

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
