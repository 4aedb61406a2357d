//! `GET /health`: the state of the process: its upstreams, the recording to the database, the
//! encoders of the search, and the learning. It needs no token.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use strum::IntoStaticStr;
use utoipa::ToSchema;

use crate::problem::ProblemBody;
use crate::state::ControlParts;

/// Returns the health of each upstream, in the order of the response.
pub type Upstreams = Arc<dyn Fn() -> Vec<UpstreamHealth> + Send + Sync>;

/// The health of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// The name of the upstream.
    pub name: String,
    /// Whether the upstream can be used.
    pub condition: UpstreamCondition,
}

/// State of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum UpstreamCondition {
    /// The last attempt to reach it succeeded.
    Available,
    /// The last attempt to reach it failed.
    Unavailable {
        /// Kind of failure. Details are left out, because no token is needed to read it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Its first start is in progress.
    Starting,
    /// No connection was tried yet.
    Unused,
}

/// Returns the health of the store.
pub type Store = Arc<dyn Fn() -> StoreHealth + Send + Sync>;

/// Health of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoreHealth {
    /// Whether records reach the database.
    #[serde(flatten)]
    pub condition: StoreCondition,
    /// Size of the records that wait for the database, in bytes.
    pub waiting_bytes: u64,
    /// Number of records lost since the start.
    pub dropped_records: u64,
    /// Whether the database was read since the start, so that forbidden tools are known.
    #[serde(skip)]
    pub is_read: bool,
}

/// Whether records reach the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum StoreCondition {
    /// Records reach the database.
    Ok,
    /// Records wait or are lost.
    Degraded {
        /// Reason.
        reason: String,
    },
    /// Recording is off.
    Off,
}

/// Returns the health of the encoders, the better one first.
pub type Encoders = Arc<dyn Fn() -> Vec<EncoderHealth> + Send + Sync>;

/// Health of an encoder of the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EncoderHealth {
    /// Name of the model.
    pub model: String,
    /// Whether searches use its vectors.
    pub state: EncoderState,
}

/// State of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncoderState {
    /// No vectors yet: no list was seen, or the vectors are being computed.
    Unused,
    /// Searches use its vectors.
    Ready,
    /// The last attempt failed or was too slow, and searches work without it.
    Failing,
}

/// Returns the health of the learning.
pub type Learning = Arc<dyn Fn() -> LearningHealth + Send + Sync>;

/// Health of the learning from recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LearningHealth {
    /// Whether recorded calls are learned.
    #[serde(rename = "status")]
    pub condition: LearningCondition,
    /// Number of calls learned since the start.
    pub learned_calls: u64,
    /// Number of failures of the predictor since the start.
    pub failures: u64,
}

/// State of the learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LearningCondition {
    /// Past calls are learned, and new ones as they arrive.
    Ok,
    /// The saved state is still being read.
    Starting,
    /// The database does not deliver the calls; they are learned later.
    Delayed,
    /// Learning or recording is off.
    Off,
}

impl LearningCondition {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether calls wait to be learned.
    pub(crate) fn is_delayed(self) -> bool {
        self == Self::Delayed
    }
}

/// The sources of the health response.
#[derive(Clone)]
pub struct HealthSource {
    /// The version of the program.
    pub version: &'static str,
    /// Called for each request.
    pub upstreams: Upstreams,
    /// Called for each request.
    pub store: Store,
    /// Called for each request.
    pub encoders: Encoders,
    /// Called for each request.
    pub learning: Learning,
    /// Returns whether the process is shutting down and accepts no new requests.
    pub is_stopping: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for HealthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthSource")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Health of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `degraded` if a part does not work.
    status: &'static str,
    /// Version of the program.
    version: &'static str,
    /// Whether the proxy is paused, so that lists are whole and safeguards are off.
    paused: bool,
    /// Time at which the pause ends by itself, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_until: Option<String>,
    /// Each upstream, by name.
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

/// Show the health of the process and its parts.
///
/// No token is needed.
#[utoipa::path(
    get, path = "/health", operation_id = "getHealth", tag = "observing",
    responses(
        (status = OK, description = "The process is running; `status` may be `degraded`.", body = Health),
        (status = FORBIDDEN, description = "`Host` or `Origin` is not allowed.", body = ProblemBody,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Json<Health> {
    let source = parts.health;
    let paused = parts.proxy.is_paused();
    let end = parts.proxy.pause().end().filter(|_| paused);
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
        paused,
        paused_until: end.map(|end| end.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_conditions_of_the_learning_are_stable() {
        use LearningCondition::{Delayed, Off, Ok, Starting};
        let names = [Ok, Starting, Delayed, Off].map(LearningCondition::as_str);
        assert_eq!(names, ["ok", "starting", "delayed", "off"]);
    }
}
