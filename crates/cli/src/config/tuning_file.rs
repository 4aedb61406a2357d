//! The tuning layer: `tuning.json` in the data directory. The control server writes it, and every
//! process with this data directory reads it.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Map, Value, ValueKind};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::ConfigError;

const NAME: &str = "tuning.json";
/// The lock file. A process holds its lock while it changes the tuning.
const LOCK: &str = "tuning.lock";
// Larger files were not written by riglm.
const MAX_BYTES: u64 = 1 << 20;
/// The format of the file in error messages.
const FORMAT: &str = "JSON of the control port";
/// The number of attempts to get the lock, and the pause between them.
const TRIES: (u32, Duration) = (50, Duration::from_millis(100));

/// The content of the tuning file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningDocument {
    /// The number of changes.
    pub version: u64,
    /// The configured keys, in sections.
    pub tuning: serde_json::Map<String, Json>,
}

impl TuningDocument {
    /// Returns the values of this layer.
    pub(super) fn layer(&self, origin: &Path) -> Map<String, Value> {
        let origin = origin.display().to_string();
        let table = self.tuning.iter();
        table
            .map(|(key, value)| (key.clone(), as_value(value, &origin)))
            .collect()
    }
}

fn as_value(json: &Json, origin: &String) -> Value {
    let kind = match json {
        Json::Null => ValueKind::Nil,
        Json::Bool(flag) => ValueKind::Boolean(*flag),
        Json::Number(number) => number
            .as_i64()
            .map(ValueKind::I64)
            .or_else(|| number.as_u64().map(ValueKind::U64))
            .or_else(|| number.as_f64().map(ValueKind::Float))
            .unwrap_or(ValueKind::Nil),
        Json::String(text) => ValueKind::String(text.clone()),
        Json::Array(items) => {
            ValueKind::Array(items.iter().map(|item| as_value(item, origin)).collect())
        }
        Json::Object(table) => ValueKind::Table(
            (table.iter())
                .map(|(key, value)| (key.clone(), as_value(value, origin)))
                .collect(),
        ),
    };
    Value::new(Some(origin), kind)
}

/// The tuning file of a data directory.
#[derive(Clone, Debug)]
pub struct TuningFile {
    directory: PathBuf,
}

/// The lock on the tuning file, until it is dropped.
#[derive(Debug)]
pub struct TuningLock {
    _file: File,
}

/// A written tuning file that is not in its place yet. It is removed on drop.
#[derive(Debug)]
pub struct PreparedTuning {
    file: tempfile::NamedTempFile,
    directory: PathBuf,
    _lock: TuningLock,
}

impl TuningFile {
    /// Returns the tuning file of a data directory, whether it exists or not.
    #[must_use]
    pub fn of(data_dir: &Path) -> Self {
        Self {
            directory: data_dir.into(),
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Reads the tuning document; it is empty if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a file that cannot be read or has invalid content.
    pub fn read(&self) -> Result<TuningDocument, ConfigError> {
        let path = self.path();
        // Reading a pipe might never end, and a larger file was not written by riglm.
        let is_endless = |file: &Metadata| !file.is_file() && !file.is_dir();
        let is_wrong = |file: Metadata| is_endless(&file) || file.len() > MAX_BYTES;
        if std::fs::metadata(&path).is_ok_and(is_wrong) {
            return Err(ConfigError::Syntax {
                path,
                format: FORMAT,
                reason: "it is not a regular file, or it is too large".into(),
            });
        }
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            // A data directory that is not a directory is reported elsewhere.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(TuningDocument::default());
            }
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        serde_json::from_slice(&text).map_err(|error| ConfigError::Syntax {
            path,
            format: FORMAT,
            reason: error.to_string(),
        })
    }

    /// Waits for the lock on the file, at most five seconds. Blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the error of locking, or a timeout.
    pub fn lock(&self) -> io::Result<TuningLock> {
        let mut directory = DirBuilder::new();
        directory
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.directory.join(LOCK))?;
        let (n_tries, pause) = TRIES;
        for _ in 0..n_tries {
            match file.try_lock() {
                Ok(()) => return Ok(TuningLock { _file: file }),
                Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(pause),
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        let text = "timeout: another process is still changing the tuning";
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Writes a document to a temporary file in the same directory, so that moving it into place
    /// hardly ever fails. Blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the error of writing.
    pub fn prepare(
        &self,
        document: &TuningDocument,
        lock: TuningLock,
    ) -> io::Result<PreparedTuning> {
        let mut text = serde_json::to_vec_pretty(document)?;
        text.push(b'\n');
        // Created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        Ok(PreparedTuning {
            file,
            directory: self.directory.clone(),
            _lock: lock,
        })
    }
}

impl PreparedTuning {
    /// Moves the file to its place atomically and durably: readers see the old or the new document,
    /// also after a power failure. Blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the error of moving or syncing.
    pub fn put(self) -> io::Result<()> {
        self.file.persist(self.directory.join(NAME))?;
        // The rename is durable only after the directory is synced.
        File::open(&self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn document(version: u64, tuning: Json) -> TuningDocument {
        let Json::Object(tuning) = tuning else {
            panic!("no object");
        };
        TuningDocument { version, tuning }
    }

    #[test]
    fn the_tuning_file_round_trips_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = TuningFile::of(directory.path());
        assert_eq!(file.read().unwrap(), TuningDocument::default());
        let written = document(3, json!({"limits": {"sessions": 7, "call_timeout": "1s"}}));
        let lock = file.lock().unwrap();
        let prepared = file.prepare(&written, lock).unwrap();
        assert_eq!(file.read().unwrap(), TuningDocument::default());
        prepared.put().unwrap();
        assert_eq!(file.read().unwrap(), written);
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let names = std::fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 2, "the file and its lock are all there is");
    }

    #[test]
    fn tuning_changes_hold_an_exclusive_lock() {
        let directory = tempfile::tempdir().unwrap();
        let file = TuningFile::of(directory.path());
        let lock = file.lock().unwrap();
        let other = File::open(directory.path().join(LOCK)).unwrap();
        assert!(other.try_lock().is_err());
        drop(lock);
        assert!(other.try_lock().is_ok());
    }

    #[test]
    fn errors_of_invalid_files_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = TuningFile::of(directory.path());
        for text in [
            "",
            "{",
            "[]",
            r#"{"version":1}"#,
            r#"{"version":1,"tuning":{},"x":1}"#,
        ] {
            std::fs::write(file.path(), text).unwrap();
            let error = file.read().unwrap_err().to_string();
            assert!(error.contains("tuning.json"), "{error}");
        }
    }
}
