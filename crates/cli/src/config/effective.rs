//! The effective configuration of a running process: the one at the start, with the changeable keys
//! of a newer one.

use validator::Validate as _;

use super::experiments::{ReferencedSections, plans};
use super::tree::join;
use super::validation::{Refusal, first_refusal};
use super::{Config, ConfigError, Downstream, LoadedConfig, LoggingConfig, SearchConfig};
use riglm_adapters_http::ControlConfig;
use riglm_adapters_prediction::PredictionConfig;
use riglm_adapters_storage::RecordingConfig;
use riglm_app::safeguards::{LongResultsConfig, ProfileSafeguardsConfig, SafeguardsConfig};
use riglm_app::selection::ProfileConfig;
use riglm_discovery::recommend::RecommendConfig;
use riglm_domain::id::ProfileName;

impl LoadedConfig {
    /// Returns the effective configuration of a process that started with this configuration and
    /// then loaded `newer`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if changeable keys of `newer` conflict with keys that cannot change.
    pub fn followed_by(&self, newer: &Config) -> Result<Config, ConfigError> {
        let start = &self.config;
        let profile = |(name, of_start): (&ProfileName, &ProfileConfig)| {
            let newer = newer.profiles.get(name);
            (name.clone(), newer.unwrap_or(of_start).clone())
        };
        let profile_safeguards = |(name, of_start): (&ProfileName, &ProfileSafeguardsConfig)| {
            let newer = newer.profile_safeguards.get(name);
            (name.clone(), newer.unwrap_or(of_start).clone())
        };
        let config = Config {
            upstreams: newer.upstreams.clone(),
            paused: newer.paused,
            keys: newer.keys.clone(),
            control: ControlConfig {
                token: newer.control.token.clone(),
                keys: newer.control.keys.clone(),
                ..start.control.clone()
            },
            recording: RecordingConfig {
                retention_days: newer.recording.retention_days,
                ..start.recording.clone()
            },
            filtering: newer.filtering.clone(),
            profiles: start.profiles.iter().map(profile).collect(),
            profile_safeguards: (start.profile_safeguards.iter())
                .map(profile_safeguards)
                .collect(),
            prediction: PredictionConfig {
                shared_learning: start.prediction.shared_learning,
                ..newer.prediction.clone()
            },
            search: SearchConfig {
                tool_name: start.search.tool_name.clone(),
                call_tool_name: start.search.call_tool_name.clone(),
                set_context_name: start.search.set_context_name.clone(),
                show_session_name: start.search.show_session_name.clone(),
                ..newer.search.clone()
            },
            safeguards: SafeguardsConfig {
                long_results: LongResultsConfig {
                    tool_name: start.safeguards.long_results.tool_name.clone(),
                    ..newer.safeguards.long_results.clone()
                },
                ..newer.safeguards.clone()
            },
            recommend: RecommendConfig {
                weights: newer.recommend.weights,
                ..start.recommend.clone()
            },
            intent: newer.intent,
            limits: newer.limits.clone(),
            logging: LoggingConfig {
                level: newer.logging.level,
                ..start.logging.clone()
            },
            ..start.clone()
        };
        check(&config)?;
        check_clients(start, &config)?;
        Ok(config)
    }
}

/// Refuses to run without keys if keys were required at the start, or if other machines can reach
/// the server.
fn check_clients(start: &Config, config: &Config) -> Result<(), ConfigError> {
    let is_open = config.keys.is_empty();
    let address = start.listen.address;
    let reason = if is_open && !start.keys.is_empty() {
        "riglm started with client keys; removing all keys would accept every client and needs a \
         restart"
            .to_owned()
    } else if is_open && start.downstream == Downstream::Http && !address.ip().is_loopback() {
        format!("keys are required, because {address} can be reached from other machines")
    } else {
        return Ok(());
    };
    Err(ConfigError::Value {
        origin: "configuration".into(),
        key: "auth.keys".into(),
        reason,
    })
}

/// Repeats the validation of rules that combine changeable keys with keys that cannot change.
fn check(config: &Config) -> Result<(), ConfigError> {
    let general = ("filtering".to_owned(), config.filtering.clone());
    let of_profiles = config.profiles.iter().map(|(name, profile)| {
        let key = format!("profiles.{name}.filtering");
        (key, config.filtering.with_profile(&profile.filtering))
    });
    for (section, filtering) in std::iter::once(general).chain(of_profiles) {
        if let Err(errors) = filtering.validate()
            && let Some(refusal) = first_refusal(&errors)
        {
            let key = join(&section, &refusal.key)
                .trim_end_matches('.')
                .to_owned();
            return Err(ConfigError::Value {
                origin: "configuration".into(),
                key,
                reason: refusal.reason,
            });
        }
    }
    let around = ReferencedSections {
        search: &config.search,
        filtering: &config.filtering,
        prediction: &config.prediction,
        recording: config.recording.mode,
    };
    match plans(&config.recommend.experiments, around) {
        Ok(_) => Ok(()),
        Err(Refusal { key, reason }) => Err(ConfigError::Value {
            origin: "configuration".into(),
            key,
            reason: format!("{reason}; experiments keep their settings from startup"),
        }),
    }
}
