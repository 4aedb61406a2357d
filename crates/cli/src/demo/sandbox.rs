//! The sandbox: a folder that the tools never leave, and what the servers remember.

use std::io;
use std::path::{Component, Path, PathBuf};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::calendar::Event;
use super::notes::Note;
use super::tracker::Issue;

/// The largest file that a tool reads or writes, in bytes.
const MAX_FILE_BYTES: u64 = 1_000_000;

/// The environment of the tools.
#[derive(Debug)]
pub(super) struct Sandbox {
    folder: PathBuf,
    /// Removes the folder at the end, if nobody else does.
    _temporary: Option<TempDir>,
    /// The notes; `None` for a deleted one, so that the others keep their numbers.
    pub(super) notes: Mutex<Vec<Option<Note>>>,
    pub(super) issues: Mutex<Vec<Issue>>,
    pub(super) events: Mutex<Vec<Event>>,
}

/// A path that a tool may not use, or a file that it cannot use.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    /// The path leads out of the folder.
    #[error("argument {argument}: {path:?} is outside the sandbox folder")]
    Outside {
        /// The name of the argument.
        argument: &'static str,
        /// The path.
        path: String,
    },
    /// The file cannot be used.
    #[error("argument {argument}: {path:?}: {source}")]
    File {
        /// The name of the argument.
        argument: &'static str,
        /// The path.
        path: String,
        /// The reason.
        source: io::Error,
    },
}

/// A place in the sandbox that an argument names.
#[derive(Clone, Debug)]
pub(super) struct Place {
    argument: &'static str,
    /// The path below the folder, as the caller wrote it.
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// The files of a new sandbox.
const FILES: [(&str, &str); 7] = [
    (
        "README.md",
        "# Team folder\n\nReports are in reports, tables in data, plans in plans.\n",
    ),
    (
        "reports/2026-week-46.md",
        "# Week 46\n\nDone: search by date, faster start.\nOpen: issue 3, export to CSV.\nTODO: numbers of the survey\n",
    ),
    (
        "reports/2026-week-47.md",
        "# Week 47\n\nDone: export to CSV.\nOpen: issue 5, slow login.\nTODO: check the totals\n",
    ),
    (
        "data/sales.csv",
        "region,month,amount\nnorth,2026-09,1200\nsouth,2026-09,950\nnorth,2026-10,1310\nsouth,2026-10,1010\n",
    ),
    (
        "data/survey.csv",
        "name,score,mail\nAda,4,ada@example.com\nLin,5,lin@example.com\nAda,4,ada@example.com\nSam,3,sam@example.com\n",
    ),
    (
        "data/settings.json",
        "{\"title\": \"Team folder\", \"limits\": {\"rows\": 500, \"users\": 12}}\n",
    ),
    (
        "plans/release.md",
        "# Release 2.4\n\n1. Close the open bugs\n2. Write the release notes\n3. Tell the team\n",
    ),
];

impl Sandbox {
    /// Opens the sandbox in a folder, and writes its first files if they do not exist. Without a
    /// folder it makes a temporary one.
    pub(super) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let temporary = match folder {
            None => Some(tempfile::tempdir()?),
            Some(_) => None,
        };
        let folder = temporary.as_ref().map(TempDir::path).or(folder);
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        for (name, text) in FILES {
            let path = folder.join(name);
            if path.symlink_metadata().is_err() {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                std::fs::write(path, text)?;
            }
        }
        Ok(Self {
            folder,
            _temporary: temporary,
            notes: Mutex::default(),
            issues: Mutex::new(super::tracker::first_issues()),
            events: Mutex::new(super::calendar::first_events()),
        })
    }

    /// Returns the place that an argument names: below the folder, and through no symbolic link.
    pub(super) fn place(&self, argument: &'static str, name: &str) -> Result<Place, SandboxError> {
        let outside = || SandboxError::Outside {
            argument,
            path: name.into(),
        };
        let mut path = self.folder.clone();
        for component in Path::new(name).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => path.push(part),
                _ => return Err(outside()),
            }
            let met = path.symlink_metadata();
            if path != self.folder && met.is_ok_and(|met| met.file_type().is_symlink()) {
                return Err(outside());
            }
        }
        Ok(Place {
            argument,
            name: name.into(),
            path,
        })
    }

    /// Returns a path as a caller writes it.
    pub(super) fn name_of(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.folder).unwrap_or(path);
        below.display().to_string()
    }

    /// Returns the text of a file.
    pub(super) fn read(&self, argument: &'static str, name: &str) -> Result<String, SandboxError> {
        let place = self.place(argument, name)?;
        let size = place.check(place.path.metadata())?.len();
        if size > MAX_FILE_BYTES {
            return Err(place.error(io::ErrorKind::FileTooLarge.into()));
        }
        place.check(std::fs::read_to_string(&place.path))
    }

    /// Writes the text of a file; its folder is made if it does not exist.
    pub(super) fn write(
        &self,
        argument: &'static str,
        name: &str,
        text: &str,
    ) -> Result<(), SandboxError> {
        let place = self.place(argument, name)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(place.error(io::ErrorKind::FileTooLarge.into()));
        }
        if let Some(parent) = place.path.parent() {
            place.check(std::fs::create_dir_all(parent))?;
        }
        place.check(std::fs::write(&place.path, text))
    }
}

impl Place {
    /// Returns the result of an operation on the place.
    pub(super) fn check<T>(&self, done: io::Result<T>) -> Result<T, SandboxError> {
        done.map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> SandboxError {
        SandboxError::File {
            argument: self.argument,
            path: self.name.clone(),
            source,
        }
    }
}
