//! The file with the tokens for one upstream, readable only by its owner.
//!
//! Several proxies of one user share the file. A proxy that renews tokens holds a lock file,
//! because a refresh token may be valid only once.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The time to wait for another proxy that renews the tokens.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// A valid token file is far below this size.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialStoreError {
    /// The operating system reported an error.
    #[error("failed to read or write the credentials in {}", path.display())]
    Io {
        /// The path of the file or the directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Other users have access.
    #[error(
        "credentials in {} are accessible to other users: set the mode to {mode:04o}",
        path.display()
    )]
    Shared {
        /// The path of the file or the directory.
        path: PathBuf,
        /// The required mode.
        mode: u32,
    },
    /// The file does not hold credentials.
    #[error("{} is not a valid credentials file", path.display())]
    Garbled {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("credentials in {} are in use by another process", path.display())]
    Locked {
        /// The path of the lock file.
        path: PathBuf,
    },
}

/// Stores the tokens for one upstream. Clones share the file.
#[derive(Clone)]
pub(super) struct FileCredentialStore {
    directory: PathBuf,
    file_name: String,
    /// The URL of the server that the tokens are for. Tokens for another URL are ignored.
    resource: String,
    /// The secret of a new registration, until it is written with the tokens.
    registered_secret: Arc<Mutex<Option<SecretString>>>,
}

impl std::fmt::Debug for FileCredentialStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCredentialStore")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredFile {
    resource: String,
    /// The secret of a client that registered itself.
    pub(super) client_secret: Option<String>,
    pub(super) credentials: StoredCredentials,
}

impl FileCredentialStore {
    /// Returns the store of `upstream`, with tokens for `resource`. Creates nothing.
    pub(super) fn new(data_dir: &Path, upstream: &UpstreamName, resource: &str) -> Self {
        Self {
            directory: data_dir.join("credentials"),
            file_name: format!("{}.json", upstream.as_str()),
            resource: resource.to_owned(),
            registered_secret: Arc::default(),
        }
    }

    /// Sets the client secret that is written together with the next tokens.
    pub(super) fn set_registered_secret(&self, secret: Option<SecretString>) {
        let mut place = self.registered_secret.lock();
        *place = secret;
    }

    /// Takes the lock for renewing the tokens. Dropping the file releases it.
    ///
    /// # Errors
    ///
    /// Returns [`CredentialStoreError`] when it is not free within a minute.
    pub(super) async fn lock(&self) -> Result<File, CredentialStoreError> {
        let store = self.clone();
        let path = self.directory.join(format!("{}.lock", self.file_name));
        let lock = blocking(move || {
            store.create_directory()?;
            let path = store.directory.join(format!("{}.lock", store.file_name));
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(0o600);
            options
                .open(&path)
                .map_err(|source| io_error(&path, source))
        })
        .await?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(source)) => return Err(io_error(&path, source)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(CredentialStoreError::Locked { path });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            }
        }
    }

    /// Returns the stored credentials for the server; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns [`CredentialStoreError`] for a file that cannot be read, that other users can read,
    /// or that does not hold credentials.
    pub(super) async fn read(&self) -> Result<Option<StoredFile>, CredentialStoreError> {
        let store = self.clone();
        blocking(move || store.read_now()).await
    }

    fn read_now(&self) -> Result<Option<StoredFile>, CredentialStoreError> {
        let path = self.path();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| io_error(&path, source))?,
        };
        check_mode(&self.directory, self.directory.metadata(), 0o700)?;
        check_mode(&path, file.metadata(), 0o600)?;
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES)
            .read_to_end(&mut text)
            .map_err(|source| io_error(&path, source))?;
        // The message of the parser is dropped, because it may contain a part of the file.
        let stored: StoredFile =
            serde_json::from_slice(&text).map_err(|_| CredentialStoreError::Garbled { path })?;
        Ok((stored.resource == self.resource).then_some(stored))
    }

    fn write_now(&self, credentials: StoredCredentials) -> Result<(), CredentialStoreError> {
        self.create_directory()?;
        check_mode(&self.directory, self.directory.metadata(), 0o700)?;
        let registered = self
            .registered_secret
            .lock()
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned());
        // rmcp saves tokens without the secret of the client, so it is carried over for the same
        // client.
        let kept = || {
            let old = self.read_now().ok()??;
            let is_same = old.credentials.client_id == credentials.client_id;
            old.client_secret.filter(|_| is_same)
        };
        let stored = StoredFile {
            resource: self.resource.clone(),
            client_secret: registered.or_else(kept),
            credentials,
        };
        let path = self.path();
        let text =
            serde_json::to_vec(&stored).map_err(|_| CredentialStoreError::Garbled { path })?;
        // The writer holds the lock, so only a crash can have left a file with this name.
        let draft = self.directory.join(format!("{}.new", self.file_name));
        let written = write_new(&draft, &text)
            .and_then(|()| std::fs::rename(&draft, self.path()))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        written.map_err(|source| io_error(&draft, source))
    }

    fn create_directory(&self) -> Result<(), CredentialStoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(|source| io_error(&self.directory, source))
    }

    fn remove_now(&self) -> Result<(), CredentialStoreError> {
        let path = self.path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| io_error(&path, source)),
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

    /// Replaces the file atomically. The caller holds the lock.
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

fn io_error(path: &Path, source: io::Error) -> CredentialStoreError {
    CredentialStoreError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Refuses a file or directory to which other users have access.
fn check_mode(
    path: &Path,
    metadata: io::Result<Metadata>,
    mode: u32,
) -> Result<(), CredentialStoreError> {
    let metadata = metadata.map_err(|source| io_error(path, source))?;
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

/// Runs file operations on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CredentialStoreError> + Send + 'static,
) -> Result<T, CredentialStoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(io_error(Path::new("."), io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests;
