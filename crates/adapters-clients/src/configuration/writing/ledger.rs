//! The record of installations, which undoing needs.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::lock::{FileLock, sibling};
use crate::configuration::editing::InsertionRecord;

/// The name of the file.
const FILE_NAME: &str = "installations.json";

/// An installation in a file of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Installation {
    /// The identifier of the client.
    pub client: String,
    /// The path, which may be a symbolic link.
    pub path: PathBuf,
    /// The file that was written.
    pub target: PathBuf,
    /// The name of the entry.
    pub entry_name: String,
    /// The address of the endpoint in the entry; none after a removal.
    #[serde(default)]
    pub address: Option<String>,
    /// The names of other servers that were taken out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_servers: Vec<String>,
    /// The backups with these servers, where several installations are one.
    #[serde(skip)]
    pub(crate) server_backups: Vec<ServerBackup>,
    /// The SHA-256 of the contents before; none if there was no file.
    pub hash_before: Option<String>,
    /// The SHA-256 of the contents after; none if the file was removed.
    pub hash_after: Option<String>,
    /// The copy of the file before.
    pub backup: Option<PathBuf>,
    /// Whether the file was created.
    pub is_created: bool,
    /// The state of the file before, for the removal of the entry alone.
    #[serde(default)]
    pub insertion: InsertionRecord,
    /// The time of the change.
    pub at: Timestamp,
}

/// A backup with servers that were taken out of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerBackup {
    /// The names of the servers.
    pub(crate) names: Vec<String>,
    /// The copy of the file before.
    pub(crate) path: Option<PathBuf>,
    /// The SHA-256 of its contents.
    pub(crate) hash: Option<String>,
}

impl Installation {
    /// Returns the backups with servers that were taken out, the oldest first.
    pub(crate) fn server_backups(&self) -> Vec<ServerBackup> {
        if !self.server_backups.is_empty() || self.replaced_servers.is_empty() {
            return self.server_backups.clone();
        }
        vec![ServerBackup {
            names: self.replaced_servers.clone(),
            path: self.backup.clone(),
            hash: self.hash_before.clone(),
        }]
    }
}

/// The record of installations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The installations that were not undone, the oldest first.
    pub installations: Vec<Installation>,
}

/// The reason why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The operating system reported an error.
    #[error("failed to read or write {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The record is in use, or its lock cannot be taken.
    #[error("failed to lock {}", path.display())]
    Locked {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<super::WriteError>,
    },
    /// The file is malformed.
    #[error("{} is not a record of installations", path.display())]
    Garbled {
        /// The path.
        path: PathBuf,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
}

impl Ledger {
    /// Reads the record in a folder; an empty one if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`LedgerError`] if it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, LedgerError> {
        let path = folder.join(FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(LedgerError::Io { path, source }),
        };
        serde_json::from_str(&text).map_err(|source| LedgerError::Garbled { path, source })
    }

    /// Changes the record in a folder, which is created. Two processes take turns.
    ///
    /// # Errors
    ///
    /// Returns [`LedgerError`] if it cannot be read or written.
    pub fn update(folder: &Path, change: impl FnOnce(&mut Self)) -> Result<Self, LedgerError> {
        let path = folder.join(FILE_NAME);
        let mut builder = std::fs::DirBuilder::new();
        let is_created = builder.recursive(true).mode(0o700).create(folder);
        is_created.map_err(|source| LedgerError::Io {
            path: folder.to_owned(),
            source,
        })?;
        let _lock = FileLock::acquire(&path).map_err(|error| LedgerError::Locked {
            path: path.clone(),
            source: Box::new(error),
        })?;
        let mut ledger = Self::read(folder)?;
        change(&mut ledger);
        ledger.write(folder)?;
        Ok(ledger)
    }

    fn write(&self, folder: &Path) -> Result<(), LedgerError> {
        let path = folder.join(FILE_NAME);
        let written = self.write_to(&path);
        written.map_err(|source| LedgerError::Io { path, source })
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let temporary = sibling(path, &format!("{}.tmp", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    }

    /// Adds an installation. An earlier one of the same entry stays, since its backup is older.
    pub fn add(&mut self, installation: Installation) {
        self.installations.push(installation);
    }

    /// Returns the installations of an entry as one, from the state before the first to the state
    /// after the last. If the file was changed by others in between, there is no state to go back
    /// to.
    pub fn installation(
        &self,
        client: &str,
        path: &Path,
        entry_name: &str,
    ) -> Option<Installation> {
        let mut installations = self
            .installations
            .iter()
            .filter(|it| it.client == client && it.path == path && it.entry_name == entry_name);
        let mut whole = installations.next()?.clone();
        whole.server_backups = whole.server_backups();
        let mut last_hash = whole.hash_after.clone();
        let mut is_changed_between = false;
        for later in installations {
            if later.hash_before != last_hash {
                is_changed_between = true;
                whole.is_created &= later.hash_before.is_some();
            }
            last_hash.clone_from(&later.hash_after);
            whole.server_backups.extend(later.server_backups());
            whole.target.clone_from(&later.target);
            whole.address.clone_from(&later.address);
            whole
                .replaced_servers
                .extend(later.replaced_servers.iter().cloned());
            whole.at = later.at;
        }
        whole.hash_after = last_hash;
        if is_changed_between {
            whole.backup = None;
            // The contents after are not only ours, so they must not be recognised as such.
            whole.hash_after = None;
        }
        Some(whole)
    }

    /// Returns the addresses of all installations, so that entries with an address of earlier are
    /// recognised.
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self
            .installations
            .iter()
            .filter_map(|it| it.address.clone());
        let addresses: std::collections::BTreeSet<String> = addresses.collect();
        addresses.into_iter().collect()
    }

    /// Removes the installations of an entry, because they were undone.
    pub fn forget(&mut self, installation: &Installation) {
        self.installations.retain(|it| {
            it.client != installation.client
                || it.path != installation.path
                || it.entry_name != installation.entry_name
        });
    }
}
