//! Loading of a model from its directory.

use std::path::Path;

use crate::encoder::model::{ModelError, SentenceModel};
use crate::encoder::{bert, quantized_bert};
use crate::models::manifest::{ModelFile, ModelForm, ModelManifest};

/// Loads a model of any form.
///
/// # Errors
///
/// Returns [`ModelError`] when a file is missing, has another length than the manifest says, or has
/// content that does not match the form.
pub(crate) fn load(
    directory: &Path,
    manifest: &ModelManifest,
) -> Result<Box<dyn SentenceModel>, ModelError> {
    if weights(manifest).is_none() {
        return Err(ModelError::Content {
            path: directory.join("manifest.json"),
            reason: format!("it does not list {}", weights_name(manifest.form)),
        });
    }
    for file in &manifest.files {
        check_length(directory, file)?;
    }
    match manifest.form {
        ModelForm::Bert | ModelForm::XlmRoberta => bert::load(directory, manifest),
        ModelForm::QuantizedBert => quantized_bert::load(directory, manifest),
    }
}

/// Returns the manifest's entry of the file with the weights, if there is one.
pub(crate) fn weights(manifest: &ModelManifest) -> Option<&ModelFile> {
    let name = weights_name(manifest.form);
    manifest.files.iter().find(|file| file.name == name)
}

fn weights_name(form: ModelForm) -> &'static str {
    match form {
        ModelForm::Bert | ModelForm::XlmRoberta => "model.safetensors",
        ModelForm::QuantizedBert => "model.gguf",
    }
}

// The length detects an incomplete download in any format. Digests are checked only when files are
// added, because that takes seconds.
fn check_length(directory: &Path, file: &ModelFile) -> Result<(), ModelError> {
    let path = directory.join(&file.name);
    match path.metadata() {
        Ok(found) if found.len() == file.bytes => Ok(()),
        Ok(found) => Err(ModelError::Content {
            path,
            reason: format!(
                "it has {} bytes, but {} in its manifest",
                found.len(),
                file.bytes
            ),
        }),
        Err(source) => Err(ModelError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests;
