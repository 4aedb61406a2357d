//! `GET` and `DELETE /clients/{id}/data`: export and deletion of all stored data of a client.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use http::{StatusCode, header};
use riglm_app::control::StoreError;
use riglm_app::control::client_data::{
    ClientDataPermit, ClientDataService, ClientRow, ClientSelector, DeletedRows, ErasureReport,
};
use riglm_app::control::name_lookup::quote;
use riglm_domain::privacy::principal::Principal;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use crate::access::Actor;
use crate::path::Segment;
use crate::problem::{NotFoundError, Problem, StoreErrors, TokenErrors, require_store};
use crate::state::ControlParts;

/// The size at which a part of an export is sent.
const CHUNK_BYTES: usize = 64 << 10;
/// The number of parts that wait for the reader.
const MAX_WAITING_CHUNKS: usize = 4;
/// The time after which an export ends whose reader takes nothing.
const READER_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two checks of whether the reader took something.
const READER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The rows that were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErasureView {
    /// Number of deleted sessions.
    sessions: u64,
    /// Number of deleted calls.
    calls: u64,
    /// Number of other deleted rows.
    others: u64,
    /// Whether nothing of the client is left. If false, a process still holds records of it: repeat
    /// the request.
    complete: bool,
    /// Whether a session of the client was open. Its new records are not deleted.
    has_open_session: bool,
}

impl From<ErasureReport> for ErasureView {
    fn from(erased: ErasureReport) -> Self {
        let DeletedRows {
            n_sessions,
            n_calls,
            n_others,
        } = erased.deleted;
        Self {
            sessions: n_sessions,
            calls: n_calls,
            others: n_others,
            complete: erased.is_complete,
            has_open_session: erased.has_open_session,
        }
    }
}

/// Export all stored data of a client.
///
/// The answer has one JSON object per line, with `kind` (such as `session` or `call`) and `row`. An
/// export that fails midway ends without the end of the transfer.
#[utoipa::path(
    get, path = "/clients/{id}/data", operation_id = "exportClientData", tag = "data", security(("token" = ["data"])),
    params(("id" = String, Path, description = "Identifier of the client (its keyed hash), or the name with which it identified itself.")),
    responses(
        (status = OK, description = "One row per line.", body = String, content_type = "application/x-ndjson"),
        TokenErrors, StoreErrors, NotFoundError,
    )
)]
pub(crate) async fn export(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let service = require_store(parts.client_data)?;
    let permit = permit_of(&service)?;
    let unknown = unknown_client(&id);
    let mut rows = start_export(service, ClientSelector(id), actor, permit);
    // The first part decides about the status.
    let first = match rows.recv().await {
        None => return Err(unknown),
        Some(first) => first?,
    };
    let rest = stream::unfold((Some(first), rows), |(first, mut rows)| async move {
        let next = match first {
            Some(first) => Ok(first),
            None => rows.recv().await?.map_err(io::Error::other),
        };
        Some((next, (None, rows)))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(rest)).into_response())
}

/// Delete all stored data of a client.
///
/// Records that a process has not yet written to the database are deleted, too. Learned data of all
/// clients are deleted and learned again from the remaining calls.
#[utoipa::path(
    delete, path = "/clients/{id}/data", operation_id = "deleteClientData", tag = "data", security(("token" = ["data"])),
    params(("id" = String, Path, description = "Identifier of the client (its keyed hash), or the name with which it identified itself.")),
    responses(
        (status = OK, description = "The numbers of deleted rows.", body = ErasureView),
        TokenErrors, StoreErrors, NotFoundError,
    )
)]
pub(crate) async fn delete(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(id): Segment,
) -> Result<Json<ErasureView>, Problem> {
    let service = require_store(parts.client_data)?;
    let permit = permit_of(&service)?;
    let unknown = unknown_client(&id);
    // On its own task: the caller may disconnect, and the deletion must not stop halfway.
    let deleting = tokio::spawn(async move {
        let _permit = permit;
        service.delete(&ClientSelector(id), &actor).await
    });
    let erased = deleting.await.map_err(|error| {
        tracing::error!("control port: a deletion failed: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the deletion failed")
    })??;
    if erased.deleted == DeletedRows::default() && erased.is_complete {
        return Err(unknown);
    }
    Ok(Json(erased.into()))
}

/// Returns a permit for an export or a deletion.
fn permit_of(service: &ClientDataService) -> Result<ClientDataPermit, Problem> {
    service.permit().ok_or_else(|| {
        let detail = "too many exports and deletions at the same time; retry later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })
}

fn unknown_client(id: &str) -> Problem {
    Problem::not_found(format!("nothing is stored of client {}", quote(id)))
}

/// Starts an export. Its parts arrive at the returned receiver, which is the end of the export when
/// it is dropped.
fn start_export(
    service: Arc<ClientDataService>,
    clients: ClientSelector,
    actor: Principal,
    permit: ClientDataPermit,
) -> mpsc::Receiver<Result<Bytes, StoreError>> {
    let (parts, receiver) = mpsc::channel(MAX_WAITING_CHUNKS);
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own, because it waits for the reader.
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut writer = ExportWriter {
            parts,
            waiting: Vec::new(),
        };
        let mut take = |row: ClientRow| writer.take(&row);
        let exported = runtime.block_on(service.export(&clients, &actor, &mut take));
        writer.finish(exported);
    });
    receiver
}

/// Collects the lines of an export into parts.
#[derive(Debug)]
struct ExportWriter {
    parts: mpsc::Sender<Result<Bytes, StoreError>>,
    waiting: Vec<u8>,
}

impl ExportWriter {
    /// Adds a row; returns whether the reader still takes rows.
    fn take(&mut self, ClientRow { kind, row }: &ClientRow) -> bool {
        let line = json!({"kind": kind, "row": row}).to_string();
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
        self.waiting.len() < CHUNK_BYTES || self.send_waiting()
    }

    fn send_waiting(&mut self) -> bool {
        let part = Bytes::from(std::mem::take(&mut self.waiting));
        self.send(Ok(part))
    }

    /// Sends a part; returns whether the reader took it in time.
    fn send(&self, mut part: Result<Bytes, StoreError>) -> bool {
        let deadline = Instant::now() + READER_TIMEOUT;
        loop {
            part = match self.parts.try_send(part) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(part)) => part,
            };
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(READER_CHECK_INTERVAL);
        }
    }

    fn finish(mut self, exported: Result<(), StoreError>) {
        let is_taken = self.waiting.is_empty() || self.send_waiting();
        if let (Err(error), true) = (exported, is_taken) {
            self.send(Err(error));
        }
    }
}
