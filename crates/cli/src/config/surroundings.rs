//! What of the process configuration depends on, read once and handed on, so that tests can
//! make it up.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use super::{ConfigError, Environment};

/// Where a process runs.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The variables of the environment.
    pub environment: Environment,
    /// The directory that relative paths start from.
    pub working_directory: PathBuf,
    /// The platform's directory for configuration, without `riglm`.
    pub config_directory: Option<PathBuf>,
    /// The platform's directory for data, without `riglm`.
    pub data_directory: Option<PathBuf>,
}

impl Surroundings {
    /// Returns the surroundings of this process.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::NotUnicode`] when a variable of riglm is no Unicode text.
    pub fn of_process() -> Result<Self, ConfigError> {
        // A user without a home directory has no such directories, which is an error only for
        // those who need one.
        let directories = etcetera::base_strategy::choose_native_strategy().ok();
        Ok(Self {
            environment: Environment::of_process()?,
            working_directory: PathBuf::new(),
            config_directory: directories.as_ref().map(BaseStrategy::config_dir),
            data_directory: directories.as_ref().map(BaseStrategy::data_dir),
        })
    }
}
