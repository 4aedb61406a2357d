//! One atomic change of a file, with a backup.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ledger::Installation;
use super::lock::{FileLock, sibling};
use super::{BackupPolicy, Preview, WriteError};
use crate::configuration::file::{self, FileError};

/// The mode of backups and of new files: they may hold secrets.
const PRIVATE: u32 = 0o600;

/// Makes the change of a preview, and returns its record; none if there is nothing to change. Add
/// the record of an installation to the [`Ledger`](super::Ledger).
///
/// # Errors
///
/// Returns [`WriteError`] if the file has changed since the preview, or cannot be written. The file
/// then has its old contents.
pub fn apply(preview: &Preview, now: Timestamp) -> Result<Option<Installation>, WriteError> {
    if preview.is_empty() {
        return Ok(None);
    }
    let mut installation = installation(preview, now);
    let target = preview.target.as_path();
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if preview.old.is_none() {
        let mut builder = DirBuilder::new();
        let builder = builder.recursive(true).mode(0o700);
        builder
            .create(folder)
            .map_err(|source| io_error(folder, source))?;
    }
    let _lock = FileLock::acquire(target)?;
    check_unchanged(preview)?;
    if preview.old.is_some() {
        check_writable(target)?;
    }
    if let Some(old) = &preview.old
        && preview.backup == BackupPolicy::Make
    {
        let backup = write_backup(target, old, now)?;
        installation.backup = Some(backup);
    }
    let is_changed = match &preview.new {
        Some(new) => replace(preview, new),
        None => fs::remove_file(target).map_err(|source| io_error(target, source)),
    };
    if is_changed.is_err()
        && let Some(backup) = &installation.backup
    {
        // The file itself still has these contents.
        let _ = fs::remove_file(backup);
    }
    is_changed?;
    sync_folder(folder)?;
    let is_written = match (file::read_text(target), &preview.new) {
        (Ok(file), Some(new)) => file.text == *new,
        (Err(FileError::Missing { .. }), None) => true,
        _ => false,
    };
    if !is_written {
        return Err(WriteError::NotWritten {
            path: target.to_owned(),
        });
    }
    if let BackupPolicy::Restore(backup) = &preview.backup {
        // The file has its contents now. A copy that stays does no harm.
        let _ = fs::remove_file(backup);
    }
    Ok(Some(installation))
}

fn installation(preview: &Preview, now: Timestamp) -> Installation {
    Installation {
        client: preview.client.clone(),
        path: preview.path.clone(),
        target: preview.target.clone(),
        entry_name: preview.entry_name.clone(),
        address: preview.address.clone(),
        replaced_servers: preview.replaced_servers.clone(),
        server_backups: Vec::new(),
        hash_before: preview.old.as_deref().map(file::hash),
        hash_after: preview.new.as_deref().map(file::hash),
        backup: None,
        is_created: preview.old.is_none(),
        insertion: preview.insertion.clone(),
        at: now,
    }
}

fn check_unchanged(preview: &Preview) -> Result<(), WriteError> {
    let current = match file::read_text(&preview.path) {
        Ok(file) if file.target == preview.target => Some(file.text),
        Ok(_) => {
            return Err(WriteError::ChangedSincePreview {
                path: preview.path.clone(),
            });
        }
        Err(FileError::Missing { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if current == preview.old {
        Ok(())
    } else {
        Err(WriteError::ChangedSincePreview {
            path: preview.path.clone(),
        })
    }
}

/// Refuses a file that its owner has made read-only, although renaming would replace it.
fn check_writable(target: &Path) -> Result<(), WriteError> {
    let metadata = target
        .metadata()
        .map_err(|source| io_error(target, source))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(WriteError::NotOwned {
            path: target.to_owned(),
        });
    }
    if metadata.mode() & 0o200 == 0 {
        return Err(WriteError::ReadOnly {
            path: target.to_owned(),
        });
    }
    Ok(())
}

fn write_backup(target: &Path, text: &str, now: Timestamp) -> Result<PathBuf, WriteError> {
    let time = now.strftime("%Y%m%dT%H%M%SZ");
    let mut number = 1_usize;
    loop {
        // Two changes in one second must not share a backup.
        let ending = if number == 1 {
            format!("riglm-{time}.bak")
        } else {
            format!("riglm-{time}-{number}.bak")
        };
        let backup = sibling(target, &ending);
        match create(&backup, text, PRIVATE) {
            Ok(()) => return Ok(backup),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                number += 1;
            }
            Err(source) => return Err(io_error(&backup, source)),
        }
    }
}

fn replace(preview: &Preview, text: &str) -> Result<(), WriteError> {
    let target = preview.target.as_path();
    let mode = match target.metadata() {
        Ok(metadata) => metadata.mode() & 0o7777,
        Err(_) => PRIVATE,
    };
    let temporary = sibling(target, &format!("riglm-{}.tmp", std::process::id()));
    // One that was left behind belongs to no running process.
    let _ = fs::remove_file(&temporary);
    let is_replaced = create(&temporary, text, mode).and_then(|()| fs::rename(&temporary, target));
    is_replaced.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        io_error(target, source)
    })
}

/// Creates a new file with a mode, and waits until it is on the disk.
fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

fn sync_folder(folder: &Path) -> Result<(), WriteError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| io_error(folder, source))
}

fn io_error(path: &Path, source: io::Error) -> WriteError {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            WriteError::ReadOnly {
                path: path.to_owned(),
            }
        }
        _ => WriteError::Io {
            path: path.to_owned(),
            source,
        },
    }
}
