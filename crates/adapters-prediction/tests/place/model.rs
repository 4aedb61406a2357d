//! Models for tests, from the directory in `RIGLM_TEST_MODELS`.
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be made fails its test"
)]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::{env, fs};

use riglm_adapters_prediction::encoder::LocalEncoder;
use riglm_adapters_prediction::models::manifest::ModelManifest;

/// Returns the directory of a model.
pub(crate) fn directory(name: &str) -> PathBuf {
    let models = env::var_os("RIGLM_TEST_MODELS").expect("RIGLM_TEST_MODELS names a directory");
    PathBuf::from(models).join(name)
}

/// Returns the manifest of a model.
pub(crate) fn manifest(name: &str) -> ModelManifest {
    let manifest = fs::read(directory(name).join("manifest.json")).unwrap();
    serde_json::from_slice(&manifest).unwrap()
}

/// Returns the encoder of a model.
pub(crate) fn encoder(name: &str) -> LocalEncoder {
    LocalEncoder::new(directory(name), manifest(name), NonZeroUsize::MIN)
}
