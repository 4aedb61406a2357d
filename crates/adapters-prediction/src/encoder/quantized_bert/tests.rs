use std::fs;

use super::*;
use crate::models::convert::gguf_from_e5s1;
use crate::models::manifest::ModelForm;

mod damage;
mod published_weights;
mod reference;

/// Returns the manifest of a model with this dimension.
fn manifest(dimension: usize) -> ModelManifest {
    ModelManifest {
        name: "sample".to_owned(),
        form: ModelForm::QuantizedBert,
        dimension,
        max_tokens: 512,
        query_prefix: "query: ".to_owned(),
        passage_prefix: "passage: ".to_owned(),
        licence: "MIT".to_owned(),
        source: String::new(),
        files: Vec::new(),
    }
}

/// Returns a directory with the GGUF file of a packed model.
fn directory_of(packed: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("packed.bin");
    fs::write(&source, packed).unwrap();
    gguf_from_e5s1(&source, &directory.path().join(GGUF_FILE)).unwrap();
    directory
}
