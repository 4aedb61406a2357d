//! Writing the files of clients: a preview first, then one atomic change with a backup.
//!
//! A preview is bound to the contents it was made from. If the file has other contents by the time
//! it is applied, nothing is written.

mod apply;
mod difference;
mod ledger;
mod lock;
mod undo;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use super::client::Client;
use super::editing::{
    EditError, EditedText, EntryChange, EntryRemoval, InsertionRecord, install_entry, remove_entry,
    remove_servers,
};
use super::entry::InstallEntry;
use super::file::{self, FileError, FileText};
use super::identity::RiglmIdentity;

pub use self::apply::apply;
pub use self::difference::{DiffLine, LineRange};
pub use self::ledger::{Installation, Ledger, LedgerError};
pub use self::undo::{LostServer, UndoKind, UndoPlan, plan_undo};

/// Whether a missing file may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// A missing file is an error.
    Refused,
    /// A missing file is created, with its folder.
    Allowed,
}

/// A change of a file that has not been made yet.
#[derive(Clone, PartialEq)]
pub struct Preview {
    /// The path, which may be a symbolic link.
    pub path: PathBuf,
    /// The file that is written: the target of a link.
    pub target: PathBuf,
    /// The contents now; none if the file does not exist.
    pub old: Option<String>,
    /// The contents after the change; none if the file is removed.
    pub new: Option<String>,
    /// The change of the entry.
    pub change: EntryChange,
    /// The name of the entry.
    pub entry_name: String,
    /// The identifier of the client.
    pub client: String,
    /// The names of other servers that are taken out.
    pub replaced_servers: Vec<String>,
    pub(crate) address: Option<String>,
    pub(crate) insertion: InsertionRecord,
    pub(crate) backup: BackupPolicy,
}

/// The handling of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackupPolicy {
    /// The contents now are kept in a new one.
    Make,
    /// The contents now are only ours.
    Skip,
    /// An older one is restored, and then removed.
    Restore(PathBuf),
}

impl std::fmt::Debug for Preview {
    // The contents may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preview")
            .field("path", &self.path)
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}

impl Preview {
    /// Returns whether applying it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.old == self.new
    }

    /// Returns a token for the path, the contents now and the contents after. A page can ask for it
    /// again, to be sure that a person has confirmed this change and no other.
    pub fn token(&self) -> String {
        let part = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), file::hash);
        let path = self.target.to_string_lossy();
        file::hash(&format!("{path}\n{}\n{}", part(&self.old), part(&self.new)))
    }

    /// Returns the change with other servers taken out, because riglm has them. Undoing puts them
    /// back.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Edit`] if the text cannot be changed safely.
    pub fn replacing(
        mut self,
        client: &'static Client,
        servers: Vec<String>,
    ) -> Result<Self, WriteError> {
        if let Some(new) = &self.new {
            let new = remove_servers(new, client, &servers);
            self.new = Some(new.map_err(|source| edit_error(&self.path, source))?);
            self.replaced_servers = servers;
        }
        Ok(self)
    }

    /// Returns the changed lines with some lines around them.
    pub fn diff(&self) -> Vec<DiffLine> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        difference::diff(&text(&self.old), &text(&self.new))
    }
}

/// The reason why a file cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be read.
    #[error("failed to read the configuration")]
    File(#[from] FileError),
    /// The text cannot be changed.
    #[error("failed to change {}", path.display())]
    Edit {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: EditError,
    },
    /// Another program has changed the file.
    #[error("{} has changed since the preview", path.display())]
    ChangedSincePreview {
        /// The path.
        path: PathBuf,
    },
    /// Another installation is running.
    #[error("{} is being changed by another process", path.display())]
    Locked {
        /// The path.
        path: PathBuf,
    },
    /// The file cannot be written by its owner.
    #[error("{} is read-only", path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// The file belongs to another user.
    #[error("{} belongs to another user", path.display())]
    NotOwned {
        /// The path.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("failed to write {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file has other contents than those written.
    #[error("{} does not have the written contents", path.display())]
    NotWritten {
        /// The path.
        path: PathBuf,
    },
    /// The record of installations cannot be read or written.
    #[error("failed to keep the record of installations")]
    Ledger(#[from] LedgerError),
}

/// Prepares the installation of an entry in a file of a client.
///
/// # Errors
///
/// Returns [`WriteError`] if the file cannot be used, if it is missing and may not be created, or
/// if the entry cannot be added.
pub fn preview_install(
    path: &Path,
    client: &'static Client,
    request: &InstallRequest<'_>,
) -> Result<Preview, WriteError> {
    let file = read(path, request.creation)?;
    let edited = install_entry(
        file.text.as_deref().unwrap_or_default(),
        client,
        request.entry,
        request.riglm,
    );
    let edited = edited.map_err(|source| edit_error(path, source))?;
    let preview = preview(
        path,
        client.id,
        &request.entry.name,
        FileEdit { file, edited },
    );
    Ok(Preview {
        address: Some(request.entry.address.clone()),
        ..preview
    })
}

/// The facts of an installation.
#[derive(Clone, Copy, Debug)]
pub struct InstallRequest<'a> {
    /// The entry.
    pub entry: &'a InstallEntry,
    /// The addresses and programs that are riglm.
    pub riglm: &'a RiglmIdentity,
    /// Whether a missing file may be created.
    pub creation: Creation,
}

/// Prepares the removal of an entry from a file of a client.
///
/// # Errors
///
/// Returns [`WriteError`] if the file cannot be used, or if the entry cannot be removed.
pub fn preview_removal(
    path: &Path,
    client: &'static Client,
    removal: &EntryRemoval<'_>,
) -> Result<Preview, WriteError> {
    let file = read(path, Creation::Refused)?;
    let text = file.text.as_deref().unwrap_or_default();
    let edited = remove_entry(text, client, removal).map_err(|source| edit_error(path, source))?;
    Ok(preview(
        path,
        client.id,
        removal.name,
        FileEdit { file, edited },
    ))
}

/// A file and its text after a change.
struct FileEdit {
    file: CurrentFile,
    edited: EditedText,
}

fn preview(path: &Path, client: &str, entry_name: &str, edit: FileEdit) -> Preview {
    let FileEdit { file, edited } = edit;
    Preview {
        path: path.to_owned(),
        target: file.target,
        old: file.text,
        new: Some(edited.text),
        change: edited.change,
        entry_name: entry_name.to_owned(),
        client: client.to_owned(),
        replaced_servers: Vec::new(),
        address: None,
        insertion: edited.insertion,
        backup: BackupPolicy::Make,
    }
}

fn edit_error(path: &Path, source: EditError) -> WriteError {
    WriteError::Edit {
        path: path.to_owned(),
        source,
    }
}

/// A file that may be missing.
struct CurrentFile {
    target: PathBuf,
    text: Option<String>,
}

fn existing(file: FileText) -> CurrentFile {
    CurrentFile {
        target: file.target,
        text: Some(file.text),
    }
}

fn read(path: &Path, creation: Creation) -> Result<CurrentFile, WriteError> {
    match file::read_text(path) {
        Ok(file) => Ok(existing(file)),
        Err(FileError::Missing { .. }) if creation == Creation::Allowed => Ok(CurrentFile {
            target: path.to_owned(),
            text: None,
        }),
        Err(error) => Err(error.into()),
    }
}
