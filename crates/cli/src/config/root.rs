//! The whole configuration: its sections as deserialized, and the values derived from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use riglm_adapters_http::ControlConfig;
use riglm_adapters_mcp::downstream::{AuthConfig, KeyRing, ListenConfig};
use riglm_adapters_mcp::upstream::{Patience, UpstreamConfig};
use riglm_adapters_prediction::PredictionConfig;
use riglm_adapters_storage::{RecordingConfig, StorageConfig};
use riglm_adapters_telemetry::TelemetryConfig;
use riglm_app::limits::Limits;
use riglm_app::proxy::{HintUse, NamespacePolicy};
use riglm_app::safeguards::{ProfileSafeguardsConfig, SafeguardsConfig};
use riglm_app::selection::{FilteringConfig, Pause, ProfileConfig, ProfileFilteringConfig};
use riglm_app::work_sessions::WorkSessionsConfig;
use riglm_discovery::intent::IntentWeights;
use riglm_discovery::recommend::RecommendConfig;
use riglm_domain::experiment::ExperimentPlan;
use riglm_domain::id::{ProfileName, UpstreamName};
use riglm_domain::recommendation::Lexicon;
use serde::Deserialize;
use validator::Validate;

use super::{ConfigError, LoggingConfig, SearchConfig, Upstream};

/// The sections as deserialized.
#[derive(Clone, Debug, Default, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sections {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) naming: NamespacePolicy,
    pub(super) paused: Pause,
    #[validate(nested)]
    pub(super) upstream: Option<UpstreamConfig>,
    #[validate(nested)]
    pub(super) upstreams: BTreeMap<UpstreamName, UpstreamConfig>,
    #[validate(nested)]
    pub(super) listen: ListenConfig,
    #[validate(nested)]
    pub(super) control: ControlConfig,
    #[validate(nested)]
    pub(super) auth: AuthConfig,
    #[validate(nested)]
    pub(super) storage: StorageConfig,
    #[validate(nested)]
    pub(super) recording: RecordingConfig,
    #[validate(nested)]
    pub(super) filtering: FilteringConfig,
    pub(super) profiles: BTreeMap<ProfileName, ProfileSections>,
    #[validate(nested)]
    pub(super) prediction: PredictionConfig,
    #[validate(nested)]
    pub(super) search: SearchConfig,
    #[validate(nested)]
    pub(super) recommend: RecommendConfig,
    #[validate(nested)]
    pub(super) safeguards: SafeguardsConfig,
    #[validate(nested)]
    pub(super) intent: IntentWeights,
    pub(super) work_sessions: WorkSessionsConfig,
    #[validate(nested)]
    pub(super) limits: Limits,
    #[validate(nested)]
    pub(super) logging: LoggingConfig,
    #[validate(nested)]
    pub(super) telemetry: TelemetryConfig,
}

/// The subsections `profiles.NAME` as deserialized.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProfileSections {
    pub(super) filtering: ProfileFilteringConfig,
    pub(super) safeguards: ProfileSafeguardsConfig,
}

/// The transport of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Downstream {
    /// HTTP, on the address of section `listen`.
    #[default]
    Http,
    /// One client over standard input and output.
    Stdio,
}

/// The configuration of a process: validated, complete and immutable.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of all files that riglm writes.
    pub data_dir: PathBuf,
    /// The upstreams; see [`Self::upstreams`].
    pub(super) upstreams: Vec<Upstream>,
    /// The naming of tools: whether names have the namespace of their upstream.
    pub naming: NamespacePolicy,
    /// Whether the proxy is paused.
    pub paused: Pause,
    /// The transport of clients.
    pub downstream: Downstream,
    /// The use of hints in requests.
    pub hints: HintUse,
    /// Section `listen`.
    pub listen: ListenConfig,
    /// Section `control`.
    pub control: ControlConfig,
    /// The keys of section `auth`.
    pub keys: KeyRing,
    /// Section `storage`.
    pub storage: StorageConfig,
    /// Section `recording`.
    pub recording: RecordingConfig,
    /// Section `filtering`.
    pub filtering: FilteringConfig,
    /// Sections `profiles.NAME`.
    pub profiles: BTreeMap<ProfileName, ProfileConfig>,
    /// Sections `profiles.NAME.safeguards`.
    pub profile_safeguards: BTreeMap<ProfileName, ProfileSafeguardsConfig>,
    /// The profile of the client over standard input and output.
    pub profile: Option<ProfileName>,
    /// Section `prediction`.
    pub prediction: PredictionConfig,
    /// Section `search`.
    pub search: SearchConfig,
    /// Section `recommend`.
    pub recommend: RecommendConfig,
    /// The experiments of its subsections `experiments.NAME`, validated.
    pub experiments: Vec<ExperimentPlan>,
    /// Section `safeguards`.
    pub safeguards: SafeguardsConfig,
    /// Section `intent`.
    pub intent: IntentWeights,
    /// Section `work_sessions`.
    pub work_sessions: WorkSessionsConfig,
    /// Section `limits`.
    pub limits: Limits,
    /// Section `logging`.
    pub logging: LoggingConfig,
    /// Section `telemetry`.
    pub telemetry: TelemetryConfig,
}

impl Config {
    /// Returns the upstreams, at least one.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::NoUpstream`] if none is configured.
    pub fn upstreams(&self) -> Result<&[Upstream], ConfigError> {
        match self.upstreams.as_slice() {
            [] => Err(ConfigError::NoUpstream),
            upstreams => Ok(upstreams),
        }
    }

    /// Sets the patience with upstreams on this machine that refuse connections.
    pub fn set_patience(&mut self, patience: Patience) {
        for upstream in &mut self.upstreams {
            upstream.config.patience = patience;
        }
    }

    /// Returns the lexicon: the words that come with riglm, and those of the file in section
    /// `recommend`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] with the file name if the lexicon file cannot be read.
    pub fn lexicon(&self) -> Result<Lexicon, ConfigError> {
        let shipped = Lexicon::built_in();
        let Some(path) = &self.recommend.lexicon else {
            return Ok(shipped);
        };
        let refused = |reason: String| ConfigError::Lexicon {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        shipped
            .with(&text)
            .map_err(|error| refused(error.to_string()))
    }

    /// Returns the top-level keys, except upstreams, that differ between two configurations.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        [
            ("data_dir", self.data_dir == other.data_dir),
            ("naming", self.naming == other.naming),
            ("paused", self.paused == other.paused),
            ("listen", self.listen == other.listen),
            ("control", self.control == other.control),
            ("auth", self.keys == other.keys),
            ("storage", self.storage == other.storage),
            ("recording", self.recording == other.recording),
            ("filtering", self.filtering == other.filtering),
            (
                "profiles",
                self.profiles == other.profiles
                    && self.profile_safeguards == other.profile_safeguards,
            ),
            ("prediction", self.prediction == other.prediction),
            ("search", self.search == other.search),
            ("recommend", self.recommend == other.recommend),
            ("safeguards", self.safeguards == other.safeguards),
            ("intent", self.intent == other.intent),
            ("work_sessions", self.work_sessions == other.work_sessions),
            ("limits", self.limits == other.limits),
            ("logging", self.logging == other.logging),
            ("telemetry", self.telemetry == other.telemetry),
        ]
        .into_iter()
        .filter(|(_, is_equal)| !is_equal)
        .map(|(key, _)| key)
        .collect()
    }
}
