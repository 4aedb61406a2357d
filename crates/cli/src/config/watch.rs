//! Detection of changes of the configuration file, the tuning file and the file of secrets.
//!
//! The files are polled once a second. A poll costs a few microseconds, works on every file system
//! and with every way to replace a file (editors rename another file into its place, orchestrators
//! change a symbolic link), and needs no dependency.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    ConfigError, ConfigSource, LoadedConfig, Overrides, ProcessEnv, SecretsFile, TuningFile,
    TuningUse,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The share of the interval for which a file must not change before it is read: one part of this
/// many.
const SETTLE_SHARE: u32 = 5;

/// The largest number of waits for a file that keeps changing.
const MAX_SETTLE: u32 = 50;

/// The sources of the configuration, with the state of the files at the last read.
#[derive(Debug)]
pub struct Watch {
    source: ConfigSource,
    /// The paths of the tuning file and the file of secrets, once the data directory is known.
    of_data_dir: [Option<PathBuf>; 2],
    seen: [Option<FileStamp>; 3],
    every: Duration,
}

/// The identity and state of a file, for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    path: PathBuf,
    /// Device, inode, size, and modification time with nanoseconds; `None` for a file that cannot
    /// be inspected.
    state: Option<(u64, u64, u64, i64, i64)>,
}

impl FileStamp {
    fn of(path: &Path) -> Self {
        let state = std::fs::metadata(path).ok().map(|file| {
            (
                file.dev(),
                file.ino(),
                file.size(),
                file.mtime(),
                file.mtime_nsec(),
            )
        });
        Self {
            path: path.into(),
            state,
        }
    }
}

impl Watch {
    /// Creates a watch on the file that `overrides` and `surroundings` determine. That may be a
    /// different file at any time.
    #[must_use]
    pub fn new(overrides: Overrides, surroundings: ProcessEnv) -> Self {
        Self {
            source: ConfigSource::new(overrides, surroundings),
            of_data_dir: [None, None],
            seen: [None, None, None],
            every: LOOK_EVERY,
        }
    }

    /// Loads the configuration at the start. An invalid tuning file is ignored.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] like [`ConfigSource::load`].
    pub fn load(&mut self) -> Result<LoadedConfig, ConfigError> {
        // Before reading, so that no later change is missed.
        self.note();
        let loaded = self.source.load(TuningUse::IfSound)?;
        if self.of_data_dir.iter().all(Option::is_none) {
            let data_dir = &loaded.config.data_dir;
            let secrets = SecretsFile::of(data_dir).path().to_owned();
            self.of_data_dir = [Some(TuningFile::of(data_dir).path()), Some(secrets)];
            // These files were not watched during this load, so they are loaded again.
            return self.load();
        }
        Ok(loaded)
    }

    /// Returns the sources of the configuration.
    #[must_use]
    pub fn source(&self) -> &ConfigSource {
        &self.source
    }

    /// Records the state of the files, before they are read.
    pub fn note(&mut self) {
        self.seen = self.look();
    }

    /// Waits until a file differs from the loaded one and has stopped changing. It is cancellation
    /// safe.
    pub async fn wait_for_change(&mut self) {
        let mut now = self.look();
        while now == self.seen {
            tokio::time::sleep(self.every).await;
            now = self.look();
        }
        // A half-written file could be valid.
        for _ in 0..MAX_SETTLE {
            tokio::time::sleep(self.every / SETTLE_SHARE).await;
            let before = std::mem::replace(&mut now, self.look());
            if before == now {
                break;
            }
        }
        self.seen = now;
    }

    fn look(&self) -> [Option<FileStamp>; 3] {
        let [tuning, secrets] = self.of_data_dir.clone();
        let paths = [self.source.file(), tuning, secrets];
        paths.map(|path| path.map(|path| FileStamp::of(&path)))
    }
}

#[cfg(test)]
mod tests;
