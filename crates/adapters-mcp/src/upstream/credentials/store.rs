//! The file in which the tokens for one upstream are kept, and what keeps it to its owner.
//!
//! Several proxies of one person share the file. Whoever renews tokens holds the lock beside it,
//! because a refresh token may serve only once.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long another proxy may take to renew the tokens.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// No token file comes near this size.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialStoreError {
    /// The operating system refused.
    #[error("failed to use the credentials in {}", path.display())]
    Io {
        /// The file or the directory.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// Others than the owner have access.
    #[error("credentials in {} are open to other users: its mode must be {mode:04o}", path.display())]
    Shared {
        /// The file or the directory.
        path: PathBuf,
        /// The mode that it must have.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{} holds no credentials", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("credentials in {} are in use by another process", path.display())]
    Locked {
        /// The file of the lock.
        path: PathBuf,
    },
}

/// Keeps the tokens for one upstream. Clones share the file.
#[derive(Clone)]
pub(super) struct FileCredentialStore {
    directory: PathBuf,
    file_name: String,
    /// The server that the tokens are for; those for another one are not found.
    resource: String,
    /// The secret that came with a registration, until it is written with the tokens.
    registered_secret: Arc<Mutex<Option<SecretString>>>,
}

impl std::fmt::Debug for FileCredentialStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCredentialStore")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    resource: String,
    /// The secret of a client that registered itself.
    pub(super) client_secret: Option<String>,
    pub(super) credentials: StoredCredentials,
}

impl FileCredentialStore {
    /// Returns the store of `upstream`, whose tokens are for `resource`. Nothing is created.
    pub(super) fn new(data_dir: &Path, upstream: &UpstreamName, resource: &str) -> Self {
        Self {
            directory: data_dir.join("credentials"),
            file_name: format!("{}.json", upstream.as_str()),
            resource: resource.to_owned(),
            registered_secret: Arc::default(),
        }
    }

    /// Has the next tokens written together with the secret of the client that gets them.
    pub(super) fn set_registered_secret(&self, secret: Option<SecretString>) {
        let mut place = self
            .registered_secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = secret;
    }

    /// Takes the lock that goes with renewing the tokens; dropping the file gives it back.
    ///
    /// # Errors
    ///
    /// Returns [`CredentialStoreError`] when it cannot be had within a minute.
    pub(super) async fn lock(&self) -> Result<File, CredentialStoreError> {
        let store = self.clone();
        let path = self.directory.join(format!("{}.lock", self.file_name));
        let lock = blocking(move || {
            store.create_directory()?;
            let path = store.directory.join(format!("{}.lock", store.file_name));
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(0o600);
            options.open(&path).map_err(|source| failed(&path, source))
        })
        .await?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(source)) => return Err(failed(&path, source)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(CredentialStoreError::Locked { path });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            }
        }
    }

    /// Returns what is stored for the server; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// Returns [`CredentialStoreError`] for a file that cannot be read, that others can read, or that holds
    /// something else.
    pub(super) async fn read(&self) -> Result<Option<Stored>, CredentialStoreError> {
        let store = self.clone();
        blocking(move || store.read_now()).await
    }

    fn read_now(&self) -> Result<Option<Stored>, CredentialStoreError> {
        let path = self.path();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| failed(&path, source))?,
        };
        check_mode(&self.directory, self.directory.metadata(), 0o700)?;
        check_mode(&path, file.metadata(), 0o600)?;
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES)
            .read_to_end(&mut text)
            .map_err(|source| failed(&path, source))?;
        // The text of a parser's error may repeat what stands in the file.
        let stored: Stored =
            serde_json::from_slice(&text).map_err(|_| CredentialStoreError::Garbled { path })?;
        Ok((stored.resource == self.resource).then_some(stored))
    }

    fn write_now(&self, credentials: StoredCredentials) -> Result<(), CredentialStoreError> {
        self.create_directory()?;
        check_mode(&self.directory, self.directory.metadata(), 0o700)?;
        let registered = self
            .registered_secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned());
        let kept = || {
            let old = self.read_now().ok()??;
            let is_same = old.credentials.client_id == credentials.client_id;
            old.client_secret.filter(|_| is_same)
        };
        let stored = Stored {
            resource: self.resource.clone(),
            client_secret: registered.or_else(kept),
            credentials,
        };
        let path = self.path();
        let text =
            serde_json::to_vec(&stored).map_err(|_| CredentialStoreError::Garbled { path })?;
        // Whoever writes holds the lock, so the name is free but for what a crash left.
        let draft = self.directory.join(format!("{}.new", self.file_name));
        let written = write_new(&draft, &text)
            .and_then(|()| std::fs::rename(&draft, self.path()))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        written.map_err(|source| failed(&draft, source))
    }

    fn create_directory(&self) -> Result<(), CredentialStoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(|source| failed(&self.directory, source))
    }

    fn remove_now(&self) -> Result<(), CredentialStoreError> {
        let path = self.path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| failed(&path, source)),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.file_name)
    }
}

#[async_trait]
impl CredentialStore for FileCredentialStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let stored = self.read().await.map_err(|error| into_auth_error(&error))?;
        Ok(stored.map(|stored| stored.credentials))
    }

    /// Replaces the file in one step. The caller holds the lock.
    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let store = self.clone();
        let written = blocking(move || store.write_now(credentials)).await;
        written.map_err(|error| into_auth_error(&error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let store = self.clone();
        let removed = blocking(move || store.remove_now()).await;
        removed.map_err(|error| into_auth_error(&error))
    }
}

fn into_auth_error(error: &CredentialStoreError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

fn failed(path: &Path, source: io::Error) -> CredentialStoreError {
    CredentialStoreError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Checks that nobody but the owner has access.
fn check_mode(
    path: &Path,
    metadata: io::Result<Metadata>,
    mode: u32,
) -> Result<(), CredentialStoreError> {
    let metadata = metadata.map_err(|source| failed(path, source))?;
    let of_others = metadata.mode() & 0o077;
    if of_others == 0 {
        return Ok(());
    }
    Err(CredentialStoreError::Shared {
        path: path.to_owned(),
        mode,
    })
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Runs file operations where they hold up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CredentialStoreError> + Send + 'static,
) -> Result<T, CredentialStoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(failed(Path::new("."), io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests;
