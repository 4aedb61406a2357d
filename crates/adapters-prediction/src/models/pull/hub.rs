//! Models from the Hugging Face hub, or from its cache on this machine.
//!
//! What is downloaded goes into the staging directory and not into the cache: a model would lie on
//! the disk twice otherwise.

mod cache;
mod client;
mod settings;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::PathBuf;

pub(super) use cache::newest_snapshot;
pub use settings::HubSettings;

use super::{Fetched, Halted};
use crate::models::files::{Expected, FileError, copy, examine, make_private};
use crate::models::job::{Interrupted, Job};
use crate::models::manifest::is_sha256;
use crate::models::shelf::Staging;

/// Why the hub does not give a model.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The variable `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT is no http or https address: {0:?}")]
    Endpoint(String),
    /// The hub may not be asked, and its cache does not have the model.
    #[error("HF_HUB_OFFLINE is set, and the cache {cache} does not have {repository}")]
    Offline {
        /// The repository.
        repository: String,
        /// The cache, or that there is none.
        cache: String,
    },
    /// The hub does not answer, or fails.
    #[error("the hub cannot be reached for {what}")]
    Unreachable {
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The hub does not have a file.
    #[error("the hub has no {0}")]
    Missing(String),
    /// The hub does not hand out the repository.
    #[error(
        "the hub refuses {what} with HTTP status {status}: a repository that is not there, or one \
         that asks for a token in HF_TOKEN"
    )]
    Refused {
        /// What was asked for.
        what: String,
        /// The status of its answer.
        status: u16,
    },
    /// What answers is no hub, or names things that cannot be names.
    #[error("the answer for {what} is none of a hub: {reason}")]
    Odd {
        /// What was asked for.
        what: String,
        /// What is odd about it.
        reason: String,
    },
    /// A download broke off; what came is kept for the next pull.
    #[error(
        "the download of {what} broke off at {done} of {total} bytes, which the next pull takes up"
    )]
    BrokenOff {
        /// The file.
        what: String,
        /// How much is there, in bytes.
        done: u64,
        /// Its length, in bytes.
        total: u64,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A file cannot be put in its place, or is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// The pull was stopped.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl HubError {
    /// Returns whether the model may be had elsewhere: the hub is not there for us, or does not
    /// have it.
    pub(super) fn is_absence(&self) -> bool {
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

    /// Returns the error of work that has no result.
    fn halted(what: &str, halted: Halted) -> Self {
        match halted {
            Halted::Interrupted(interrupted) => interrupted.into(),
            other => Self::Unreachable {
                what: what.to_owned(),
                source: other.into(),
            },
        }
    }
}

/// A file of a repository on this machine.
#[derive(Debug)]
struct Local {
    name: String,
    path: PathBuf,
    /// What the hub calls its content: the SHA-256 of large files.
    etag: String,
}

/// Brings files of a repository into the ready directory.
pub(super) fn fetch(
    repository: &str,
    names: &[&str],
    staging: &Staging,
    settings: &HubSettings,
    job: &Job,
) -> Result<Fetched, HubError> {
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
        placed.push(examine(&target, expected(&file), job)?);
    }
    Ok(Fetched {
        files: placed,
        source: format!("{}{commit}", source_of(repository)),
    })
}

/// Returns how the sources of all models begin that come from a repository.
pub(super) fn source_of(repository: &str) -> String {
    format!("hub {repository} at ")
}

/// Copies the files from the cache of the hub, when all of them are there and sound.
fn from_cache(
    repository: &str,
    names: &[&str],
    staging: &Staging,
    settings: &HubSettings,
    job: &Job,
) -> Result<Option<Fetched>, HubError> {
    let Some((files, commit)) = cache::find(settings.cache.as_deref(), repository, names) else {
        return Ok(None);
    };
    let mut copied = Vec::new();
    for file in files {
        let target = staging.ready().join(&file.name);
        match copy(&file.path, &target, expected(&file), job) {
            Ok(copy) => copied.push(copy),
            Err(FileError::Interrupted(interrupted)) => return Err(interrupted.into()),
            Err(error) => {
                let error = crate::models::with_causes(&error);
                job.say(&format!("the cache of the hub is not used: {error}"));
                return Ok(None);
            }
        }
    }
    Ok(Some(Fetched {
        files: copied,
        source: format!(
            "{}{commit}, from the cache of the hub",
            source_of(repository)
        ),
    }))
}

fn expected(file: &Local) -> Expected<'_> {
    Expected {
        bytes: None,
        sha256: is_sha256(&file.etag).then_some(file.etag.as_str()),
    }
}
