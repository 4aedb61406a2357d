//! Reader of the tensors of a file. Each is read once.

use candle_core::{Device, Tensor};

use crate::models::gguf::block::BlockForm;
use crate::models::gguf::reader::{Gguf, GgufError};

/// The reason why a model cannot be loaded.
#[derive(Debug)]
pub(super) enum LoadError {
    File(GgufError),
    Compute(candle_core::Error),
}

impl From<GgufError> for LoadError {
    fn from(error: GgufError) -> Self {
        Self::File(error)
    }
}

impl From<candle_core::Error> for LoadError {
    fn from(error: candle_core::Error) -> Self {
        Self::Compute(error)
    }
}

/// Returns the error for a file with invalid content.
pub(super) fn content_error(reason: String) -> LoadError {
    LoadError::File(GgufError::Content(reason))
}

#[derive(Debug)]
pub(super) struct TensorSource {
    pub(super) gguf: Gguf,
}

impl TensorSource {
    /// Fails if a tensor is missing or has other dimensions.
    pub(super) fn check(&self, name: &str, shape: &[u64]) -> Result<(), LoadError> {
        match self.gguf.tensor(name) {
            Some(tensor) if tensor.shape == shape => Ok(()),
            Some(tensor) => Err(content_error(format!(
                "tensor {name} has dimensions {:?}, not {shape:?}",
                tensor.shape
            ))),
            None => Err(content_error(format!("tensor {name} is missing"))),
        }
    }

    /// Returns the block form of tensors, and their concatenated bytes.
    pub(super) fn blocks(&self, names: &[&str]) -> Result<(BlockForm, Vec<u8>), LoadError> {
        let mut bytes = Vec::new();
        let mut form = None;
        for name in names {
            let tensor = self
                .gguf
                .tensor(name)
                .ok_or_else(|| content_error(format!("tensor {name} is missing")))?;
            if *form.get_or_insert(tensor.form) != tensor.form {
                return Err(content_error(format!(
                    "tensor {name} and tensor {} have different forms",
                    names[0]
                )));
            }
            bytes.reserve_exact(usize::try_from(tensor.bytes).unwrap_or(0));
            self.gguf.read(tensor, &mut bytes)?;
        }
        let form = form.ok_or_else(|| content_error("no tensor is asked for".to_owned()))?;
        Ok((form, bytes))
    }

    /// Returns a tensor as floats.
    pub(super) fn floats(&self, name: &str) -> Result<Tensor, LoadError> {
        let (form, bytes) = self.blocks(&[name])?;
        let shape = self
            .gguf
            .tensor(name)
            .map(|tensor| {
                tensor
                    .shape
                    .iter()
                    .copied()
                    .filter_map(|size| usize::try_from(size).ok())
            })
            .map(Iterator::collect::<Vec<_>>)
            .unwrap_or_default();
        let mut weights = vec![0.0; shape.iter().product()];
        form.expand(&bytes, &mut weights);
        Ok(Tensor::from_vec(weights, shape, &Device::Cpu)?)
    }
}
