//! GGUF, the container of quantised weights: what stands in such a file, as far as it is used here.
//!
//! The reader of candle-core makes one allocation for each word of a vocabulary and holds tensors
//! twice while they are loaded. With 250,000 words that is more memory than the weights take, so
//! the header is read here, and words stay in one piece.

pub(crate) mod block;
pub(crate) mod reader;
pub(crate) mod writer;

use block::BlockForm;

/// The first bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";
/// Tensors begin at multiples of this, unless a file says otherwise.
const ALIGNMENT: u64 = 32;

/// What a value is, by number.
mod value_type {
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const TEXT: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
}

/// Many short byte strings in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns one, empty where there is none.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.bytes
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// Returns all, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends one; `false` where they are more than 4 GiB together, and it is not appended.
    pub(crate) fn push(&mut self, text: &[u8]) -> bool {
        match u32::try_from(self.bytes.len() + text.len()) {
            Ok(end) => {
                self.bytes.extend_from_slice(text);
                self.ends.push(end);
                true
            }
            Err(_) => false,
        }
    }
}

/// A value of the header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A whole number that is not negative, or `true` (1) or `false` (0).
    Integer(u64),
    /// A number with a fraction.
    Float(f32),
    /// A text.
    Text(String),
    /// An array of texts.
    Texts(Texts),
    /// An array of numbers with fractions.
    Floats(Vec<f32>),
    /// An array of whole numbers of four bytes; the bits of negative ones.
    Integers(Vec<u32>),
    /// Something that is not used here.
    Other,
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorEntry {
    /// How its weights are stored.
    pub(crate) form: BlockForm,
    /// Its dimensions, the outermost first.
    pub(crate) shape: Vec<u64>,
    /// Where its bytes begin in the file.
    pub(crate) start: u64,
    /// How many they are.
    pub(crate) bytes: u64,
}
