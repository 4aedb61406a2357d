//! Quantized word table. A row is converted to floats when a text has the word.

use candle_core::{Device, Tensor};

use super::source::{LoadError, TensorSource};
use crate::models::gguf::block::BlockForm;

/// Vectors of words, in their stored form.
pub(super) struct WordTable {
    form: BlockForm,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for WordTable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WordTable")
            .field("form", &self.form)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

impl WordTable {
    pub(super) fn load(source: &TensorSource) -> Result<Self, LoadError> {
        let (form, bytes) = source.blocks(&["token_embd.weight"])?;
        Ok(Self { form, bytes })
    }

    /// Returns the vectors of words, each of this length.
    pub(super) fn rows(&self, words: &[u32], length: usize) -> candle_core::Result<Tensor> {
        let size = self.form.bytes_of(length as u64).unwrap_or(0);
        let size = usize::try_from(size).unwrap_or(0);
        let mut rows = vec![0.0; words.len() * length];
        for (word, row) in words.iter().zip(rows.chunks_exact_mut(length)) {
            let start = *word as usize * size;
            let bytes = self.bytes.get(start..start + size).unwrap_or_default();
            self.form.expand(bytes, row);
        }
        Tensor::from_vec(rows, (words.len(), length), &Device::Cpu)
    }
}
