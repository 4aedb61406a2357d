//! Encodings of weights: plain floats, or blocks of 32 with a scale.

/// Encoding of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockForm {
    /// 32-bit floats.
    F32,
    /// Blocks of 32 weights of 4 bits: a half-precision scale, then 16 bytes. Byte `i` has weight
    /// `i` in its low half and weight `i + 16` in its high half. The value 8 stands for zero.
    Q4,
    /// Blocks of 32 weights of 8 bits: a half-precision scale, then 32 signed bytes.
    Q8,
}

/// Number of weights in a block.
pub(crate) const BLOCK: usize = 32;
const Q4_BYTES: usize = 2 + BLOCK / 2;
const Q8_BYTES: usize = 2 + BLOCK;

impl BlockForm {
    /// Returns the encoding with this number in GGUF.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::F32),
            2 => Some(Self::Q4),
            8 => Some(Self::Q8),
            _ => None,
        }
    }

    /// Returns the number of the encoding in GGUF.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Q4 => 2,
            Self::Q8 => 8,
        }
    }

    /// Returns the size of this many weights in bytes, or `None` if they are not a multiple of the
    /// block size.
    pub(crate) fn bytes_of(self, weights: u64) -> Option<u64> {
        let (block, bytes) = match self {
            Self::F32 => (1, 4),
            Self::Q4 => (BLOCK as u64, Q4_BYTES as u64),
            Self::Q8 => (BLOCK as u64, Q8_BYTES as u64),
        };
        if weights.is_multiple_of(block) {
            (weights / block).checked_mul(bytes)
        } else {
            None
        }
    }

    /// Decodes weights to floats, up to the end of the shorter side.
    pub(crate) fn expand(self, bytes: &[u8], weights: &mut [f32]) {
        match self {
            Self::F32 => {
                for (bytes, weight) in bytes.as_chunks::<4>().0.iter().zip(weights) {
                    *weight = f32::from_le_bytes(*bytes);
                }
            }
            Self::Q4 => {
                let blocks = bytes.as_chunks::<Q4_BYTES>().0.iter();
                for (block, weights) in blocks.zip(weights.as_chunks_mut::<BLOCK>().0) {
                    expand_q4(block, weights);
                }
            }
            Self::Q8 => {
                let blocks = bytes.as_chunks::<Q8_BYTES>().0.iter();
                for (block, weights) in blocks.zip(weights.as_chunks_mut::<BLOCK>().0) {
                    expand_q8(block, weights);
                }
            }
        }
    }
}

fn expand_q4(block: &[u8; Q4_BYTES], weights: &mut [f32; BLOCK]) {
    let scale = half_to_float([block[0], block[1]]);
    let (low, high) = weights.split_at_mut(BLOCK / 2);
    for ((byte, low), high) in block[2..].iter().zip(low).zip(high) {
        *low = f32::from((byte & 0x0f).cast_signed() - 8) * scale;
        *high = f32::from((byte >> 4).cast_signed() - 8) * scale;
    }
}

fn expand_q8(block: &[u8; Q8_BYTES], weights: &mut [f32; BLOCK]) {
    let scale = half_to_float([block[0], block[1]]);
    for (byte, weight) in block[2..].iter().zip(weights) {
        *weight = f32::from(byte.cast_signed()) * scale;
    }
}

/// Returns the value of a finite half-precision number.
///
/// The exponent is adjusted by a multiplication, which is also correct for subnormal numbers.
fn half_to_float(bytes: [u8; 2]) -> f32 {
    const TWO_TO_112: f32 = f32::from_bits(0x7780_0000);
    let half = u32::from(u16::from_le_bytes(bytes));
    let magnitude = f32::from_bits((half & 0x7fff) << 13) * TWO_TO_112;
    f32::from_bits(magnitude.to_bits() | (half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    use super::*;

    fn expanded_like_candle_does(kind: GgmlDType, form: BlockForm) {
        let weights = (0..640_i16)
            .map(|i| f32::from(i * 37 % 101 - 50) * if i < 320 { 0.013 } else { 1e-7 })
            .collect::<Vec<_>>();
        let tensor = Tensor::from_vec(weights, (10, 64), &Device::Cpu).unwrap();
        let quantised = QTensor::quantize(&tensor, kind).unwrap();
        let theirs = quantised.dequantize(&Device::Cpu).unwrap();
        let bytes = quantised.data().unwrap();
        assert_eq!(form.bytes_of(640), Some(bytes.len() as u64));
        let mut ours = vec![f32::NAN; 640];
        form.expand(&bytes, &mut ours);
        assert_eq!(
            ours,
            theirs.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        );
    }

    #[test]
    fn blocks_of_each_form_expand_as_in_candle() {
        expanded_like_candle_does(GgmlDType::F32, BlockForm::F32);
        expanded_like_candle_does(GgmlDType::Q4_0, BlockForm::Q4);
        expanded_like_candle_does(GgmlDType::Q8_0, BlockForm::Q8);
    }

    #[test]
    fn incomplete_blocks_have_no_size() {
        assert_eq!(BlockForm::Q4.bytes_of(48), None);
        assert_eq!(BlockForm::Q8.bytes_of(31), None);
        assert_eq!(BlockForm::F32.bytes_of(31), Some(124));
        assert_eq!(BlockForm::F32.bytes_of(u64::MAX), None);
    }
}
