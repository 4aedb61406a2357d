//! Subset of GGUF, the file format of quantized weights.
//!
//! The reader of candle-core makes one allocation for each word of a vocabulary, and holds tensors
//! twice while they are loaded. With 250,000 words this takes more memory than the weights. This
//! reader keeps all words in one buffer.

pub(crate) mod block;
pub(crate) mod reader;
pub(crate) mod writer;

use block::BlockForm;

/// The first bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";
/// Default alignment of tensors in bytes. A file may state another one.
const ALIGNMENT: u64 = 32;

/// Numbers of value types.
mod value_type {
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const TEXT: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
}

/// Many short byte strings in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteStrings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl ByteStrings {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a string, or an empty one if there is none at this index.
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends a string. Returns `false`, without appending, if the total would exceed 4 GiB.
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
pub(crate) enum HeaderValue {
    /// A non-negative integer, or a Boolean as 1 or 0.
    Integer(u64),
    Float(f32),
    Text(String),
    Texts(ByteStrings),
    Floats(Vec<f32>),
    /// An array of four-byte integers. Negative ones are stored by their bits.
    Integers(Vec<u32>),
    /// A value of an unsupported type.
    Other,
}

/// Location and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorEntry {
    /// Block form of the weights.
    pub(crate) form: BlockForm,
    /// Dimensions, the outermost first.
    pub(crate) shape: Vec<u64>,
    /// Offset in the file.
    pub(crate) start: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
}
