//! What a model is: its files with their digests, and how its vectors are made.

use serde::{Deserialize, Serialize};
use validator::Validate;

/// The form of the weights, which names the program that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelForm {
    /// BERT in 32-bit floats: `model.safetensors`, `config.json`, `tokenizer.json`.
    Bert,
    /// XLM-RoBERTa in 32-bit floats, with positions from the padding index on: the same files.
    XlmRoberta,
    /// BERT in blocks of 4 or 8 bits: `model.gguf`, which has the vocabulary and the sizes too.
    QuantizedBert,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the directory of the model.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// The manifest of a model, `manifest.json` in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ModelManifest {
    /// The name under which the model is configured.
    #[validate(length(min = 1, max = 100))]
    pub name: String,
    /// The form of its weights.
    pub form: ModelForm,
    /// The dimension of its vectors.
    #[validate(range(min = 1, max = 8_192))]
    pub dimension: usize,
    /// The most tokens that it reads of a text, special ones included.
    #[validate(range(min = 8, max = 8_192))]
    pub max_tokens: usize,
    /// What is put before queries.
    #[serde(default)]
    pub query_prefix: String,
    /// What is put before the texts of tools.
    #[serde(default)]
    pub passage_prefix: String,
    /// The licence of the weights, as an SPDX expression.
    pub licence: String,
    /// Where the files came from, for people.
    #[serde(default)]
    pub source: String,
    /// The files, without the manifest itself.
    #[validate(length(min = 1))]
    pub files: Vec<ModelFile>,
}
