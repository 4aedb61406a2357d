//! The environment of the process that the configuration depends on. It is read once and passed on,
//! so that tests can replace it.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use super::{ConfigError, Environment, SecretsFile};

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
    /// The home directory of the user.
    pub home_directory: Option<PathBuf>,
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
            home_directory: etcetera::home_dir().ok(),
        })
    }

    /// Returns the value of a variable of the environment or, if it is unset or empty there, of the
    /// file of secrets of a data directory.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Secrets`] if the file cannot be used.
    pub(crate) fn variable(
        &self,
        name: &str,
        data_dir: &Path,
    ) -> Result<Option<String>, ConfigError> {
        if let Some(value) = self.environment.value(name) {
            return Ok(Some(value.to_owned()));
        }
        let value = SecretsFile::of(data_dir).read()?.remove(name);
        Ok(value.filter(|value| !value.is_empty()))
    }
}
