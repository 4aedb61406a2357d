//! Detection of changes of the configuration file and the tuning file.
//!
//! The files are polled once a second. A poll costs a few microseconds, works on every file system
//! and with every way to replace a file (editors rename another file into its place, orchestrators
//! change a symbolic link), and needs no dependency.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    ConfigError, ConfigSource, LoadedConfig, Overrides, ProcessEnv, TuningFile, TuningUse,
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
    /// The path of the tuning file, once the data directory is known.
    tuning: Option<PathBuf>,
    seen: [Option<FileStamp>; 2],
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
            tuning: None,
            seen: [None, None],
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
        if self.tuning.is_none() {
            self.tuning = Some(TuningFile::of(&loaded.config.data_dir).path());
            // The tuning file was not watched during this load, so it is loaded again.
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

    fn look(&self) -> [Option<FileStamp>; 2] {
        [self.source.file(), self.tuning.clone()].map(|path| path.map(|path| FileStamp::of(&path)))
    }
}

#[cfg(test)]
mod tests;
