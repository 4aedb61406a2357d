//! `GET /health`: whether the process serves, and which upstreams it reaches. Open to everyone who
//! reaches the port.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum UpstreamCondition {
    /// It is in use.
    Available,
    /// The last attempt to reach it failed.
    Unavailable {
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Nobody uses it now, and no attempt failed.
    Unused,
}

/// What the answer is made of.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) version: &'static str,
    pub(crate) upstreams: Upstreams,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
    #[serde(serialize_with = "by_name")]
    upstreams: Vec<UpstreamHealth>,
}

pub(crate) async fn show(State(source): State<Source>) -> Json<Health> {
    let upstreams = (source.upstreams)();
    let is_degraded = upstreams
        .iter()
        .any(|upstream| matches!(upstream.condition, UpstreamCondition::Unavailable { .. }));
    Json(Health {
        status: if is_degraded { "degraded" } else { "ok" },
        version: source.version,
        upstreams,
    })
}

fn by_name<S: Serializer>(upstreams: &[UpstreamHealth], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(upstreams.len()))?;
    for UpstreamHealth { name, condition } in upstreams {
        map.serialize_entry(name, condition)?;
    }
    map.end()
}
