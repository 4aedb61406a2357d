//! Discovery of running control servers: each process with a control server has a file in the
//! folder `control` of its data directory, with its address. Clients send the token only to these
//! addresses, because any program may listen on a guessed port.
//!
//! Each process holds a lock on its file. The system releases the lock however the process ends.
//! Process ids are not enough: they are reused, and mean nothing in another container.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FOLDER: &str = "control";
const ENDING: &str = "json";
// Larger files were not written by riglm.
const MAX_BYTES: u64 = 4 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct AnnouncementEntry {
    address: SocketAddr,
    // Only for people who read the file.
    pid: u32,
    place: ProcessPlace,
}

/// The machine and network namespace of a process. Machines and containers may share a data
/// directory, but each has its own loopback interface.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessPlace {
    /// The boot id of the machine.
    boot: String,
    /// The network namespace.
    network: String,
}

impl ProcessPlace {
    /// Returns the place of this process. On a system without this information all places are
    /// equal.
    fn of_this_process() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let network = std::fs::read_link("/proc/self/ns/net");
        Self {
            boot: boot.unwrap_or_default().trim().to_owned(),
            network: network.unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// The announcement file of this process. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
    // Holds the lock.
    _file: File,
}

impl Announcement {
    /// Announces a control server of this process in the data directory.
    ///
    /// # Errors
    ///
    /// Returns the error of writing or locking the file.
    pub(crate) fn new(data_dir: &Path, address: SocketAddr) -> io::Result<Self> {
        // Removes the files of processes that crashed.
        addresses(data_dir)?;
        let folder = data_dir.join(FOLDER);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder)?;
        let entry = AnnouncementEntry {
            address,
            pid: std::process::id(),
            place: ProcessPlace::of_this_process(),
        };
        // Created with mode 0600, and under a name that readers ignore: before it is locked, a
        // reader would take it for the file of a dead process and remove it.
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
        // A leftover file is harmless: without the lock it is ignored.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the addresses of the running control servers of this data directory that this process
/// can reach. It removes the files of dead processes; those of other machines stay.
///
/// # Errors
///
/// Returns the error of reading the folder.
pub(crate) fn addresses(data_dir: &Path) -> io::Result<Vec<SocketAddr>> {
    let files = match std::fs::read_dir(data_dir.join(FOLDER)) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        files => files?,
    };
    let here = ProcessPlace::of_this_process();
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

/// Returns the address in a file if its process runs in the same place. An unreadable file counts
/// as missing, because another process may remove it at any time.
fn address_in(path: &Path, here: &ProcessPlace) -> Option<SocketAddr> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    // A file that other users can write could send the token to their server.
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = Vec::new();
    (&file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let entry: AnnouncementEntry = serde_json::from_slice(&text).ok()?;
    // Locks of other machines may not be visible here.
    if entry.place.boot != here.boot {
        return None;
    }
    match file.try_lock_shared() {
        Ok(()) => {
            // Another reader may have removed it just before.
            let _ = std::fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => (entry.place == *here).then_some(entry.address),
        Err(TryLockError::Error(_)) => None,
    }
}

/// Returns whether an error says that a file or its directory does not exist.
pub(crate) fn is_absent(error: &io::Error) -> bool {
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

    /// Writes the file of a dead process: nothing locks it.
    fn left(data_dir: &Path, name: &str, place: ProcessPlace) -> PathBuf {
        let entry = AnnouncementEntry {
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
    fn only_announcements_of_ended_local_processes_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let kept = Announcement::new(data.path(), at(1)).unwrap();
        let gone = left(data.path(), "1-a.json", ProcessPlace::of_this_process());
        let elsewhere = ProcessPlace {
            boot: "another".into(),
            ..ProcessPlace::of_this_process()
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
        let container = ProcessPlace {
            network: "another".into(),
            ..ProcessPlace::of_this_process()
        };
        let path = left(data.path(), "1-a.json", container);
        let file = File::open(&path).unwrap();
        file.try_lock().unwrap();
        assert_eq!(addresses(data.path()).unwrap(), []);
        assert!(path.exists());
    }

    #[test]
    fn world_writable_and_invalid_announcements_are_ignored() {
        let data = tempfile::tempdir().unwrap();
        let announced = Announcement::new(data.path(), at(1)).unwrap();
        let shared = std::os::unix::fs::PermissionsExt::from_mode(0o622);
        std::fs::set_permissions(&announced.path, shared).unwrap();
        std::fs::write(data.path().join(FOLDER).join("x.json"), "{}").unwrap();
        std::fs::create_dir(data.path().join(FOLDER).join("y.json")).unwrap();
        assert_eq!(addresses(data.path()).unwrap(), []);
    }
}
