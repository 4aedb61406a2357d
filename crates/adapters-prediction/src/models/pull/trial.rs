//! Trial of a model before it is installed: loads it and computes one vector.

use std::path::Path;

use super::ContentsError;
use crate::encoder::{ModelError, load};
use crate::models::files::FileError;
use crate::models::manifest::{ModelForm, ModelManifest};

/// Text of the trial. Its words, digits and punctuation have tokens in any vocabulary, or the
/// unknown token.
const TEXT: &str = "Sends a message to 2 people.";

/// Loads the model in `ready` and computes a vector.
///
/// # Errors
///
/// Returns [`ContentsError`], with the file and the reason, when the model cannot be loaded, or
/// when its vector does not have the manifest's dimension or is not finite.
pub(super) fn run(ready: &Path, manifest: &ModelManifest) -> Result<(), ContentsError> {
    let weights = || {
        let name = match manifest.form {
            ModelForm::Bert | ModelForm::XlmRoberta => "model.safetensors",
            ModelForm::QuantizedBert => "model.gguf",
        };
        ready.join(name)
    };
    let wrong = |reason: String| ContentsError::Content {
        path: weights(),
        reason,
    };
    let failed = |error: ModelError| match error {
        ModelError::Read { path, source } => FileError::Io { path, source }.into(),
        ModelError::Content { path, reason } => ContentsError::Content { path, reason },
        ModelError::Compute(source) => wrong(crate::models::with_causes(&*source)),
    };
    let mut model = load(ready, manifest).map_err(failed)?;
    let text = format!("{}{TEXT}", manifest.passage_prefix);
    let vector = model.encode(&text).map_err(failed)?;
    if vector.len() != manifest.dimension || !vector.iter().all(|value| value.is_finite()) {
        return Err(wrong(format!(
            "it does not compute a finite vector of dimension {}",
            manifest.dimension
        )));
    }
    Ok(())
}
