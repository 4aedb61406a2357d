//! Inspection and verification of the files of a model.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::FetchedFiles;
use super::safetensors::{self, SafetensorsProblem};
use crate::models::catalog::KnownModel;
use crate::models::files::{FileError, open};
use crate::models::manifest::{ModelForm, ModelManifest};
use crate::models::name::ModelName;

/// Maximum size of `config.json` in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// First bytes of a GGUF file.
const GGUF_MAGIC: [u8; 4] = *b"GGUF";

/// The reason why files are not a usable model.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// A file is missing or cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of a file is invalid.
    #[error("{path} is invalid: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

/// The properties in a manifest, apart from the files.
#[derive(Clone, Debug)]
pub(super) struct ModelTraits {
    pub(super) form: ModelForm,
    pub(super) dimension: usize,
    pub(super) max_tokens: usize,
    pub(super) query_prefix: String,
    pub(super) passage_prefix: String,
    pub(super) licence: String,
}

impl ModelTraits {
    /// Returns the properties of a known model.
    pub(super) fn of(known: &KnownModel) -> Self {
        Self {
            form: known.form,
            dimension: known.dimension,
            max_tokens: known.max_tokens,
            query_prefix: known.query_prefix.into(),
            passage_prefix: known.passage_prefix.into(),
            licence: known.licence.into(),
        }
    }

    /// Reads the form and the sizes of a model from its `config.json`. The maximum number of tokens
    /// comes from `sentence_bert_config.json`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`ContentsError`] when the files cannot be read, or describe an unsupported model.
    pub(super) fn read(directory: &Path) -> Result<Self, ContentsError> {
        let path = directory.join("config.json");
        let config: BertConfig = json(&path)?;
        let form = config.form(&path)?;
        refuse_other_pooling(directory)?;
        // Positions of XLM-RoBERTa start after the position of padding.
        let n_unused = match form {
            ModelForm::XlmRoberta => config.pad_token_id.unwrap_or(1).saturating_add(1),
            _ => 0,
        };
        let n_positions = config.max_position_embeddings.saturating_sub(n_unused);
        let trained = directory.join("sentence_bert_config.json");
        let n_trained = if trained.exists() {
            json::<SentenceBertConfig>(&trained)?.max_seq_length
        } else {
            None
        };
        Ok(Self {
            form,
            dimension: config.hidden_size,
            max_tokens: n_trained.unwrap_or(n_positions).min(n_positions),
            query_prefix: String::new(),
            passage_prefix: String::new(),
            licence: "NOASSERTION".into(),
        })
    }

    /// Returns the properties in a manifest.
    pub(super) fn of_manifest(manifest: &ModelManifest) -> Self {
        Self {
            form: manifest.form,
            dimension: manifest.dimension,
            max_tokens: manifest.max_tokens,
            query_prefix: manifest.query_prefix.clone(),
            passage_prefix: manifest.passage_prefix.clone(),
            licence: manifest.licence.clone(),
        }
    }

    /// Returns the manifest of a model with these properties.
    pub(super) fn manifest(self, name: &ModelName, fetched: FetchedFiles) -> ModelManifest {
        ModelManifest {
            name: name.to_string(),
            form: self.form,
            dimension: self.dimension,
            max_tokens: self.max_tokens,
            query_prefix: self.query_prefix,
            passage_prefix: self.passage_prefix,
            licence: self.licence,
            source: fetched.source,
            files: fetched.files,
        }
    }
}

/// Verifies that the files in a directory belong to a model with these properties.
///
/// # Errors
///
/// Returns [`ContentsError`], which names the first missing or invalid file.
pub(super) fn check(directory: &Path, traits: &ModelTraits) -> Result<(), ContentsError> {
    if traits.form == ModelForm::QuantizedBert {
        return check_gguf(&directory.join("model.gguf"));
    }
    let path = directory.join("config.json");
    let config: BertConfig = json(&path)?;
    let form = config.form(&path)?;
    if form != traits.form || config.hidden_size != traits.dimension {
        return Err(ContentsError::Content {
            path,
            reason: format!(
                "it has form {} and dimension {}, expected form {} and dimension {}",
                form.as_str(),
                config.hidden_size,
                traits.form.as_str(),
                traits.dimension
            ),
        });
    }
    let path = directory.join("tokenizer.json");
    let file = BufReader::new(open(&path)?);
    serde_json::from_reader::<_, IgnoredAny>(file).map_err(not_json(&path))?;
    let path = directory.join("model.safetensors");
    safetensors::check(&path).map_err(|problem| match problem {
        SafetensorsProblem::File(error) => error.into(),
        SafetensorsProblem::Content(reason) => ContentsError::Content { path, reason },
    })
}

fn check_gguf(path: &Path) -> Result<(), ContentsError> {
    let mut magic = [0; 4];
    open(path)?
        .read_exact(&mut magic)
        .map_err(FileError::io(path))?;
    if magic == GGUF_MAGIC {
        Ok(())
    } else {
        Err(ContentsError::Content {
            path: path.to_owned(),
            reason: "it is not a GGUF file".into(),
        })
    }
}

/// The used members of `config.json`.
#[derive(Debug, Deserialize)]
struct BertConfig {
    model_type: String,
    hidden_size: usize,
    max_position_embeddings: usize,
    pad_token_id: Option<usize>,
}

impl BertConfig {
    fn form(&self, path: &Path) -> Result<ModelForm, ContentsError> {
        match self.model_type.as_str() {
            "bert" => Ok(ModelForm::Bert),
            "xlm-roberta" => Ok(ModelForm::XlmRoberta),
            other => Err(ContentsError::Content {
                path: path.to_owned(),
                reason: format!(
                    "model type {other:?} is not supported, only bert and xlm-roberta are"
                ),
            }),
        }
    }
}

/// The used members of `sentence_bert_config.json`.
#[derive(Debug, Deserialize)]
struct SentenceBertConfig {
    max_seq_length: Option<usize>,
}

/// Prefix of the members of `1_Pooling/config.json` for pooling modes.
const POOLING: &str = "pooling_mode_";
/// The supported pooling mode.
const MEAN: &str = "pooling_mode_mean_tokens";

/// Refuses a model with another pooling than the mean over its tokens, because the encoders always
/// use the mean.
fn refuse_other_pooling(directory: &Path) -> Result<(), ContentsError> {
    let path = directory.join("1_Pooling").join("config.json");
    if !path.exists() {
        return Ok(());
    }
    let members: BTreeMap<String, Value> = json(&path)?;
    let is_chosen = |name: &str| members.get(name) == Some(&Value::Bool(true));
    let mut others = members.keys().filter(|name| name.starts_with(POOLING));
    let other = others.find(|name| *name != MEAN && is_chosen(name));
    let reason = match other {
        Some(other) => format!("its pooling is {other}"),
        None if !is_chosen(MEAN) => format!("its pooling is not {MEAN}"),
        None => return Ok(()),
    };
    Err(ContentsError::Content {
        path,
        reason: format!("{reason}: only models with mean pooling are supported"),
    })
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, ContentsError> {
    let file: File = open(path)?;
    serde_json::from_reader(BufReader::new(file.take(MAX_CONFIG_BYTES))).map_err(not_json(path))
}

fn not_json(path: &Path) -> impl FnOnce(serde_json::Error) -> ContentsError {
    let path = path.to_owned();
    move |error| ContentsError::Content {
        path,
        reason: error.to_string(),
    }
}
