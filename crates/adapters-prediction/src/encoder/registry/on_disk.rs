//! Encoders of models on disk.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riglm_ports::encoder::Encoder;

use super::{EncoderConfig, EncoderConfigError, first_stored};
use crate::encoder::LocalEncoder;
use crate::models::manifest::ModelManifest;
use crate::models::{ModelName, ModelStore};

/// Returns the encoder of the configured model, or of the best stored one if that is `auto`. Returns
/// `None` if `auto` finds none.
///
/// # Errors
///
/// Returns [`EncoderConfigError`] for a model that is not there.
pub(super) fn stored_encoder(
    config: &EncoderConfig,
    data_dir: &Path,
) -> Result<Option<Arc<dyn Encoder>>, EncoderConfigError> {
    let model_store = ModelStore::new(data_dir);
    let found = match config.model.as_str() {
        "auto" => find_preferred(&model_store),
        named => Some(model_named(named, &model_store)?),
    };
    let threads = threads(config.threads);
    Ok(found.map(|(directory, manifest)| local(directory, manifest, threads)))
}

fn local(directory: PathBuf, manifest: ModelManifest, threads: NonZeroUsize) -> Arc<dyn Encoder> {
    Arc::new(LocalEncoder::new(directory, manifest, threads))
}

/// Returns the directory and the manifest of the first preferred model that is stored and valid.
fn find_preferred(model_store: &ModelStore) -> Option<(PathBuf, ModelManifest)> {
    let (name, manifest) = first_stored(model_store, |name, error| {
        let error = error as &(dyn std::error::Error + 'static);
        tracing::warn!(error, "skipped model {name}");
    })?;
    Some((model_store.directory_of(&name), manifest))
}

/// Returns the directory and the manifest of a model, by its name or by its directory.
fn model_named(
    named: &str,
    model_store: &ModelStore,
) -> Result<(PathBuf, ModelManifest), EncoderConfigError> {
    if let Ok(name) = named.parse::<ModelName>()
        && let Some(manifest) = model_store.find(&name)?
    {
        return Ok((model_store.directory_of(&name), manifest));
    }
    let directory = PathBuf::from(named);
    if directory.is_dir() {
        let manifest = ModelManifest::read(&directory);
        let manifest = manifest.map_err(|source| EncoderConfigError::Directory {
            directory: directory.clone(),
            source,
        })?;
        return Ok((directory, manifest));
    }
    match named.parse::<ModelName>() {
        Ok(name) => Err(EncoderConfigError::NotThere {
            directory: model_store.directory_of(&name),
            name,
        }),
        Err(_) => Err(EncoderConfigError::Unknown(named.into())),
    }
}

/// Returns the number of threads. Half of the cores stay free for the proxy and the servers that it
/// runs.
fn threads(configured: usize) -> NonZeroUsize {
    let half = || {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
    };
    NonZeroUsize::new(configured).unwrap_or_else(half)
}
