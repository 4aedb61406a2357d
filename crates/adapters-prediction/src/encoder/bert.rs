//! BERT and XLM-RoBERTa in 32-bit floats, on the CPU.
//!
//! Texts are computed one by one. Without an accelerator, padding a batch to its longest text costs
//! more than batching saves.

mod config;
mod tokens;
mod weights;

use std::fmt;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::BertModel;
use candle_transformers::models::xlm_roberta::XLMRobertaModel;

use crate::encoder::bert::config::Config;
use crate::encoder::bert::tokens::BertTokenizer;
use crate::encoder::bert::weights::Weights;
use crate::encoder::model::{ModelError, SentenceModel};
use crate::models::manifest::ModelManifest;

/// Loads a model from `config.json`, `tokenizer.json` and `model.safetensors`.
///
/// # Errors
///
/// Returns [`ModelError`], which names the file, when a file cannot be read or does not match the
/// others.
pub(crate) fn load(
    directory: &Path,
    manifest: &ModelManifest,
) -> Result<Box<dyn SentenceModel>, ModelError> {
    let config = Config::load(&directory.join("config.json"), manifest)?;
    let tokens = BertTokenizer::load(
        &directory.join("tokenizer.json"),
        manifest.max_tokens,
        config.vocabulary(),
    )?;
    let path = directory.join("model.safetensors");
    let weights = Weights::open(&path)?;
    let network = Network::load(weights, &config).map_err(|error| ModelError::Content {
        path,
        reason: error.to_string(),
    })?;
    Ok(Box::new(Bert { tokens, network }))
}

/// A loaded model with its tokenizer.
#[derive(Debug)]
struct Bert {
    tokens: BertTokenizer,
    network: Network,
}

impl SentenceModel for Bert {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>, ModelError> {
        let ids = self.tokens.ids(text)?;
        let mean = self
            .network
            .mean_of_tokens(&ids)
            .map_err(|error| ModelError::Compute(error.into()))?;
        unit(mean)
    }
}

/// The layers. The two kinds differ in the first position and in their arguments.
enum Network {
    Bert(BertModel),
    XlmRoberta(XLMRobertaModel),
}

impl Network {
    fn load(weights: Weights, config: &Config) -> candle_core::Result<Self> {
        let variables = VarBuilder::from_backend(Box::new(weights), DType::F32, Device::Cpu);
        Ok(match config {
            Config::Bert(config) => Self::Bert(BertModel::load(variables, config)?),
            Config::XlmRoberta(config) => {
                Self::XlmRoberta(XLMRobertaModel::new(config, variables)?)
            }
        })
    }

    fn mean_of_tokens(&self, ids: &[u32]) -> candle_core::Result<Vec<f32>> {
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let types = ids.zeros_like()?;
        let hidden = match self {
            Self::Bert(network) => network.forward(&ids, &types, None)?,
            Self::XlmRoberta(network) => {
                network.forward(&ids, &ids.ones_like()?, &types, None, None, None)?
            }
        };
        hidden.squeeze(0)?.mean(0)?.to_vec1()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bert(_) => "Bert",
            Self::XlmRoberta(_) => "XlmRoberta",
        })
    }
}

/// Returns the vector scaled to length 1. Returns an error if damaged weights lead to a length that
/// is zero or not finite.
fn unit(mut vector: Vec<f32>) -> Result<Vec<f32>, ModelError> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if !length.is_finite() || length == 0.0 {
        return Err(ModelError::Compute(
            format!("a vector has length {length}").into(),
        ));
    }
    for value in &mut vector {
        *value /= length;
    }
    Ok(vector)
}

#[cfg(test)]
mod tests;
