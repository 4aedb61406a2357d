//! `GET /health/ready`: the readiness of the process, part by part.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::health::{EncoderState, StoreCondition, UpstreamCondition};
use crate::state::ControlParts;

const UNREAD: &str = "overrides that forbid tools were not read from the database yet";

/// Readiness of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Whether requests can be answered. `false` during shutdown, while no upstream is available,
    /// and until the forbidden tools were read from the database.
    ready: bool,
    /// The upstreams.
    upstreams: Vec<Part>,
    /// The database.
    store: Part,
    /// The records that wait for the database.
    spool: Spool,
    /// The encoders of the search.
    encoders: Vec<Part>,
    /// The learning.
    prediction: Part,
}

/// A part of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Part {
    /// Name of the part.
    name: String,
    /// State of the part.
    state: String,
    /// Whether the part works.
    ok: bool,
    /// Reason of a failure, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The records that wait for the database.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spool {
    /// Size of the waiting records, in bytes.
    waiting_bytes: u64,
    /// Number of records lost since the start.
    dropped_records: u64,
    /// Whether no record was lost.
    ok: bool,
}

/// Show whether the process can answer requests.
#[utoipa::path(
    get, path = "/health/ready", operation_id = "getReadiness", tag = "observing",
    responses(
        (status = OK, description = "The process can answer requests; parts may be degraded.", body = Readiness),
        (status = SERVICE_UNAVAILABLE, description = "The process cannot answer requests.", body = Readiness),
        (status = FORBIDDEN, description = "`Host` or `Origin` is not allowed.",
            body = crate::problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> (StatusCode, Json<Readiness>) {
    let source = &parts.health;
    let upstreams: Vec<Part> = (source.upstreams)()
        .into_iter()
        .map(|upstream| {
            let (state, ok, reason) = match upstream.condition {
                UpstreamCondition::Available => ("available", true, None),
                UpstreamCondition::Starting => ("starting", true, None),
                UpstreamCondition::Unused => ("unused", true, None),
                UpstreamCondition::Unavailable { reason } => ("unavailable", false, reason),
            };
            Part {
                name: upstream.name,
                state: state.into(),
                ok,
                reason,
            }
        })
        .collect();
    let health = (source.store)();
    let (state, ok, reason) = match health.condition {
        StoreCondition::Ok if !health.is_read => ("degraded", false, Some(UNREAD.into())),
        StoreCondition::Ok => ("ok", true, None),
        StoreCondition::Off => ("off", true, None),
        StoreCondition::Degraded { reason } => ("degraded", false, Some(reason)),
    };
    let encoders = (source.encoders)().into_iter().map(|encoder| {
        let (state, ok) = match encoder.state {
            EncoderState::Unused => ("unused", true),
            EncoderState::Ready => ("ready", true),
            EncoderState::Failing => ("failing", false),
        };
        Part {
            name: encoder.model,
            state: state.into(),
            ok,
            reason: None,
        }
    });
    let learning = (source.learning)().condition;
    let is_reached = upstreams.iter().any(|upstream| upstream.ok);
    let ready = !(source.is_stopping)() && is_reached && health.is_read;
    let readiness = Readiness {
        ready,
        store: Part {
            name: "store".into(),
            state: state.into(),
            ok,
            reason,
        },
        spool: Spool {
            waiting_bytes: health.waiting_bytes,
            dropped_records: health.dropped_records,
            ok: health.dropped_records == 0,
        },
        encoders: encoders.collect(),
        prediction: Part {
            name: "prediction".into(),
            state: learning.as_str().into(),
            ok: !learning.is_delayed(),
            reason: None,
        },
        upstreams,
    };
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness))
}
