//! Encoders from the configuration section `search.encoder`.

#[cfg(feature = "model")]
mod on_disk;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_ports::encoder::Encoder;
use serde::Deserialize;
use validator::Validate;

#[cfg(feature = "model")]
use self::on_disk::stored_encoder;
use super::{RemoteConfig, RemoteConfigError, RemoteEncoder, StaticEmbedding};
use crate::models::manifest::{ManifestError, ModelManifest};
use crate::models::{ModelName, ModelStore, ModelStoreError};

/// Models in the order in which `auto` looks for them. All known models are in it. Large ones come
/// first, because a user who pulled one wants it to be used. Of the small ones, those come first that
/// find more tools (docs/search.md); `e5-small-v2` was not measured.
const PREFERRED: [&str; 6] = [
    "multilingual-e5-large",
    "multilingual-e5-base",
    "all-MiniLM-L6-v2",
    "multilingual-e5-small",
    "multilingual-e5-small-q4",
    "e5-small-v2",
];

/// The configuration section `search.encoder`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct EncoderConfig {
    /// `auto` for the best pulled model, `none`, `embedded` for the static embedding alone,
    /// `remote` for a server, the name of a model, or the directory of a model.
    #[validate(length(min = 1, max = 4_096, message = "expected 1 to 4096 characters"))]
    pub model: String,
    /// Maximum number of threads that compute vectors. 0 means half of the cores.
    #[validate(range(max = 256, message = "expected a number from 0 to 256"))]
    pub threads: usize,
    /// Timeout for a vector. After it, a search continues without vectors.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// The server, with `model = "remote"`.
    #[validate(nested)]
    pub remote: Option<RemoteConfig>,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self {
            model: "auto".into(),
            threads: 0,
            timeout: Duration::from_millis(500),
            remote: None,
        }
    }
}

/// Encoders, the better one first.
#[derive(Clone, Debug, Default)]
pub struct Encoders {
    /// A model on disk or a server.
    pub model: Option<Arc<dyn Encoder>>,
    /// The static embedding, which is always available and takes almost no time.
    pub embedded: Option<Arc<dyn Encoder>>,
}

/// The reason why a configured encoder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EncoderConfigError {
    /// The model is not stored.
    #[error("there is no model {name} in {directory}: get it with `riglm model pull {name}`")]
    NotThere {
        /// Name of the model.
        name: ModelName,
        /// The directory where it is expected.
        directory: PathBuf,
    },
    /// This build computes no models.
    #[error("this build of riglm has no local models: build it with `--features model`")]
    NotBuilt,
    /// The value is neither the name of a model nor a directory.
    #[error(
        "unknown model {0:?}: expected auto, none, embedded, remote, the name of a model, or a \
         directory"
    )]
    Unknown(String),
    /// The directory is not the directory of a model.
    #[error("failed to use the model in {directory}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        #[source]
        source: ManifestError,
    },
    /// The directory of stored models cannot be read.
    #[error("failed to list the stored models")]
    Shelf(#[from] ModelStoreError),
    /// The model is `remote`, but the section has no server.
    #[error("search.encoder.model is remote, but search.encoder.remote is missing")]
    NoRemote,
    /// The configuration of the server is invalid.
    #[error("invalid search.encoder.remote")]
    Remote(#[from] RemoteConfigError),
}

/// Returns the encoders that the section configures. Models are stored in `data_dir`. No model is
/// loaded yet.
///
/// # Errors
///
/// Returns [`EncoderConfigError`] for a model that is not stored, for any model in a build without
/// the feature `model`, and for an invalid configuration.
pub fn encoders_from(
    config: &EncoderConfig,
    data_dir: &Path,
) -> Result<Encoders, EncoderConfigError> {
    let model: Option<Arc<dyn Encoder>> = match config.model.as_str() {
        "none" => return Ok(Encoders::default()),
        "embedded" => None,
        "remote" => {
            let remote = config.remote.clone().ok_or(EncoderConfigError::NoRemote)?;
            Some(Arc::new(RemoteEncoder::new(remote)?))
        }
        _ => stored_encoder(config, data_dir)?,
    };
    Ok(Encoders {
        model,
        embedded: Some(Arc::new(StaticEmbedding)),
    })
}

/// Returns no encoder for `auto`, and refuses every model: this build computes none.
#[cfg(not(feature = "model"))]
fn stored_encoder(
    config: &EncoderConfig,
    _data_dir: &Path,
) -> Result<Option<Arc<dyn Encoder>>, EncoderConfigError> {
    match config.model.as_str() {
        "auto" => Ok(None),
        _ => Err(EncoderConfigError::NotBuilt),
    }
}

/// Returns the model that `auto` takes from a data directory, with an identity that changes when
/// the model is pulled again. Returns `None` if no known model is stored there, and in a build
/// without the feature `model`.
#[must_use]
pub fn preferred_model(data_dir: &Path) -> Option<PreferredModel> {
    let (name, manifest) = first_stored(&ModelStore::new(data_dir), |_, _| {})?;
    Some(PreferredModel { name, manifest })
}

/// The model that `auto` takes.
#[derive(Clone, Debug, PartialEq)]
pub struct PreferredModel {
    /// Its name.
    pub name: ModelName,
    manifest: ModelManifest,
}

fn first_stored(
    model_store: &ModelStore,
    skipped: impl Fn(&ModelName, &ModelStoreError),
) -> Option<(ModelName, ModelManifest)> {
    if !cfg!(feature = "model") {
        return None;
    }
    PREFERRED.iter().find_map(|name| {
        let name: ModelName = name.parse().ok()?;
        match model_store.find(&name) {
            Ok(manifest) => Some((name, manifest?)),
            Err(error) => {
                skipped(&name, &error);
                None
            }
        }
    })
}

impl fmt::Display for Encoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<&str> = (self.model.iter().chain(&self.embedded))
            .map(|encoder| encoder.model())
            .collect();
        if models.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&models.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::catalog::known_models;

    fn of(model: &str, data_dir: &Path) -> Result<Encoders, EncoderConfigError> {
        let config = EncoderConfig {
            model: model.into(),
            ..EncoderConfig::default()
        };
        encoders_from(&config, data_dir)
    }

    #[test]
    fn the_embedded_encoder_is_used_without_a_model() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(of("none", data.path()).unwrap().to_string(), "none");
        for model in ["auto", "embedded"] {
            let encoders = of(model, data.path()).unwrap();
            assert!(encoders.model.is_none() && encoders.embedded.is_some());
        }
    }

    #[test]
    fn auto_looks_for_every_known_model() {
        let mut preferred = PREFERRED.to_vec();
        preferred.sort_unstable();
        let mut known: Vec<&str> = known_models().iter().map(|model| model.name).collect();
        known.sort_unstable();
        assert_eq!(preferred, known);
    }

    #[cfg(not(feature = "model"))]
    #[test]
    fn a_model_needs_the_feature() {
        let data = tempfile::tempdir().unwrap();
        for model in ["e5-small-v2", data.path().to_str().unwrap()] {
            let error = of(model, data.path()).unwrap_err().to_string();
            assert!(error.contains("--features model"), "{error}");
        }
    }

    #[cfg(feature = "model")]
    #[test]
    fn a_missing_model_is_named_with_the_remedy() {
        let data = tempfile::tempdir().unwrap();
        let error = |model: &str| of(model, data.path()).unwrap_err().to_string();
        assert!(error("e5-small-v2").contains("riglm model pull e5-small-v2"));
        assert!(error("a b").contains("unknown model \"a b\""));
        assert!(error("remote").contains("search.encoder.remote is missing"));
        let empty = data.path().to_str().unwrap();
        assert!(error(empty).contains("failed to use the model in"));
    }
}
