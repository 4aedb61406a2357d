//! From the directory of a model to what computes its vectors.

use std::path::Path;

use crate::encoder::model::{ModelError, SentenceModel};
use crate::encoder::{bert, quantized};
use crate::models::manifest::{ModelFile, ModelForm, ModelManifest};

/// Loads a model, whatever its form.
///
/// # Errors
///
/// Returns [`ModelError`] when a file is missing, is not of the length that the manifest says, or
/// does not hold what its form asks for.
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
        ModelForm::QuantizedBert => quantized::load(directory, manifest),
    }
}

/// Returns what the manifest says of the file with the weights, if it lists it.
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

/// A download that ended early is told by its length, whatever its format; digests are for who
/// puts the files there, as they take seconds.
fn check_length(directory: &Path, file: &ModelFile) -> Result<(), ModelError> {
    let path = directory.join(&file.name);
    match path.metadata() {
        Ok(found) if found.len() == file.bytes => Ok(()),
        Ok(found) => Err(ModelError::Content {
            path,
            reason: format!(
                "it has {} bytes, and {} in its manifest",
                found.len(),
                file.bytes
            ),
        }),
        Err(source) => Err(ModelError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests;
