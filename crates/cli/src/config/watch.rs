//! Noticing that the configuration file in use, or what was tuned, changed, was replaced, or is
//! another one now.
//!
//! The files are looked at once a second: one look costs a few microseconds, works on every file system
//! and with every way to replace a file (editors rename another one into its place, orchestrators
//! turn a symbolic link), and needs no dependency.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ConfigError, ConfigSource, Loaded, Overrides, Surroundings, TuningFile, TuningUse};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much shorter than the time between two looks a file must stay as it is to be read.
const SETTLE_SHARE: u32 = 5;

/// How many times a file that keeps changing is waited for.
const MAX_SETTLE: u32 = 50;

/// Where the configuration comes from, and what its files looked like when they were last read.
#[derive(Debug)]
pub struct Watch {
    source: ConfigSource,
    /// What was tuned, once it is known where that is.
    tuning: Option<PathBuf>,
    seen: [Option<Stamp>; 2],
    every: Duration,
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Device, inode, size, and time of the last change with its nanoseconds; none of a file that
    /// cannot be looked at.
    state: Option<(u64, u64, u64, i64, i64)>,
}

impl Stamp {
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
    /// Returns a watch over the file that `overrides` and `surroundings` lead to, whichever that is
    /// at any time.
    #[must_use]
    pub fn new(overrides: Overrides, surroundings: Surroundings) -> Self {
        Self {
            source: ConfigSource::new(overrides, surroundings),
            tuning: None,
            seen: [None, None],
            every: LOOK_EVERY,
        }
    }

    /// Loads the configuration for the start. Tuning that cannot be used is left out.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] as [`ConfigSource::load`] does.
    pub fn load(&mut self) -> Result<Loaded, ConfigError> {
        // Before it is read, so that no later change is missed.
        self.note();
        let loaded = self.source.load(TuningUse::IfSound)?;
        if self.tuning.is_none() {
            self.tuning = Some(TuningFile::of(&loaded.config.data_dir).path());
            return self.load();
        }
        Ok(loaded)
    }

    /// Returns where the configuration comes from.
    #[must_use]
    pub fn source(&self) -> &ConfigSource {
        &self.source
    }

    /// Notes what the files look like, since they are going to be read.
    pub fn note(&mut self) {
        self.seen = self.look();
    }

    /// Waits until a file is another one than that which was loaded, and does not change any
    /// more. May be dropped and called again.
    pub async fn changed(&mut self) {
        let mut now = self.look();
        while now == self.seen {
            tokio::time::sleep(self.every).await;
            now = self.look();
        }
        // Half a file could be a valid one.
        for _ in 0..MAX_SETTLE {
            tokio::time::sleep(self.every / SETTLE_SHARE).await;
            let before = std::mem::replace(&mut now, self.look());
            if before == now {
                break;
            }
        }
        self.seen = now;
    }

    fn look(&self) -> [Option<Stamp>; 2] {
        [self.source.file(), self.tuning.clone()].map(|path| path.map(|path| Stamp::of(&path)))
    }
}

#[cfg(test)]
mod tests;
