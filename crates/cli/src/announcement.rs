//! The control servers that run with a data directory: each process has a file in the folder `control`
//! of it, which says where its control server listens. The token goes nowhere else: what answers on a
//! port that is merely likely may be anybody's.
//!
//! A file is locked for as long as its process lives. The system takes the lock away at any end of it, so
//! that ids of processes, which are used again and mean nothing in another container, play no part.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The folder of the files in the data directory.
const FOLDER: &str = "control";
/// The ending of the files.
const ENDING: &str = "json";
/// A longer file is none that was written here.
const MAX_BYTES: u64 = 4 << 10;

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// The address of the control server.
    address: SocketAddr,
    /// The process, for people.
    pid: u32,
    /// The machine and network of the process.
    place: Place,
}

/// The place of a process: data directories may be shared by several machines and containers, of which
/// each has a loopback interface of its own.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The machine, as long as it is not started anew.
    boot: String,
    /// The network of the process.
    network: String,
}

impl Place {
    /// Returns the place of this process. Where the system does not tell machines and networks apart,
    /// all are the same.
    fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let network = std::fs::read_link("/proc/self/ns/net");
        Self {
            boot: boot.unwrap_or_default().trim().to_owned(),
            network: network.unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// The file of this process. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
    /// Keeps the lock.
    _file: File,
}

impl Announcement {
    /// Says in the data directory that a control server of this process listens on an address.
    ///
    /// # Errors
    ///
    /// Returns the error of writing or locking the file.
    pub(crate) fn new(data_dir: &Path, address: SocketAddr) -> io::Result<Self> {
        // This removes what processes left that came to a sudden end.
        addresses(data_dir)?;
        let folder = data_dir.join(FOLDER);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder)?;
        let entry = Entry {
            address,
            pid: std::process::id(),
            place: Place::here(),
        };
        // Made with mode 0600, and under a name that nobody reads: without its lock it would be taken
        // for one whose process is gone.
        let mut file = tempfile::Builder::new()
            .prefix(&format!("{}-", entry.pid))
            .suffix(".draft")
            .tempfile_in(&folder)?;
        file.as_file().try_lock()?;
        file.write_all(&serde_json::to_vec(&entry)?)?;
        let path = file.path().with_extension(ENDING);
        Ok(Self {
            _file: file.persist(&path)?,
            path,
        })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // What stays is not believed any more, since its lock is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the addresses of the control servers that run with this data directory and can be reached from
/// here. Files of processes that are gone are removed; those of other machines stay.
///
/// # Errors
///
/// Returns why the folder cannot be read.
pub(crate) fn addresses(data_dir: &Path) -> io::Result<Vec<SocketAddr>> {
    let files = match std::fs::read_dir(data_dir.join(FOLDER)) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        files => files?,
    };
    let here = Place::here();
    let mut found = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension() == Some(OsStr::new(ENDING)) {
            found.extend(address_in(&path, &here));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns the address in a file, if its process lives and is near. What cannot be read counts as no
/// file: another process may remove it at any time.
fn address_in(path: &Path, here: &Place) -> Option<SocketAddr> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    // Where others than the owner may write, anybody could have the token sent to them.
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = Vec::new();
    (&file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let entry: Entry = serde_json::from_slice(&text).ok()?;
    // Locks of other machines may not be seen here.
    if entry.place.boot != here.boot {
        return None;
    }
    match file.try_lock_shared() {
        Ok(()) => {
            // Another process that looks may have done so a moment before.
            let _ = std::fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => (entry.place == *here).then_some(entry.address),
        Err(TryLockError::Error(_)) => None,
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn n_files(data_dir: &Path) -> usize {
        std::fs::read_dir(data_dir.join(FOLDER)).unwrap().count()
    }

    /// Writes a file whose process is not there to lock it.
    fn left(data_dir: &Path, name: &str, place: Place) -> PathBuf {
        let entry = Entry {
            address: at(9),
            pid: 1,
            place,
        };
        let path = data_dir.join(FOLDER).join(name);
        std::fs::write(&path, serde_json::to_vec(&entry).unwrap()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        path
    }

    #[test]
    fn control_servers_are_found_as_long_as_their_processes_have_them() {
        let data = tempfile::tempdir().unwrap();
        let data_dir = data.path().join("new");
        assert_eq!(addresses(&data_dir).unwrap(), []);
        let first = Announcement::new(&data_dir, at(2)).unwrap();
        let second = Announcement::new(&data_dir, at(1)).unwrap();
        assert_eq!(addresses(&data_dir).unwrap(), [at(1), at(2)]);
        let mode = first.path.metadata().unwrap().mode() & 0o777;
        let folder = data_dir.join(FOLDER).metadata().unwrap().mode() & 0o777;
        assert_eq!((mode, folder), (0o600, 0o700));
        drop(first);
        assert_eq!(addresses(&data_dir).unwrap(), [at(1)]);
        drop(second);
        assert_eq!(n_files(&data_dir), 0);
    }

    #[test]
    fn files_of_processes_that_are_gone_are_removed_and_those_of_other_machines_stay() {
        let data = tempfile::tempdir().unwrap();
        let kept = Announcement::new(data.path(), at(1)).unwrap();
        let gone = left(data.path(), "1-a.json", Place::here());
        let elsewhere = Place {
            boot: "another".into(),
            ..Place::here()
        };
        let elsewhere = left(data.path(), "1-b.json", elsewhere);
        assert_eq!(addresses(data.path()).unwrap(), [at(1)]);
        assert!(!gone.exists() && elsewhere.exists());
        drop(kept);
    }

    #[test]
    fn a_live_process_in_another_network_is_not_asked() {
        let data = tempfile::tempdir().unwrap();
        drop(Announcement::new(data.path(), at(1)).unwrap());
        let container = Place {
            network: "another".into(),
            ..Place::here()
        };
        let path = left(data.path(), "1-a.json", container);
        let file = File::open(&path).unwrap();
        file.try_lock().unwrap();
        assert_eq!(addresses(data.path()).unwrap(), []);
        assert!(path.exists());
    }

    #[test]
    fn files_that_others_may_write_or_that_say_nothing_are_not_believed() {
        let data = tempfile::tempdir().unwrap();
        let announced = Announcement::new(data.path(), at(1)).unwrap();
        let shared = std::os::unix::fs::PermissionsExt::from_mode(0o622);
        std::fs::set_permissions(&announced.path, shared).unwrap();
        std::fs::write(data.path().join(FOLDER).join("x.json"), "{}").unwrap();
        std::fs::create_dir(data.path().join(FOLDER).join("y.json")).unwrap();
        assert_eq!(addresses(data.path()).unwrap(), []);
    }
}
