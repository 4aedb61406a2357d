//! Rows of the token table.
//!
//! A row is a scale, which is an unsigned 16-bit integer, and 256 weights of 4 bits in 128 bytes.
//! The low halves of the bytes are the first 128 weights, the high halves are the others. The value
//! 8 stands for 0.

/// Dimension of the vectors.
const DIMENSION: usize = 256;
const HALF: usize = DIMENSION / 2;
const ROW_BYTES: usize = 2 + HALF;
const ZERO: i32 = 8;

/// Row of the padding token.
pub(super) const PADDING: u32 = 0;

static ROWS: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/floor/rows.bin"));

/// Sum of rows in integers. It is exact, so the order of addition has no effect.
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
    /// Adds a row. The sum of 4,000 rows cannot overflow.
    pub(super) fn add(&mut self, row: u32) {
        let row: &[u8; ROW_BYTES] = &ROWS.as_chunks().0[row as usize];
        let scale = i32::from(u16::from_le_bytes([row[0], row[1]]));
        let (low, high) = self.weights.split_at_mut(HALF);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(&row[2..]) {
            *low += scale * (i32::from(byte & 0xf) - ZERO);
            *high += scale * (i32::from(byte >> 4) - ZERO);
        }
    }

    /// Returns the sum scaled to length 1, or `None` if it is zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what a 32-bit float does not hold is not needed"
    )]
    pub(super) fn unit_vector(&self) -> Option<Vec<f32>> {
        let weights = self.weights.iter().copied().map(f64::from);
        let length = weights.clone().map(|weight| weight * weight).sum::<f64>();
        let length = length.sqrt();
        (length > 0.0).then(|| weights.map(|weight| (weight / length) as f32).collect())
    }
}
