//! `GET /health`: whether the process serves, which upstreams it reaches, whether what it records
//! gets to the database, which encoders searches have, and what is learned. Open to everyone who reaches the port.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use utoipa::ToSchema;

use crate::problem::ProblemBody;
use crate::router::ControlParts;

/// Returns what is known of each upstream, in the order of the answer.
pub type Upstreams = Arc<dyn Fn() -> Vec<UpstreamHealth> + Send + Sync>;

/// What is known of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// Its name.
    pub name: String,
    /// Whether it can be used.
    pub condition: UpstreamCondition,
}

/// Whether an upstream can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum UpstreamCondition {
    /// The last attempt to reach it succeeded.
    Available,
    /// The last attempt to reach it failed.
    Unavailable {
        /// The kind of failure, and no more, since nobody needs a token to read it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Nobody has connected to it yet.
    Unused,
}

/// Returns what is known of the store.
pub type Store = Arc<dyn Fn() -> StoreHealth + Send + Sync>;

/// What is known of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoreHealth {
    /// Whether records get to the database.
    #[serde(flatten)]
    pub condition: StoreCondition,
    /// How many bytes of records wait for the database.
    pub waiting_bytes: u64,
    /// How many records were lost since the start.
    pub dropped_records: u64,
    /// Whether it is known what it holds that decides about calls: which tools overrides forbid.
    #[serde(skip)]
    pub is_read: bool,
}

/// Whether records get to the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum StoreCondition {
    /// They do.
    Ok,
    /// They wait or are lost.
    Degraded {
        /// Why.
        reason: String,
    },
    /// Nothing is recorded.
    Off,
}

/// Returns what is known of the encoders, the better one first.
pub type Encoders = Arc<dyn Fn() -> Vec<EncoderHealth> + Send + Sync>;

/// What is known of an encoder of the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EncoderHealth {
    /// The model.
    pub model: String,
    /// Whether searches have its vectors.
    pub state: EncoderState,
}

/// Whether searches have the vectors of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncoderState {
    /// Nothing was embedded yet: no list was seen, or the vectors are being made.
    Unused,
    /// They have.
    Ready,
    /// It failed or was late the last time, and searches go on without it.
    Failing,
}

/// Returns what is known of the learning.
pub type Learning = Arc<dyn Fn() -> LearningHealth + Send + Sync>;

/// What is known of the learning from recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LearningHealth {
    /// Whether calls are learned from.
    #[serde(rename = "status")]
    pub condition: LearningCondition,
    /// How many calls were learned from since the start.
    pub learned_calls: u64,
    /// How often the predictor failed since the start.
    pub failures: u64,
}

/// Whether recorded calls are learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LearningCondition {
    /// Those that were there and those that come.
    Ok,
    /// What was learned before is still being read.
    Starting,
    /// The database does not give them; they are learned from later.
    Delayed,
    /// None: it is switched off, or nothing is recorded.
    Off,
}

impl LearningCondition {
    /// Returns the name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Starting => "starting",
            Self::Delayed => "delayed",
            Self::Off => "off",
        }
    }

    /// Returns whether calls wait to be learned from.
    pub(crate) fn is_delayed(self) -> bool {
        self == Self::Delayed
    }
}

/// What the answer is made of.
#[derive(Clone)]
pub struct HealthSource {
    /// The version of the program.
    pub version: &'static str,
    /// Asked at each request.
    pub upstreams: Upstreams,
    /// Asked at each request.
    pub store: Store,
    /// Asked at each request.
    pub encoders: Encoders,
    /// Asked at each request.
    pub learning: Learning,
    /// Says whether the process ends, so that it takes no new requests.
    pub is_stopping: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for HealthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthSource")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// How the process is doing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `degraded` where a part of it does not work as it is to.
    status: &'static str,
    /// The version of the program.
    version: &'static str,
    /// Each upstream, by its name.
    #[serde(serialize_with = "by_name")]
    #[schema(value_type = std::collections::BTreeMap<String, UpstreamCondition>)]
    upstreams: Vec<UpstreamHealth>,
    /// The store.
    store: StoreHealth,
    /// The encoders of the search, the better one first.
    encoders: Vec<EncoderHealth>,
    /// The learning.
    prediction: LearningHealth,
}

/// Whether the process serves, and how its parts are doing. Open to everyone who reaches the port.
#[utoipa::path(
    get, path = "/health", operation_id = "getHealth", tag = "observing",
    responses(
        (status = OK, description = "It serves.", body = Health),
        (status = FORBIDDEN, description = "`Host` or `Origin` is foreign.", body = ProblemBody,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Json<Health> {
    let source = parts.health;
    let upstreams = (source.upstreams)();
    let store = (source.store)();
    let encoders = (source.encoders)();
    let is_degraded = matches!(store.condition, StoreCondition::Degraded { .. })
        || upstreams
            .iter()
            .any(|upstream| matches!(upstream.condition, UpstreamCondition::Unavailable { .. }))
        || encoders
            .iter()
            .any(|encoder| encoder.state == EncoderState::Failing);
    Json(Health {
        status: if is_degraded { "degraded" } else { "ok" },
        version: source.version,
        upstreams,
        store,
        encoders,
        prediction: (source.learning)(),
    })
}

fn by_name<S: Serializer>(upstreams: &[UpstreamHealth], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(upstreams.len()))?;
    for UpstreamHealth { name, condition } in upstreams {
        map.serialize_entry(name, condition)?;
    }
    map.end()
}
