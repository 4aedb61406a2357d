//! Models from the Hugging Face hub, or from its local cache.
//!
//! Downloads go into the staging directory and not into the cache, which would store each model
//! twice.

mod cache;
mod client;
mod settings;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::PathBuf;

pub(super) use cache::newest_snapshot;
pub use settings::HubSettings;

use super::{FetchedFiles, HaltReason};
use crate::models::files::{FileError, FileExpectation, copy, make_private, verify};
use crate::models::job::{Interruption, Job};
use crate::models::manifest::is_sha256;
use crate::models::store::Staging;

/// The reason why the hub did not provide a model.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The variable `HF_ENDPOINT` is not a URL.
    #[error("HF_ENDPOINT is not an http or https address: {0:?}")]
    Endpoint(String),
    /// Offline mode is on, and the cache does not have the model.
    #[error("HF_HUB_OFFLINE is set, but the cache {cache} does not have {repository}")]
    Offline {
        /// The repository.
        repository: String,
        /// Path of the cache, or a note that there is none.
        cache: String,
    },
    /// The hub cannot be reached, or failed.
    #[error("failed to reach the hub for {what}")]
    Unreachable {
        /// The requested item.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The hub does not have a file.
    #[error("the hub has no {0}")]
    Missing(String),
    /// The hub refuses access to the repository.
    #[error(
        "the hub refused {what} with HTTP status {status}: the repository does not exist, or \
         needs a token in HF_TOKEN"
    )]
    Refused {
        /// The requested item.
        what: String,
        /// HTTP status.
        status: u16,
    },
    /// The response is not from a hub, or contains invalid names.
    #[error("invalid answer of the hub for {what}: {reason}")]
    Odd {
        /// The requested item.
        what: String,
        /// The problem.
        reason: String,
    },
    /// A download was interrupted. The partial file is kept for the next pull.
    #[error(
        "the download of {what} stopped at {done} of {total} bytes; the next pull continues it"
    )]
    BrokenOff {
        /// The file.
        what: String,
        /// Downloaded bytes.
        done: u64,
        /// Size of the file in bytes.
        total: u64,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A file cannot be read or written, or is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// The job was cancelled.
    #[error(transparent)]
    Interrupted(#[from] Interruption),
}

impl HubError {
    /// Returns whether another source may have the model, because the hub lacks it or is not
    /// available.
    pub(super) fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Offline { .. }
                | Self::Unreachable { .. }
                | Self::Missing(_)
                | Self::Refused { .. }
                | Self::Odd { .. }
                | Self::BrokenOff { .. }
        )
    }

    /// Returns the error for an unfinished task.
    fn from_halted(what: &str, halted: HaltReason) -> Self {
        match halted {
            HaltReason::Interrupted(interrupted) => interrupted.into(),
            other => Self::Unreachable {
                what: what.to_owned(),
                source: other.into(),
            },
        }
    }
}

/// A local file of a repository.
#[derive(Debug)]
struct LocalFile {
    name: String,
    path: PathBuf,
    /// `ETag` of the content. For large files it is the SHA-256.
    etag: String,
}

/// Fetches files of a repository into the ready directory.
pub(super) fn fetch(
    repository: &str,
    names: &[&str],
    staging: &Staging,
    settings: &HubSettings,
    job: &Job,
) -> Result<FetchedFiles, HubError> {
    if let Some(fetched) = from_cache(repository, names, staging, settings, job)? {
        return Ok(fetched);
    }
    if settings.is_offline {
        let cache = settings.cache.as_ref();
        return Err(HubError::Offline {
            repository: repository.to_owned(),
            cache: cache.map_or("(none)".into(), |path| path.display().to_string()),
        });
    }
    let client = client::Client::new(repository, &staging.downloads(), settings, job)?;
    let (files, commit) = client.fetch(names)?;
    let mut placed = Vec::new();
    for file in files {
        let target = staging.ready().join(&file.name);
        std::fs::rename(&file.path, &target).map_err(FileError::io(&target))?;
        make_private(&target)?;
        placed.push(verify(&target, expectation_of(&file), job)?);
    }
    Ok(FetchedFiles {
        files: placed,
        source: format!("{}{commit}", source_of(repository)),
    })
}

/// Returns the common prefix of the sources of all models from a repository.
pub(super) fn source_of(repository: &str) -> String {
    format!("hub {repository} at ")
}

/// Copies the files from the cache of the hub, if all of them are there and undamaged.
fn from_cache(
    repository: &str,
    names: &[&str],
    staging: &Staging,
    settings: &HubSettings,
    job: &Job,
) -> Result<Option<FetchedFiles>, HubError> {
    let Some((files, commit)) = cache::find(settings.cache.as_deref(), repository, names) else {
        return Ok(None);
    };
    let mut copied = Vec::new();
    for file in files {
        let target = staging.ready().join(&file.name);
        match copy(&file.path, &target, expectation_of(&file), job) {
            Ok(copy) => copied.push(copy),
            Err(FileError::Interrupted(interrupted)) => return Err(interrupted.into()),
            Err(error) => {
                let error = crate::models::with_causes(&error);
                job.print_line(&format!("skipped the cache of the hub: {error}"));
                return Ok(None);
            }
        }
    }
    Ok(Some(FetchedFiles {
        files: copied,
        source: format!(
            "{}{commit}, from the cache of the hub",
            source_of(repository)
        ),
    }))
}

fn expectation_of(file: &LocalFile) -> FileExpectation<'_> {
    FileExpectation {
        bytes: None,
        sha256: is_sha256(&file.etag).then_some(file.etag.as_str()),
    }
}
