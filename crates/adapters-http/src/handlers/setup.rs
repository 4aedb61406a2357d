//! `GET /setup`: the checks of the set-up, and the MCP clients of the user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use crate::problem::{NotFoundError, Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// The time for which a report is returned again.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// The time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of the checks of the set-up. Clones share the newest report.
///
/// The inspection is locked while it runs.
#[derive(Clone)]
pub struct SetupSource(Arc<Mutex<Inspection>>);

/// The inspection of the set-up, with its newest report.
struct Inspection {
    inspect: Box<dyn Fn() -> SetupReport + Send>,
    newest: Option<DatedReport>,
}

/// A report with the time of its completion.
struct DatedReport {
    at: Instant,
    report: SetupReport,
}

/// The set-up of riglm on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SetupReport {
    /// The results of the checks that `riglm doctor` makes, in its order.
    pub checks: Vec<SetupCheck>,
    /// The MCP clients that riglm knows, in the order of `riglm clients --all`. Empty if the
    /// configuration cannot be loaded, or if the user of the proxy has no home directory.
    pub clients: Vec<SetupClient>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SetupCheck {
    /// Part of the set-up, such as `upstreams`.
    pub check: String,
    /// Severity.
    pub status: SetupStatus,
    /// The fact, with its place.
    pub text: String,
    /// The command or the edit that helps; empty if nothing has to be done.
    pub cure: String,
}

/// Severity of the result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetupStatus {
    /// Nothing has to be done.
    Ok,
    /// Something may be wrong.
    Warning,
    /// Something is wrong.
    Problem,
}

/// An MCP client that riglm knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SetupClient {
    /// Identifier, as in `riglm install --client`.
    pub id: String,
    /// Name of the product.
    pub name: String,
    /// Whether the user of the proxy has it.
    pub is_installed: bool,
    /// Its files with MCP servers that exist.
    pub files: Vec<String>,
    /// Whether these files have riglm: `yes`, `no`, `unreadable`, `other address` (than that of this
    /// proxy), `no key` (but the proxy needs one), or `program missing`.
    pub riglm: String,
    /// Start of the newest session whose declared client name is one of this client; `null` if none
    /// of the newest sessions is.
    pub last_seen: Option<Timestamp>,
    /// Entry for riglm in the notation of the client, as `riglm install` writes it. If the proxy needs
    /// a key, the entry names the variable with the key. `null` if the client connects through a
    /// program, or can only take the key itself.
    #[schema(value_type = Option<Object>)]
    pub entry: Option<Value>,
}

impl SetupSource {
    /// Creates a source from a function that inspects the set-up. It is called on demand, on a
    /// thread of the runtime that may block, and never twice at the same time.
    pub fn new(inspect: impl Fn() -> SetupReport + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Inspection {
            inspect: Box::new(inspect),
            newest: None,
        })))
    }

    /// Returns the report, or 503 if there is none in time. The inspection then goes on, and a later
    /// request gets its report.
    async fn report_within(&self, patience: Duration) -> Result<SetupReport, Problem> {
        timeout(patience, self.report()).await.unwrap_or_else(|_| {
            let detail = "the checks take long; try again in some seconds";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
        })
    }

    /// Returns the newest report if it is fresh, and otherwise a new one.
    async fn report(&self) -> Result<SetupReport, Problem> {
        let mut inspection = Arc::clone(&self.0).lock_owned().await;
        let newest = inspection.newest.as_ref();
        let fresh = newest.filter(|dated| dated.at.elapsed() < FRESH_FOR);
        if let Some(dated) = fresh {
            return Ok(dated.report.clone());
        }
        // It holds the lock and goes on if this request ends, so that there is only one inspection
        // at a time.
        let running = tokio::task::spawn_blocking(move || {
            let report = (inspection.inspect)();
            inspection.newest = Some(DatedReport {
                at: Instant::now(),
                report: report.clone(),
            });
            report
        });
        // A panic of the task is already reported.
        running.await.map_err(|_| {
            let detail = "failed to check the set-up";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })
    }
}

impl fmt::Debug for SetupSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupSource").finish_non_exhaustive()
    }
}

/// Check the set-up, and list the MCP clients of the user.
///
/// The same checks as those of `riglm doctor`, which change nothing and start no server. The result
/// is at most 10 seconds old.
#[utoipa::path(
    get, path = "/setup", operation_id = "getSetup", tag = "observing", security(("token" = ["read"])),
    responses(
        (status = OK, description = "The results of the checks, and the clients.", body = SetupReport),
        (status = INTERNAL_SERVER_ERROR, description = "The checks failed.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = SERVICE_UNAVAILABLE, description = "The checks take more than 10 seconds.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, NotFoundError,
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Result<Json<SetupReport>, Problem> {
    let source = parts.setup.ok_or_else(|| {
        Problem::not_found("the configuration of this process has no source to check")
    })?;
    Ok(Json(source.report_within(PATIENCE).await?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use axum::response::IntoResponse as _;

    use super::*;

    fn report() -> SetupReport {
        SetupReport {
            checks: vec![SetupCheck {
                check: "clock".into(),
                status: SetupStatus::Ok,
                text: "2026-11-27 12:00 UTC".into(),
                cure: String::new(),
            }],
            clients: Vec::new(),
        }
    }

    #[tokio::test]
    async fn requests_share_one_inspection() {
        let n_inspections = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&n_inspections);
        let source = SetupSource::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            report()
        });
        let other = source.clone();
        let together = tokio::join!(
            source.report_within(PATIENCE),
            other.report_within(PATIENCE)
        );
        assert_eq!(together.0.unwrap(), report());
        assert_eq!(together.1.unwrap(), report());
        assert_eq!(source.report_within(PATIENCE).await.unwrap(), report());
        assert_eq!(n_inspections.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_slow_inspection_is_503_and_its_report_is_used_later() {
        let n_inspections = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&n_inspections);
        let (release, released) = mpsc::channel::<()>();
        let released = parking_lot::Mutex::new(released);
        let source = SetupSource::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            // The other end is dropped if the test fails.
            let _ = released.lock().recv();
            report()
        });
        for _ in 0..2 {
            let refused = source.report_within(Duration::from_millis(20)).await;
            let status = refused.unwrap_err().into_response().status();
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        }
        release.send(()).unwrap();
        assert_eq!(source.report_within(PATIENCE).await.unwrap(), report());
        assert_eq!(n_inspections.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_names_of_the_status_are_those_of_the_doctor() {
        let all = [SetupStatus::Ok, SetupStatus::Warning, SetupStatus::Problem];
        let names = serde_json::to_value(all).unwrap();
        assert_eq!(names, serde_json::json!(["ok", "warning", "problem"]));
    }
}
