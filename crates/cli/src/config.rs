//! The configuration: what it consists of, where it comes from, and what is wrong with it.
//!
//! Layers, later wins: defaults in code, the file, what was tuned while riglm ran,
//! `RIGLM__SECTION__KEY` variables of the environment, the command line. Each section is a struct of the crate that reads it; this
//! module gathers them. Nothing else in riglm reads the environment.

use std::path::PathBuf;

mod auth;
mod environment;
mod error;
mod file;
mod intent;
mod interpolation;
mod leaves;
mod lenient;
mod load;
mod loaded;
mod logging;
mod overrides;
mod recommend;
mod root;
mod safeguards;
mod search;
mod server_name;
mod show;
mod source;
mod spellings;
mod surroundings;
mod telemetry;
mod tree;
mod tuned;
mod tuning;
mod tuning_file;
mod upstreams;
mod validation;
mod watch;

/// Returns the form that the log is to have where the command line cannot be read, but for the file that
/// it names.
#[must_use]
pub fn log_format(file: Option<PathBuf>) -> LogFormat {
    let surroundings = Surroundings::of_process();
    surroundings.map_or(LogFormat::Pretty, |surroundings| {
        let overrides = Overrides {
            file,
            ..Overrides::default()
        };
        ConfigSource::new(overrides, surroundings).log_format()
    })
}

pub use auth::{AuthConfig, KeyError, KeyRing};
pub use environment::Environment;
pub use error::ConfigError;
use error::Wrong;
pub use intent::IntentConfig;
pub use load::load;
pub use loaded::{FixedKey, Loaded};
pub use logging::{Level, LogFormat, LoggingConfig};
pub use overrides::{Overrides, UpstreamChoice};
pub use recommend::{
    ArmConfig, ExperimentConfig, RecommendConfig, WeightTuningConfig, WeightsConfig,
};
pub use riglm_adapters_mcp::downstream::ListenConfig;
pub use root::{Config, Downstream};
pub use safeguards::{
    BudgetConfig, CallLimitsConfig, LimitRuleConfig, LongResultsConfig, ProfileBudgetConfig,
    ProfileSafeguardsConfig, ResultCacheConfig, SafeguardsConfig, SearchesConfig,
};
pub use search::{ExpansionConfig, NotesConfig, RerankBy, RerankConfig, SearchConfig};
pub use show::{Shown, show};
pub use source::{ConfigSource, TuningUse};
pub use spellings::address;
pub use surroundings::Surroundings;
pub use telemetry::{OtlpConfig, ReceiverHeaders, TelemetryConfig};
pub use tuning_file::{Prepared, TuningDocument, TuningFile, TuningLock};
pub use upstreams::Upstream;
pub use watch::Watch;
