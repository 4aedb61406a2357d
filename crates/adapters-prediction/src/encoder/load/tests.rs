use std::fs;

use super::*;

fn manifest(form: ModelForm, files: &[(&str, u64)]) -> ModelManifest {
    ModelManifest {
        name: "m".to_owned(),
        form,
        dimension: 8,
        max_tokens: 8,
        query_prefix: String::new(),
        passage_prefix: String::new(),
        licence: "MIT".to_owned(),
        source: String::new(),
        files: files
            .iter()
            .map(|(name, bytes)| ModelFile {
                name: (*name).to_owned(),
                bytes: *bytes,
                sha256: "00".repeat(32),
            })
            .collect(),
    }
}

#[test]
fn a_manifest_without_weights_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = manifest(ModelForm::QuantizedBert, &[("model.safetensors", 1)]);
    let error = load(directory.path(), &manifest).unwrap_err();
    assert!(
        error.to_string().ends_with("it does not list model.gguf"),
        "{error}"
    );
}

#[test]
fn a_file_of_another_length_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("model.safetensors"), "123").unwrap();
    let manifest = manifest(ModelForm::Bert, &[("model.safetensors", 4)]);
    let error = load(directory.path(), &manifest).unwrap_err().to_string();
    assert!(error.contains("model.safetensors is invalid"), "{error}");
    assert!(
        error.ends_with("it has 3 bytes, but 4 in its manifest"),
        "{error}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = manifest(ModelForm::XlmRoberta, &[("model.safetensors", 4)]);
    let error = load(directory.path(), &manifest).unwrap_err().to_string();
    assert!(error.ends_with("model.safetensors"), "{error}");
}
