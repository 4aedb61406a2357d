//! BERT with weights that stay quantized in blocks of 4 or 8 bits.
//!
//! Rows of the word table are converted to floats when a text has the word. The matrices of a layer
//! are converted when the layer is computed, in one shared buffer, and then multiplied as floats.
//! `QMatMul` of candle-core multiplies each row of a text with each row of the matrix separately,
//! which takes several times as long. The conversion takes the same time for texts of any length,
//! about a quarter of the time of a short query.
//!
//! While a model is loaded, no tensor is in memory twice.

mod layer;
mod matrix;
mod source;
#[cfg(test)]
mod tests;
mod words;

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use layer::{Layer, Norm};
use source::{LoadError, TensorSource, content_error};
use words::WordTable;

use super::model::{ModelError, SentenceModel, open};
use super::unigram::{Unigram, Vocabulary};
use crate::models::bert_layout::BertSizes;
use crate::models::convert::GGUF_FILE;
use crate::models::gguf::reader::{Gguf, GgufError};
use crate::models::manifest::ModelManifest;

/// Reads the model of a directory into memory.
///
/// # Errors
///
/// Returns [`ModelError`] when `model.gguf` cannot be read, is damaged, or does not match the
/// manifest.
pub(crate) fn load(
    directory: &Path,
    manifest: &ModelManifest,
) -> Result<Box<dyn SentenceModel>, ModelError> {
    let path = directory.join(GGUF_FILE);
    // Refuses anything but a regular file, because opening a pipe could block.
    drop(open(&path)?);
    match QuantizedBert::load(&path, manifest) {
        Ok(model) => Ok(Box::new(model)),
        Err(LoadError::File(GgufError::Io(source))) => Err(ModelError::Read { path, source }),
        Err(LoadError::File(GgufError::Content(reason))) => {
            Err(ModelError::Content { path, reason })
        }
        Err(LoadError::Compute(error)) => Err(ModelError::Compute(Box::new(error))),
    }
}

#[derive(Debug)]
struct QuantizedBert {
    sizes: BertSizes,
    max_tokens: usize,
    tokenizer: Unigram,
    words: WordTable,
    /// Position vectors plus the vector of the first token type.
    positions: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
    /// Buffer for the converted matrices of a layer.
    buffer: Tensor,
}

impl QuantizedBert {
    fn load(path: &Path, manifest: &ModelManifest) -> Result<Self, LoadError> {
        let mut source = TensorSource {
            gguf: Gguf::open(path)?,
        };
        let sizes = BertSizes::of(&source.gguf)?;
        if sizes.hidden != manifest.dimension {
            return Err(content_error(format!(
                "its vectors have dimension {}, but the manifest has {}",
                sizes.hidden, manifest.dimension
            )));
        }
        for tensor in sizes.tensors() {
            source.check(&tensor.gguf, &tensor.shape)?;
        }
        let tokenizer = Unigram::new(Vocabulary::take(&mut source.gguf)?)
            .map_err(|reason| content_error(format!("its vocabulary is invalid: {reason}")))?;
        if tokenizer.len() > sizes.words {
            return Err(content_error(format!(
                "it has {} pieces, but only {} rows of words",
                tokenizer.len(),
                sizes.words
            )));
        }
        let layers = (0..sizes.layers)
            .map(|index| Layer::load(&source, &sizes, index))
            .collect::<Result<_, _>>()?;
        let types = source.floats("token_types.weight")?;
        let first_type = types.get(0)?;
        let largest = sizes.hidden * (3 * sizes.hidden).max(sizes.feed_forward);
        Ok(Self {
            sizes,
            max_tokens: manifest.max_tokens.min(sizes.positions),
            tokenizer,
            words: WordTable::load(&source)?,
            positions: source
                .floats("position_embd.weight")?
                .broadcast_add(&first_type)?,
            norm: Norm::load(&source, &sizes, "token_embd_norm")?,
            layers,
            buffer: Tensor::zeros(largest, DType::F32, &Device::Cpu)?,
        })
    }

    fn forward(&self, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
        let words = self.words.rows(tokens, self.sizes.hidden)?;
        let positions = self.positions.narrow(0, 0, tokens.len())?;
        let mut states = self.norm.apply(&(words + positions)?)?;
        for layer in &self.layers {
            states = layer.apply(&states, &self.buffer)?;
        }
        states.mean(0)?.to_vec1()
    }
}

impl SentenceModel for QuantizedBert {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError> {
        let tokens = self.tokenizer.encode(text, self.max_tokens);
        let mut vector = self
            .forward(&tokens)
            .map_err(|error| ModelError::Compute(Box::new(error)))?;
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        if !length.is_normal() {
            return Err(ModelError::Compute(
                format!(
                    "the vector of a text of {} tokens is not finite or has length 0",
                    tokens.len()
                )
                .into(),
            ));
        }
        for component in &mut vector {
            *component /= length;
        }
        Ok(vector)
    }
}
