//! Downloads from the hub: reads the metadata of each file first, then downloads it or resumes an
//! earlier download.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use secrecy::ExposeSecret as _;
use url::Url;

use super::{HubError, HubSettings, LocalFile, expectation_of};
use crate::models::files::{FileError, create_directory, verify};
use crate::models::job::Job;
use crate::models::name::is_plain;
use crate::models::pull::watch::{Pulse, run_watched};

/// Maximum number of attempts of a download, as long as each makes progress.
const ATTEMPTS: u32 = 5;

/// Maximum size of a file in bytes.
const MAX_BYTES: u64 = 16 << 30;

/// Metadata of a file on the hub.
#[derive(Debug)]
struct RemoteFile {
    name: String,
    commit: String,
    etag: String,
    bytes: u64,
}

/// Downloads files of one repository.
#[derive(Debug)]
pub(super) struct Client<'a> {
    api: Api,
    cache: Cache,
    repository: &'a str,
    patience: Duration,
    job: &'a Job,
}

impl<'a> Client<'a> {
    /// Returns a client that downloads into a directory.
    pub(super) fn new(
        repository: &'a str,
        downloads: &Path,
        settings: &HubSettings,
        job: &'a Job,
    ) -> Result<Self, HubError> {
        let directory = downloads.join("hub");
        create_directory(&directory)?;
        let cache = Cache::new(directory);
        let token = settings.token.as_ref();
        let mut builder = ApiBuilder::from_cache(cache.clone())
            .with_progress(false)
            .with_user_agent("riglm", env!("CARGO_PKG_VERSION"))
            .with_token(token.map(|token| token.expose_secret().to_owned()));
        if let Some(endpoint) = &settings.endpoint {
            let url = Url::parse(endpoint);
            if !url.is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host()) {
                return Err(HubError::Endpoint(endpoint.clone()));
            }
            builder = builder.with_endpoint(endpoint.clone());
        }
        let api = builder
            .build()
            .map_err(|error| unreachable(repository, error))?;
        Ok(Self {
            api,
            cache,
            repository,
            patience: settings.patience,
            job,
        })
    }

    /// Downloads files, all of the present commit of the main branch, and returns them with the
    /// commit.
    pub(super) fn fetch(&self, names: &[&str]) -> Result<(Vec<LocalFile>, String), HubError> {
        let mut revision = "main".to_owned();
        let mut files = Vec::new();
        for name in names {
            let remote = self.metadata_of(&revision, name)?;
            revision.clone_from(&remote.commit);
            files.push(remote);
        }
        let mut local = Vec::new();
        for remote in &files {
            local.push(self.download_verified(remote)?);
        }
        Ok((local, revision))
    }

    fn repo(&self, revision: &str) -> Repo {
        let repository = self.repository.to_owned();
        Repo::with_revision(repository, RepoType::Model, revision.to_owned())
    }

    /// Reads the metadata of a file.
    fn metadata_of(&self, revision: &str, name: &str) -> Result<RemoteFile, HubError> {
        let what = format!("{}/{name}", self.repository);
        let api = self.api.clone();
        let url = api.repo(self.repo(revision)).url(name);
        let work = move || api.metadata(&url);
        let metadata = run_watched(self.job, self.patience, &Pulse::default(), work, |_| ())
            .map_err(|halted| HubError::from_halted(&what, halted))?
            .map_err(|error| refusal(&what, error))?;
        let remote = RemoteFile {
            name: name.to_owned(),
            commit: metadata.commit_hash().to_owned(),
            etag: metadata.etag().to_owned(),
            bytes: metadata.size() as u64,
        };
        // Both become names of local files, so they must be safe.
        let etag = remote.etag.strip_prefix("W/").unwrap_or(&remote.etag);
        let reason = if !is_plain(etag) || !is_plain(&remote.commit) {
            "it has an invalid name of a content or a commit"
        } else if remote.bytes > MAX_BYTES {
            "the file is larger than any model"
        } else {
            return Ok(remote);
        };
        Err(HubError::Odd {
            what,
            reason: reason.into(),
        })
    }

    /// Downloads a file and checks its digest, if the hub states one. A resumed download that is
    /// damaged is repeated once from the start.
    fn download_verified(&self, remote: &RemoteFile) -> Result<LocalFile, HubError> {
        let (local, was_taken_up) = self.download(remote)?;
        match verify(&local.path, expectation_of(&local), self.job) {
            Ok(_) => Ok(local),
            Err(error) if error.is_damage() => {
                remove(&local.path)?;
                if !was_taken_up {
                    return Err(error.into());
                }
                self.job
                    .print_line(&format!("{} is damaged: downloading it again", remote.name));
                let (local, _) = self.download(remote)?;
                if let Err(error) = verify(&local.path, expectation_of(&local), self.job) {
                    remove(&local.path)?;
                    return Err(error.into());
                }
                Ok(local)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Downloads a file. Returns it, and whether an earlier download was resumed.
    fn download(&self, remote: &RemoteFile) -> Result<(LocalFile, bool), HubError> {
        let blob = self
            .cache
            .repo(self.repo(&remote.commit))
            .blob_path(&remote.etag);
        let part = blob.with_extension("part");
        let local = LocalFile {
            name: remote.name.clone(),
            path: blob.clone(),
            etag: remote.etag.clone(),
        };
        let at_first = length(&part);
        let mut attempt = 0;
        let mut is_anew = false;
        loop {
            self.restore_state(remote, &blob, &part)?;
            if length(&blob) == remote.bytes && blob.is_file() {
                return Ok((local, at_first > 0 || attempt > 0));
            }
            let before = length(&part);
            let error = match self.attempt(remote) {
                Ok(()) if length(&blob) == remote.bytes => continue,
                // The hub has sent the whole file in response to a range request.
                Ok(()) if length(&blob) > remote.bytes && !is_anew => {
                    is_anew = true;
                    continue;
                }
                Ok(()) => "the connection was closed".into(),
                Err(AttemptError::Fatal(error)) => return Err(error),
                Err(AttemptError::Broken(error)) => error,
            };
            self.restore_state(remote, &blob, &part)?;
            attempt += 1;
            let done = length(&part);
            if attempt == ATTEMPTS || done <= before {
                return Err(HubError::BrokenOff {
                    what: format!("{}/{}", self.repository, remote.name),
                    done,
                    total: remote.bytes,
                    source: error,
                });
            }
        }
    }

    /// Restores a state from which the client can continue: a file is complete, or is marked as
    /// partial.
    fn restore_state(&self, remote: &RemoteFile, blob: &Path, part: &Path) -> Result<(), HubError> {
        let (of_blob, of_part) = (length(blob), length(part));
        if of_blob > remote.bytes {
            remove(blob)?;
        } else if blob.is_file() && of_blob < remote.bytes {
            fs::rename(blob, part).map_err(FileError::io(part))?;
        } else if of_part > remote.bytes {
            remove(part)?;
        } else if part.is_file() && of_part == remote.bytes {
            fs::rename(part, blob).map_err(FileError::io(blob))?;
        }
        // A dangling link would prevent the client from creating a new one.
        let snapshot = self
            .cache
            .repo(self.repo(&remote.commit))
            .pointer_path(&remote.commit);
        let link = snapshot.join(&remote.name);
        if link.is_symlink() && !link.exists() {
            remove(&link)?;
        }
        Ok(())
    }

    fn attempt(&self, remote: &RemoteFile) -> Result<(), AttemptError> {
        let what = format!("{}/{}", self.repository, remote.name);
        let pulse = Pulse::default();
        let gauge = Gauge(pulse.clone());
        let repo = self.api.repo(self.repo(&remote.commit));
        let name = remote.name.clone();
        let work = move || repo.download_with_progress(&name, gauge);
        let look = |done| self.job.progress(&remote.name, done, Some(remote.bytes));
        run_watched(self.job, self.patience, &pulse, work, look)
            .map_err(|halted| match HubError::from_halted(&what, halted) {
                HubError::Unreachable { source, .. } => AttemptError::Broken(source),
                other => AttemptError::Fatal(other),
            })?
            .map_err(|error| match refusal(&what, error) {
                HubError::Unreachable { source, .. } => AttemptError::Broken(source),
                other => AttemptError::Fatal(other),
            })?;
        self.job.progress_ended();
        Ok(())
    }
}

/// The reason why an attempt failed.
enum AttemptError {
    /// The connection was lost, and the download can be resumed.
    Broken(Box<dyn Error + Send + Sync>),
    /// Another attempt would fail too.
    Fatal(HubError),
}

/// Counts received bytes.
struct Gauge(Pulse);

impl Progress for Gauge {
    fn init(&mut self, _size: usize, _filename: &str) {
        self.0.set(0);
    }

    fn update(&mut self, size: usize) {
        self.0.add(size as u64);
    }

    fn finish(&mut self) {}
}

fn unreachable(what: &str, error: ApiError) -> HubError {
    HubError::Unreachable {
        what: what.to_owned(),
        source: error.into(),
    }
}

/// Maps an error of the client: the hub cannot be reached, lacks the file, refuses, or sends
/// invalid metadata.
fn refusal(what: &str, error: ApiError) -> HubError {
    let what = what.to_owned();
    match error {
        ApiError::RequestError(error) => match *error {
            ureq::Error::StatusCode(404) => HubError::Missing(what),
            ureq::Error::StatusCode(status @ (401 | 403)) => HubError::Refused { what, status },
            other => HubError::Unreachable {
                what,
                source: other.into(),
            },
        },
        ApiError::MissingHeader(_) | ApiError::InvalidHeader(_) | ApiError::ParseIntError(_) => {
            HubError::Odd {
                what,
                reason: error.to_string(),
            }
        }
        ApiError::IoError(error) => HubError::Unreachable {
            what,
            source: error.into(),
        },
        other => unreachable(&what, other),
    }
}

/// Returns the size of a file in bytes, or 0 if there is none.
fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

fn remove(path: &Path) -> Result<(), FileError> {
    fs::remove_file(path).map_err(FileError::io(path))
}
