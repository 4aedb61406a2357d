//! Conversion of files of other programs during a pull.

use std::error::Error;
use std::path::{Path, PathBuf};

use super::{FetchedFiles, PullError};
use crate::models::catalog::Conversion;
use crate::models::convert::ConvertError;
use crate::models::convert::gguf_from_e5s1;
use crate::models::convert::safetensors_from_gguf;
use crate::models::files::{FileExpectation, make_private, verify};
use crate::models::job::Job;
use crate::models::manifest::ModelForm;

/// A file could not be converted.
#[derive(Debug, thiserror::Error)]
#[error("failed to convert {path}")]
pub struct ConversionError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// Converts a file in `E5S1` format to the files of a model in `ready`.
///
/// `source` describes the source of the file, for display.
pub(super) fn convert(
    file: &Path,
    ready: &Path,
    conversion: Conversion,
    source: String,
    job: &Job,
) -> Result<FetchedFiles, PullError> {
    job.print_line("converting the weights");
    let failed = |error: ConvertError| ConversionError {
        path: file.to_owned(),
        source: Box::new(error),
    };
    let (form, source) = if conversion == Conversion::Safetensors {
        let gguf = ready.with_file_name("model.gguf");
        gguf_from_e5s1(file, &gguf).map_err(failed)?;
        safetensors_from_gguf(&gguf, ready).map_err(failed)?;
        let source = format!("{source}, the values of its 4-bit weights as 32-bit floats");
        (ModelForm::Bert, source)
    } else {
        gguf_from_e5s1(file, &ready.join("model.gguf")).map_err(failed)?;
        (ModelForm::QuantizedBert, source)
    };
    let mut files = Vec::new();
    for name in form.file_names() {
        let path = ready.join(name);
        make_private(&path)?;
        files.push(verify(&path, FileExpectation::default(), job)?);
    }
    Ok(FetchedFiles { files, source })
}
