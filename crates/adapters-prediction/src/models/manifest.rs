//! Manifest of a model: its files with their digests, and the properties of its vectors.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use validator::Validate;

use super::files::{FileError, open};
use super::name::is_plain;

/// Name of the manifest in the directory of a model.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// Form of the weights, which determines the encoder that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ModelForm {
    /// BERT in 32-bit floats: `model.safetensors`, `config.json`, `tokenizer.json`.
    Bert,
    /// XLM-RoBERTa in 32-bit floats, with positions from the padding index on. It has the same
    /// files.
    XlmRoberta,
    /// BERT in blocks of 4 or 8 bits: `model.gguf`, which also has the vocabulary and the sizes.
    QuantizedBert,
}

impl ModelForm {
    /// Returns the names of the files of a model of this form, small ones first.
    #[must_use]
    pub fn file_names(self) -> &'static [&'static str] {
        match self {
            Self::Bert | Self::XlmRoberta => {
                &["config.json", "tokenizer.json", "model.safetensors"]
            }
            Self::QuantizedBert => &["model.gguf"],
        }
    }

    /// Returns the name of the form in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Name in the directory of the model.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: String,
}

/// The manifest of a model, `manifest.json` in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ModelManifest {
    /// The configuration name of the model.
    #[validate(length(min = 1, max = 100))]
    pub name: String,
    /// Form of the weights.
    pub form: ModelForm,
    /// Dimension of the vectors.
    #[validate(range(min = 1, max = 8_192))]
    pub dimension: usize,
    /// Maximum number of tokens of a text, including special tokens.
    #[validate(range(min = 8, max = 8_192))]
    pub max_tokens: usize,
    /// Prefix of queries.
    #[serde(default)]
    pub query_prefix: String,
    /// Prefix of texts of tools.
    #[serde(default)]
    pub passage_prefix: String,
    /// Licence of the weights, as an SPDX expression. `NOASSERTION` if unknown.
    pub licence: String,
    /// Source of the files, for display.
    #[serde(default)]
    pub source: String,
    /// The files, without the manifest itself.
    #[validate(length(min = 1))]
    pub files: Vec<ModelFile>,
}

impl ModelManifest {
    /// Reads and checks the manifest in the directory of a model.
    ///
    /// # Errors
    ///
    /// Returns [`ManifestError`] when the manifest cannot be read, is invalid, or names files
    /// outside of its directory.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join(MANIFEST_FILE);
        let failed = |source| ManifestError::Read {
            path: path.clone(),
            source,
        };
        let mut text = String::new();
        let file = open(&path)?;
        file.take(MAX_MANIFEST_BYTES)
            .read_to_string(&mut text)
            .map_err(failed)?;
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| ManifestError::Content {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        manifest.check(&path)?;
        Ok(manifest)
    }

    /// Returns the total size of all files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Checks the values of the manifest at `path`.
    ///
    /// # Errors
    ///
    /// Returns [`ManifestError::Content`] with the first problem.
    pub(crate) fn check(&self, path: &Path) -> Result<(), ManifestError> {
        let wrong = |reason| ManifestError::Content {
            path: path.to_owned(),
            reason,
        };
        self.validate()
            .map_err(|errors| wrong(errors.to_string().replace('\n', "; ")))?;
        if !is_plain(&self.name) {
            let reason = format!("{:?} is not a valid name of a model", self.name);
            return Err(wrong(reason));
        }
        for file in &self.files {
            if !is_plain(&file.name) || file.name == MANIFEST_FILE {
                let reason = format!("{:?} is not a valid name of a file", file.name);
                return Err(wrong(reason));
            }
            if !is_sha256(&file.sha256) {
                let reason = format!("the digest of {} is not a SHA-256", file.name);
                return Err(wrong(reason));
            }
        }
        let is_there = |name: &&&str| self.files.iter().any(|file| file.name == **name);
        match self.form.file_names().iter().find(|name| !is_there(name)) {
            Some(missing) => Err(wrong(format!("{missing} is not among the files"))),
            None => Ok(()),
        }
    }
}

/// Returns whether a text is a SHA-256 in lower-case hexadecimal.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The manifest.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a regular file, or cannot be opened.
    #[error(transparent)]
    Open(#[from] FileError),
    /// The content is invalid.
    #[error("{path} is not a valid model manifest: {reason}")]
    Content {
        /// The manifest.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, sha256: &str) -> String {
        format!(
            r#"{{"name":"m","form":"quantized-bert","dimension":4,"max_tokens":16,"licence":"MIT",
            "files":[{{"name":"{name}","bytes":1,"sha256":"{sha256}"}}]}}"#
        )
    }

    fn read(text: &str) -> Result<ModelManifest, ManifestError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(MANIFEST_FILE), text).unwrap();
        ModelManifest::read(directory.path())
    }

    #[test]
    fn manifests_with_outside_or_missing_files_are_refused() {
        let digest = "0".repeat(64);
        let good = read(&manifest("model.gguf", &digest)).unwrap();
        assert_eq!((good.dimension, good.bytes()), (4, 1));
        for (name, digest, reason) in [
            (
                "../model.gguf",
                digest.as_str(),
                "not a valid name of a file",
            ),
            ("manifest.json", &digest, "not a valid name of a file"),
            ("other.gguf", &digest, "model.gguf is not among"),
            ("model.gguf", "00", "not a SHA-256"),
        ] {
            let error = read(&manifest(name, digest)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(MANIFEST_FILE);
        let is_made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(is_made.unwrap().success());
        let error = ModelManifest::read(directory.path()).unwrap_err();
        let error = crate::models::with_causes(&error);
        assert!(
            error.contains("manifest.json is not a regular file"),
            "{error}"
        );
        let error = read("[]").unwrap_err().to_string();
        assert!(error.contains("not a valid model manifest"), "{error}");
    }

    #[test]
    fn names_of_forms_are_stable() {
        let forms = [
            ModelForm::Bert,
            ModelForm::XlmRoberta,
            ModelForm::QuantizedBert,
        ];
        for (form, name) in forms
            .into_iter()
            .zip(["bert", "xlm-roberta", "quantized-bert"])
        {
            assert_eq!(form.as_str(), name);
            assert_eq!(serde_json::to_value(form).unwrap(), name);
        }
    }
}
