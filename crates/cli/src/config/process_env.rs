//! The environment of the process that the configuration depends on. It is read once and passed on,
//! so that tests can replace it.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use super::{ConfigError, Environment};

/// The environment of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessEnv {
    /// The environment variables.
    pub environment: Environment,
    /// The base directory of relative paths.
    pub working_directory: PathBuf,
    /// The platform's configuration directory, without `riglm`.
    pub config_directory: Option<PathBuf>,
    /// The platform's data directory, without `riglm`.
    pub data_directory: Option<PathBuf>,
}

impl ProcessEnv {
    /// Returns the environment of this process.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::NotUnicode`] if a variable of riglm is not Unicode.
    pub fn of_process() -> Result<Self, ConfigError> {
        // A user without a home directory has no such directories. It is an error only if one is
        // needed.
        let directories = etcetera::base_strategy::choose_native_strategy().ok();
        Ok(Self {
            environment: Environment::of_process()?,
            working_directory: PathBuf::new(),
            config_directory: directories.as_ref().map(BaseStrategy::config_dir),
            data_directory: directories.as_ref().map(BaseStrategy::data_dir),
        })
    }
}
