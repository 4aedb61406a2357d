//! The configuration: its sections, its sources, and its errors.
//!
//! Later layers win: defaults in code, the file, values tuned while riglm ran,
//! `RIGLM__SECTION__KEY` variables of the environment, the command line. Each section is a struct
//! of the crate that reads it; this module combines them. Nothing else in riglm reads the
//! environment.

use std::path::PathBuf;

mod effective;
mod environment;
mod error;
mod experiments;
mod file;
mod interpolation;
mod lenient;
mod load;
mod loaded_config;
mod logging;
mod normalization;
mod overrides;
mod process_env;
mod root;
mod search;
mod secrets_file;
mod server_name;
mod show;
mod source;
mod tree;
mod tuning;
mod tuning_file;
mod upstreams;
mod validation;
mod value_hashes;
mod watch;

/// Returns the log format for a command line that cannot be parsed, except for the configuration
/// file that it names.
#[must_use]
pub fn log_format(file: Option<PathBuf>) -> LogFormat {
    let surroundings = ProcessEnv::of_process();
    surroundings.map_or(LogFormat::Pretty, |surroundings| {
        let overrides = Overrides {
            file,
            ..Overrides::default()
        };
        ConfigSource::new(overrides, surroundings).log_format()
    })
}

pub use environment::Environment;
pub use error::ConfigError;
use error::WrongValue;
pub(crate) use interpolation::{InterpolationError, is_variable_name};
pub use load::load;
pub use loaded_config::{FixedKey, LoadedConfig};
pub use logging::{Level, LogFormat, LoggingConfig};
pub use normalization::{AddressError, address};
pub use overrides::{Overrides, UpstreamChoice};
pub use process_env::ProcessEnv;
pub use root::{Config, Downstream};
pub use search::{ExpansionConfig, RerankBy, RerankConfig, SearchConfig};
pub(crate) use secrets_file::SecretsFile;
pub use show::{ConfigEntry, show};
pub use source::{ConfigSource, TuningUse};
pub use tuning_file::{PreparedTuning, TuningDocument, TuningFile, TuningLock};
pub use upstreams::Upstream;
pub(crate) use upstreams::{comparison_key, name_problem};
pub use watch::Watch;
