//! Configuration of a network, `config.json`.

use std::path::{Path, PathBuf};

use candle_transformers::models::{bert, xlm_roberta};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::encoder::model::{self, ModelError};
use crate::models::manifest::{ModelForm, ModelManifest};

/// Maximum size of the file. Files of common models have about a thousand bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A checked configuration of a network. With weights of these sizes, the network cannot divide by
/// zero or read beyond a table.
#[derive(Debug)]
pub(super) enum Config {
    Bert(bert::Config),
    XlmRoberta(xlm_roberta::Config),
}

/// The kind of network that a configuration states.
#[derive(Deserialize)]
struct StatedKind {
    model_type: Option<String>,
}

struct Sizes {
    dimension: usize,
    heads: usize,
    /// Maximum number of tokens for which there are positions.
    tokens: usize,
}

impl Config {
    /// Reads the configuration of a model of the manifest's form.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the file cannot be read, or does not match the form, dimension
    /// or text length of the manifest.
    pub(super) fn load(path: &Path, manifest: &ModelManifest) -> Result<Self, ModelError> {
        let file = ConfigFile::read(path)?;
        file.check_kind(manifest.form)?;
        let config = if manifest.form == ModelForm::XlmRoberta {
            Self::XlmRoberta(file.parse()?)
        } else {
            // `model_type` only serves to guess names of tensors, which is done elsewhere.
            Self::Bert(bert::Config {
                model_type: None,
                ..file.parse()?
            })
        };
        file.check_sizes(&config.sizes(), manifest)?;
        Ok(config)
    }

    /// Returns the number of tokens that have a vector.
    pub(super) fn vocabulary(&self) -> usize {
        match self {
            Self::Bert(config) => config.vocab_size,
            Self::XlmRoberta(config) => config.vocab_size,
        }
    }

    fn sizes(&self) -> Sizes {
        match self {
            Self::Bert(config) => Sizes {
                dimension: config.hidden_size,
                heads: config.num_attention_heads,
                tokens: config.max_position_embeddings,
            },
            Self::XlmRoberta(config) => Sizes {
                dimension: config.hidden_size,
                heads: config.num_attention_heads,
                // Positions begin after the position of padding.
                tokens: config
                    .max_position_embeddings
                    .saturating_sub(1)
                    .saturating_sub(config.pad_token_id as usize),
            },
        }
    }
}

/// The text of the file, with its path for error messages.
struct ConfigFile {
    path: PathBuf,
    text: Box<RawValue>,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = model::read(path, MAX_BYTES)?;
        let text = serde_json::from_slice(&bytes).map_err(|error| ModelError::Content {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T, ModelError> {
        serde_json::from_str(self.text.get()).map_err(|error| self.wrong(error.to_string()))
    }

    fn check_kind(&self, form: ModelForm) -> Result<(), ModelError> {
        let wanted = if form == ModelForm::XlmRoberta {
            "xlm-roberta"
        } else {
            "bert"
        };
        match self.parse::<StatedKind>()?.model_type {
            Some(found) if found != wanted => Err(self.wrong(format!(
                "model_type is {found:?}, but the manifest has {wanted}"
            ))),
            _ => Ok(()),
        }
    }

    fn check_sizes(&self, sizes: &Sizes, manifest: &ModelManifest) -> Result<(), ModelError> {
        if sizes.dimension != manifest.dimension {
            return Err(self.wrong(format!(
                "hidden_size is {}, but the manifest has dimension {}",
                sizes.dimension, manifest.dimension
            )));
        }
        if sizes.heads == 0 || !sizes.dimension.is_multiple_of(sizes.heads) {
            return Err(self.wrong(format!(
                "hidden_size {} cannot be divided among num_attention_heads {}",
                sizes.dimension, sizes.heads
            )));
        }
        if sizes.tokens < manifest.max_tokens {
            return Err(self.wrong(format!(
                "max_position_embeddings has room for {} tokens, but the manifest has max_tokens \
                 {}",
                sizes.tokens, manifest.max_tokens
            )));
        }
        Ok(())
    }

    fn wrong(&self, reason: String) -> ModelError {
        ModelError::Content {
            path: self.path.clone(),
            reason,
        }
    }
}
