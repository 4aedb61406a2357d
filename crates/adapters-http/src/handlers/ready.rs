//! `GET /health/ready`: whether the process can do its work, part by part.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::health::{EncoderState, StoreCondition, UpstreamCondition};
use crate::router::ControlParts;

/// The reason of a process that is not ready because its database was not read yet.
const UNREAD: &str = "it did not tell yet which tools overrides forbid";

/// How far the process is ready.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Whether requests can be answered: none is taken while the process ends, nothing can be called
    /// while no upstream is available, and nothing should be while the database did not tell yet which
    /// tools overrides forbid.
    ready: bool,
    /// The upstreams.
    upstreams: Vec<Part>,
    /// The database.
    store: Part,
    /// What waits for the database.
    spool: Spool,
    /// The encoders of the search.
    encoders: Vec<Part>,
    /// The learning.
    prediction: Part,
}

/// A part of the process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Part {
    /// Its name.
    name: String,
    /// Its state.
    state: String,
    /// Whether it works as it is to.
    ok: bool,
    /// Why it does not, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What waits for the database.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spool {
    /// How many bytes wait.
    waiting_bytes: u64,
    /// How many records were lost since the start.
    dropped_records: u64,
    /// Whether nothing was lost.
    ok: bool,
}

/// Whether the process can do its work.
#[utoipa::path(
    get, path = "/health/ready", operation_id = "getReadiness", tag = "observing",
    responses(
        (status = OK, description = "It can; parts may be degraded.", body = Readiness),
        (status = SERVICE_UNAVAILABLE, description = "It cannot.", body = Readiness),
        (status = FORBIDDEN, description = "`Host` or `Origin` is foreign.",
            body = crate::problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Response {
    let source = &parts.health;
    let upstreams: Vec<Part> = (source.upstreams)()
        .into_iter()
        .map(|upstream| {
            let (state, ok, reason) = match upstream.condition {
                UpstreamCondition::Available => ("available", true, None),
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
    (status, Json(readiness)).into_response()
}
