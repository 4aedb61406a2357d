//! Undoing an installation.
//!
//! If the file is still as it was written, it gets the very bytes that it had before. Otherwise
//! only the entry is removed, and servers that were taken out for it are put back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ledger::ServerBackup;
use super::{
    BackupPolicy, EntryChange, EntryRemoval, FileEdit, InsertionRecord, Preview, WriteError,
    edit_error, existing, preview, remove_entry,
};
use crate::configuration::client::Client;
use crate::configuration::editing::{LossReason, ServersToRestore, restore_servers};
use crate::configuration::file::{self, FileError};
use crate::configuration::identity::RiglmIdentity;
use crate::configuration::writing::ledger::Installation;

/// The way in which an installation is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// The file gets the bytes that it had before.
    Restored,
    /// The file was created by riglm, and is removed.
    FileRemoved,
    /// The file has changed since, so only the entry is removed. Servers that were taken out are put
    /// back.
    EntryRemoved,
    /// The entry is gone already. Servers that were taken out are put back.
    ServersRestored,
    /// There is no file or no entry any more.
    NothingLeft,
}

/// A plan to undo an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct UndoPlan {
    /// The way in which it is undone.
    pub kind: UndoKind,
    /// The change; none if nothing is left.
    pub preview: Option<Preview>,
    /// The names of servers that the installation took out, and the change puts back one by one.
    pub restored: Vec<String>,
    /// The servers that the installation took out, and that cannot be put back.
    pub lost: Vec<LostServer>,
}

/// A server that an installation took out, and that cannot be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostServer {
    /// The name.
    pub name: String,
    /// The reason.
    pub reason: LossReason,
    /// The copy of the file that has it.
    pub backup: Option<PathBuf>,
}

/// Plans to undo an installation. Apply the preview, and then forget the installation in the
/// [`Ledger`](super::Ledger).
///
/// # Errors
///
/// Returns [`WriteError`] if the file cannot be used, or if the entry cannot be removed from it.
pub fn plan_undo(
    installation: &Installation,
    client: &'static Client,
    riglm: &RiglmIdentity,
) -> Result<UndoPlan, WriteError> {
    let current = match file::read_text(&installation.path) {
        Ok(current) => current,
        Err(FileError::Missing { .. } | FileError::Dangling { .. }) => {
            let mut servers = RestoredServers::default();
            for backup in installation.server_backups().into_iter().rev() {
                servers.lose_all(&backup, LossReason::FileMissing);
            }
            return Ok(servers.plan(UndoKind::NothingLeft, None));
        }
        Err(error) => return Err(error.into()),
    };
    let is_ours = installation.hash_after.as_deref() == Some(&file::hash(&current.text));
    let whole = |new: Option<String>, backup| Preview {
        path: installation.path.clone(),
        target: current.target.clone(),
        old: Some(current.text.clone()),
        new,
        change: EntryChange::Removed,
        entry_name: installation.entry_name.clone(),
        client: client.id.to_owned(),
        replaced_servers: Vec::new(),
        address: None,
        insertion: InsertionRecord::default(),
        backup,
    };
    let mut servers = RestoredServers::default();
    if is_ours && installation.is_created {
        let preview = whole(None, BackupPolicy::Skip);
        return Ok(servers.plan(UndoKind::FileRemoved, Some(preview)));
    }
    if is_ours
        && let Some(backup) = &installation.backup
        && let Some(text) = backup_text(backup, installation.hash_before.as_deref())
    {
        let preview = whole(Some(text), BackupPolicy::Restore(backup.clone()));
        return Ok(servers.plan(UndoKind::Restored, Some(preview)));
    }
    let removal = EntryRemoval {
        name: &installation.entry_name,
        riglm,
        insertion: Some(&installation.insertion),
    };
    // Before the removal, so that the collection does not become empty and lose its layout.
    let text = servers.restore_into(&current.text, installation, client)?;
    let edited = remove_entry(&text, client, &removal);
    let edited = edited.map_err(|source| edit_error(&installation.path, source))?;
    let kind = match (&edited.change, servers.restored.is_empty()) {
        (EntryChange::Absent, true) => return Ok(servers.plan(UndoKind::NothingLeft, None)),
        (EntryChange::Absent, false) => UndoKind::ServersRestored,
        _ => UndoKind::EntryRemoved,
    };
    if installation.is_created && edited.text.trim().is_empty() {
        let preview = whole(None, BackupPolicy::Skip);
        return Ok(servers.plan(UndoKind::FileRemoved, Some(preview)));
    }
    let edit = FileEdit {
        file: existing(current),
        edited,
    };
    let preview = preview(
        &installation.path,
        client.id,
        &installation.entry_name,
        edit,
    );
    Ok(servers.plan(kind, Some(preview)))
}

/// The servers that an installation took out.
#[derive(Default)]
struct RestoredServers {
    /// The names that are dealt with.
    seen: BTreeSet<String>,
    restored: Vec<String>,
    lost: Vec<LostServer>,
}

impl RestoredServers {
    /// Returns a text with the servers put back that are in backups.
    fn restore_into(
        &mut self,
        text: &str,
        installation: &Installation,
        client: &'static Client,
    ) -> Result<String, WriteError> {
        let mut text = text.to_owned();
        // A server that was taken out twice gets its latest form.
        for backup in installation.server_backups().into_iter().rev() {
            let path = backup.path.as_deref();
            let source = path.and_then(|path| backup_text(path, backup.hash.as_deref()));
            let Some(source) = source else {
                self.lose_all(&backup, LossReason::NoBackup);
                continue;
            };
            let names: Vec<String> = (backup.names.iter())
                .filter(|name| self.seen.insert((*name).clone()))
                .cloned()
                .collect();
            let servers = ServersToRestore {
                source: &source,
                names: &names,
            };
            let edited = restore_servers(&text, client, servers)
                .map_err(|source| edit_error(&installation.path, source))?;
            text = edited.text;
            self.restored.extend(edited.restored);
            let lost = edited.lost.into_iter();
            self.lost.extend(lost.map(|(name, reason)| LostServer {
                name,
                reason,
                backup: backup.path.clone(),
            }));
        }
        Ok(text)
    }

    /// Gives up all servers of a backup. A name that was dealt with is left out.
    fn lose_all(&mut self, backup: &ServerBackup, reason: LossReason) {
        for name in &backup.names {
            if self.seen.insert(name.clone()) {
                self.lost.push(LostServer {
                    name: name.clone(),
                    reason,
                    backup: backup.path.clone(),
                });
            }
        }
    }

    fn plan(self, kind: UndoKind, preview: Option<Preview>) -> UndoPlan {
        UndoPlan {
            kind,
            preview,
            restored: self.restored,
            lost: self.lost,
        }
    }
}

/// Returns the contents of a backup, if it still has those that were written.
fn backup_text(backup: &Path, hash: Option<&str>) -> Option<String> {
    let text = file::read_text(backup).ok()?.text;
    (hash == Some(&file::hash(&text))).then_some(text)
}
