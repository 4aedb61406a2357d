//! Stops of experiments, and their outcomes.

use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::experiment::{
    AssignmentUnit, CallMeasure, ExperimentStop, RecommendationOutcome, UnitTrial,
};
use riglm_domain::id::{InvocationId, SessionId, WorkSessionId};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{StoreError, Topic};
use serde::Deserialize;

use crate::database::{Statement, WriteLock};
use crate::repository::{audit, changes};
use crate::store::Store;
use crate::value::Micros;

// Changes no row if the experiment was stopped before.
const STOP: Statement = Statement {
    table: "experiment_stops",
    sqlite: "
        INSERT INTO experiment_stops (experiment, stopped_at, stopped_by, reason)
        VALUES (?1 ->> 0, ?1 ->> 1, ?1 ->> 2, ?1 ->> 3)
        ON CONFLICT (experiment) DO NOTHING",
    postgres: "
        INSERT INTO experiment_stops (experiment, stopped_at, stopped_by, reason)
        SELECT given ->> 0, (given ->> 1)::bigint, given ->> 2, given ->> 3
        FROM (SELECT $1::jsonb AS given) AS parameter
        ON CONFLICT (experiment) DO NOTHING",
};

const SELECT_STOPS: Statement = Statement {
    table: "experiment_stops",
    sqlite: "
        SELECT json_array(experiment, stopped_at, stopped_by, reason)
        FROM experiment_stops",
    postgres: "
        SELECT json_build_array(experiment, stopped_at, stopped_by, reason)::text
        FROM experiment_stops",
};

// A wait or a duration of more than 1e15 microseconds is capped, so that a sum does not overflow.
const SELECT_OUTCOMES: Statement = Statement {
    table: "recommendations",
    sqlite: "
        SELECT json_array(
            arm, principal, iif(session IS NULL, NULL, hex(session)),
            iif(work_session IS NULL, NULL, hex(work_session)), shown_at,
            (SELECT min(given_at)
                FROM feedback
                WHERE recommendation = recommendations.id AND verdict = 'selected'),
            (SELECT min(
                    invocations.started_at
                        + min(coalesce(invocations.wait_us, 0), 1000000000000000)
                        + min(invocations.duration_us, 1000000000000000))
                FROM feedback JOIN invocations ON invocations.id = feedback.invocation
                WHERE feedback.recommendation = recommendations.id
                    AND feedback.verdict = 'selected' AND invocations.outcome IN ('ok', 'cached')))
        FROM recommendations
        WHERE experiment = ?1 ->> 0 AND arm IS NOT NULL
        ORDER BY id
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(
            arm, principal, session, work_session, shown_at,
            (SELECT min(given_at)
                FROM feedback
                WHERE recommendation = recommendations.id AND verdict = 'selected'),
            (SELECT min(
                    invocations.started_at
                        + least(coalesce(invocations.wait_us, 0), 1000000000000000)
                        + least(invocations.duration_us, 1000000000000000))
                FROM feedback JOIN invocations ON invocations.id = feedback.invocation
                WHERE feedback.recommendation = recommendations.id
                    AND feedback.verdict = 'selected' AND invocations.outcome IN ('ok', 'cached')))::text
        FROM recommendations
        WHERE experiment = $1::jsonb ->> 0 AND arm IS NOT NULL
        ORDER BY id
        LIMIT ($1::jsonb ->> 1)::bigint",
};

const FIRST_ASSIGNMENT: Statement = Statement {
    table: "assignments",
    sqlite: "
        SELECT json_array(min(assigned_at))
        FROM assignments
        WHERE experiment = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(min(assigned_at))::text
        FROM assignments
        WHERE experiment = $1::jsonb ->> 0",
};

/// A statement that reads calls of the units of an experiment. Parameters: experiment, window,
/// limit, and a lower bound of the identifiers of the calls.
macro_rules! select_calls {
    (
        $sqlite_from:literal, $postgres_from:literal,
        $sqlite_went_well:literal, $postgres_went_well:literal, $counts:literal
    ) => {
        Statement {
            table: "invocations",
            sqlite: concat!(
                "SELECT json_array(arm, subject, started_at, ",
                $sqlite_went_well,
                ") FROM (
                    SELECT
                        arm, subject, started_at, wait_us, duration_us, outcome, source,
                        invocations.id, ",
                $counts,
                " AS place FROM ",
                $sqlite_from,
                " WHERE experiment = ?1 ->> 0
                        AND invocations.id >= unhex(?1 ->> 3, '-')
                        AND started_at >= assigned_at AND started_at < assigned_at + (?1 ->> 1))
                WHERE place = 1
                ORDER BY id
                LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(arm, subject, started_at, ",
                $postgres_went_well,
                ")::text FROM (
                    SELECT
                        arm, subject, started_at, wait_us, duration_us, outcome, source,
                        invocations.id, ",
                $counts,
                " AS place FROM ",
                $postgres_from,
                " WHERE experiment = $1::jsonb ->> 0
                        AND invocations.id >= ($1::jsonb ->> 3)::uuid
                        AND started_at >= assigned_at
                        AND started_at < assigned_at + ($1::jsonb ->> 1)::bigint) AS calls
                WHERE place = 1
                ORDER BY id
                LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// Each call counts, and succeeds with a result that is not an error.
macro_rules! select_successes {
    ($sqlite_from:literal, $postgres_from:literal) => {
        select_calls!(
            $sqlite_from,
            $postgres_from,
            "iif(
                outcome IN ('ok', 'cached'),
                started_at + min(coalesce(wait_us, 0), 1000000000000000)
                    + min(duration_us, 1000000000000000), NULL)",
            "CASE WHEN outcome IN ('ok', 'cached')
                THEN started_at + least(coalesce(wait_us, 0), 1000000000000000)
                    + least(duration_us, 1000000000000000) END",
            "1"
        )
    };
}

/// The first call of each tool in a session counts, and succeeds if the list had the tool.
macro_rules! select_coverage {
    ($sqlite_from:literal, $postgres_from:literal) => {
        select_calls!(
            $sqlite_from,
            $postgres_from,
            "iif(source = 'shown', started_at, NULL)",
            "CASE WHEN source = 'shown' THEN started_at END",
            "row_number() OVER (
                PARTITION BY subject, coalesce(work_session, session), upstream, tool
                ORDER BY invocations.id)"
        )
    };
}

// Calls have no index by principal, so each call is looked up in the assignments, in this order.
const SUCCESSES_OF_PRINCIPALS: Statement = select_successes!(
    "invocations CROSS JOIN assignments ON subject = principal",
    "invocations JOIN assignments ON subject = principal"
);

const SUCCESSES_OF_WORK_SESSIONS: Statement = select_successes!(
    "assignments CROSS JOIN invocations ON work_session = unhex(subject, '-')",
    "assignments JOIN invocations ON work_session::text = subject"
);

const COVERAGE_OF_PRINCIPALS: Statement = select_coverage!(
    "invocations CROSS JOIN assignments ON subject = principal",
    "invocations JOIN assignments ON subject = principal"
);

const COVERAGE_OF_WORK_SESSIONS: Statement = select_coverage!(
    "assignments CROSS JOIN invocations ON work_session = unhex(subject, '-')",
    "assignments JOIN invocations ON work_session::text = subject"
);

/// Stops an experiment; returns false if it was stopped before.
pub(super) async fn stop_experiment(
    store: &Store,
    stop: &ExperimentStop,
    audit: &AuditEntry,
) -> Result<bool, StoreError> {
    let row = (
        &stop.experiment,
        Micros(stop.stopped_at),
        &stop.stopped_by,
        &stop.reason,
    );
    let mut transaction = store.database().await?.begin(WriteLock::Decisions).await?;
    if transaction.execute(&STOP, &row).await? == 0 {
        return Ok(false);
    }
    audit::write(&mut transaction, audit).await?;
    changes::increase_revision(&mut transaction, Topic::Experiments).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Returns the stops of all experiments, ordered by name.
pub(super) async fn experiment_stops(store: &Store) -> Result<Vec<ExperimentStop>, StoreError> {
    let database = store.database().await?;
    let rows: Vec<StopRow> = database.rows(&SELECT_STOPS, &[(); 0]).await?;
    let mut stops: Vec<ExperimentStop> = rows.into_iter().map(Into::into).collect();
    // Ordered by the bytes of the names, independent of the collation of the database.
    stops.sort_unstable_by(|one, other| one.experiment.cmp(&other.experiment));
    Ok(stops)
}

/// Returns the outcomes of the oldest recommendations of an experiment, oldest first.
pub(super) async fn recommendation_outcomes(
    store: &Store,
    experiment: &str,
    limit: u32,
) -> Result<Vec<RecommendationOutcome>, StoreError> {
    let database = store.database().await?;
    let wanted = (experiment, limit);
    let rows: Vec<OutcomeRow> = database.rows(&SELECT_OUTCOMES, &wanted).await?;
    Ok(rows.into_iter().map(Into::into).collect())
}

/// Returns the oldest calls of an experiment as trials, oldest first.
pub(super) async fn call_trials(
    store: &Store,
    experiment: &str,
    unit: AssignmentUnit,
    measure: CallMeasure,
    window: Duration,
    limit: u32,
) -> Result<Vec<UnitTrial>, StoreError> {
    let database = store.database().await?;
    let first: Option<(Option<Micros>,)> = database.row(&FIRST_ASSIGNMENT, &[experiment]).await?;
    let Some((Some(Micros(first)),)) = first else {
        return Ok(Vec::new());
    };
    let statement = match (unit, measure) {
        (AssignmentUnit::Principal, CallMeasure::Success) => &SUCCESSES_OF_PRINCIPALS,
        (AssignmentUnit::WorkSession, CallMeasure::Success) => &SUCCESSES_OF_WORK_SESSIONS,
        (AssignmentUnit::Principal, CallMeasure::Coverage) => &COVERAGE_OF_PRINCIPALS,
        (AssignmentUnit::WorkSession, CallMeasure::Coverage) => &COVERAGE_OF_WORK_SESSIONS,
    };
    let window = i64::try_from(window.as_micros()).unwrap_or(LONGEST_WINDOW_US);
    // Identifiers begin with the time of the call.
    let lowest = InvocationId::new(first, [0; 10]);
    let wanted = (experiment, window.min(LONGEST_WINDOW_US), limit, lowest);
    let rows: Vec<TrialRow> = database.rows(statement, &wanted).await?;
    Ok(rows.into_iter().map(Into::into).collect())
}

/// A thousand years: a longer window could leave the range of times.
const LONGEST_WINDOW_US: i64 = 1_000 * 366 * 86_400_000_000;

#[derive(Deserialize)]
struct StopRow(String, Micros, Principal, Option<String>);

impl From<StopRow> for ExperimentStop {
    fn from(row: StopRow) -> Self {
        let StopRow(experiment, stopped_at, stopped_by, reason) = row;
        Self {
            experiment,
            stopped_at: stopped_at.0,
            stopped_by,
            reason,
        }
    }
}

#[derive(Deserialize)]
struct OutcomeRow(
    String,
    Principal,
    Option<SessionId>,
    Option<WorkSessionId>,
    Micros,
    Option<Micros>,
    Option<Micros>,
);

impl From<OutcomeRow> for RecommendationOutcome {
    fn from(row: OutcomeRow) -> Self {
        let OutcomeRow(arm, principal, session, work_session, shown_at, selected_at, succeeded_at) =
            row;
        let moment = |at: Option<Micros>| at.map(|at| at.0);
        Self {
            arm,
            principal,
            session,
            work_session,
            shown_at: shown_at.0,
            selected_at: moment(selected_at),
            succeeded_at: moment(succeeded_at),
        }
    }
}

#[derive(Deserialize)]
struct TrialRow(String, String, Micros, Option<Micros>);

impl From<TrialRow> for UnitTrial {
    fn from(row: TrialRow) -> Self {
        let TrialRow(arm, unit, at, succeeded_at) = row;
        let succeeded_at: Option<Timestamp> = succeeded_at.map(|at| at.0);
        Self {
            arm,
            unit,
            at: at.0,
            succeeded_at,
        }
    }
}
