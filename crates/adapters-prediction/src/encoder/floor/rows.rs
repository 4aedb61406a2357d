//! The rows of the table.
//!
//! A row is a scale, an unsigned 16-bit integer, and 256 weights of 4 bits: the low halves of the
//! 128 bytes that follow are the first 128 weights, the high halves the others; 8 stands for 0.

/// The dimension of the vectors.
const DIMENSION: usize = 256;
const HALF: usize = DIMENSION / 2;
const ROW_BYTES: usize = 2 + HALF;
const ZERO: i32 = 8;

/// The row of the padding token.
pub(super) const PADDING: u32 = 0;

static ROWS: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/floor/rows.bin"));

/// The sum of some rows. It is exact: the order in which they are added makes no difference.
#[derive(Debug)]
pub(super) struct RowSum {
    weights: [i32; DIMENSION],
}

impl Default for RowSum {
    fn default() -> Self {
        Self {
            weights: [0; DIMENSION],
        }
    }
}

impl RowSum {
    /// Adds a row. There is room for the sum of 4,000.
    pub(super) fn add(&mut self, row: u32) {
        let row: &[u8; ROW_BYTES] = &ROWS.as_chunks().0[row as usize];
        let scale = i32::from(u16::from_le_bytes([row[0], row[1]]));
        let (low, high) = self.weights.split_at_mut(HALF);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(&row[2..]) {
            *low += scale * (i32::from(byte & 0xf) - ZERO);
            *high += scale * (i32::from(byte >> 4) - ZERO);
        }
    }

    /// Returns the direction of the sum as a vector of length 1; `None` when it has none.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what a 32-bit float does not hold is not needed"
    )]
    pub(super) fn direction(&self) -> Option<Vec<f32>> {
        let weights = self.weights.iter().copied().map(f64::from);
        let length = weights.clone().map(|weight| weight * weight).sum::<f64>();
        let length = length.sqrt();
        (length > 0.0).then(|| weights.map(|weight| (weight / length) as f32).collect())
    }
}
