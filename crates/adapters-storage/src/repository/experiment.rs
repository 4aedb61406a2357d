//! Experiments: assignments of subjects to arms, and the queries of stops and outcomes.

mod stops;

use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::experiment::{
    Assignment, AssignmentUnit, CallMeasure, ExperimentArm, ExperimentStop, RecommendationOutcome,
    UnitTrial,
};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_ports::analytics::{ExperimentRepository, StoreError};
use serde::Deserialize;

use super::returned_row::required_row;
use crate::database::{Statement, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const TABLE: &str = "assignments";

// Returns the row in any case: an existing assignment is set to its own value.
const ASSIGN: Statement = Statement {
    table: TABLE,
    sqlite: "
        INSERT INTO assignments (experiment, subject, arm, assigned_at)
        VALUES (?1 ->> 0, ?1 ->> 1, ?1 ->> 2, ?1 ->> 3)
        ON CONFLICT (experiment, subject) DO UPDATE SET arm = arm
        RETURNING json_array(experiment, subject, arm, assigned_at)",
    postgres: "
        INSERT INTO assignments (experiment, subject, arm, assigned_at)
        SELECT given ->> 0, given ->> 1, given ->> 2, (given ->> 3)::bigint
        FROM (SELECT $1::jsonb AS given) AS parameter
        ON CONFLICT (experiment, subject) DO UPDATE SET arm = assignments.arm
        RETURNING json_build_array(experiment, subject, arm, assigned_at)::text",
};

const SELECT_ONE: Statement = Statement {
    table: TABLE,
    sqlite: "
        SELECT json_array(experiment, subject, arm, assigned_at)
        FROM assignments
        WHERE experiment = ?1 ->> 0 AND subject = ?1 ->> 1",
    postgres: "
        SELECT json_build_array(experiment, subject, arm, assigned_at)::text
        FROM assignments
        WHERE experiment = $1::jsonb ->> 0 AND subject = $1::jsonb ->> 1",
};

const SELECT: Statement = Statement {
    table: TABLE,
    sqlite: "
        SELECT json_array(experiment, subject, arm, assigned_at)
        FROM assignments
        WHERE experiment = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(experiment, subject, arm, assigned_at)::text
        FROM assignments
        WHERE experiment = $1::jsonb ->> 0",
};

#[async_trait]
impl ExperimentRepository for Store {
    async fn assign(&self, assignment: &Assignment) -> Result<Assignment, StoreError> {
        let ExperimentArm { experiment, arm } = &assignment.arm;
        let database = self.database().await?;
        // An assignment never changes, so an existing one needs no lock.
        let key = (experiment, &assignment.subject);
        let known: Option<AssignmentRow> = database.row(&SELECT_ONE, &key).await?;
        if let Some(known) = known {
            return Ok(known.into());
        }
        let row = (
            experiment,
            &assignment.subject,
            arm,
            Micros(assignment.assigned_at),
        );
        let mut transaction = database.begin(WriteLock::Decisions).await?;
        let assigned: Option<AssignmentRow> = transaction.row(&ASSIGN, &row).await?;
        transaction.commit().await?;
        required_row(&ASSIGN, assigned)
    }

    async fn assignments(&self, experiment: &str) -> Result<Vec<Assignment>, StoreError> {
        let database = self.database().await?;
        let rows: Vec<AssignmentRow> = database.rows(&SELECT, &[experiment]).await?;
        let mut assignments: Vec<Assignment> = rows.into_iter().map(Into::into).collect();
        // Ordered by the bytes of the subjects, independent of the collation of the database.
        assignments.sort_unstable_by(|a, b| a.subject.cmp(&b.subject));
        Ok(assignments)
    }

    async fn stop_experiment(
        &self,
        stop: &ExperimentStop,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        stops::stop_experiment(self, stop, audit).await
    }

    async fn experiment_stops(&self) -> Result<Vec<ExperimentStop>, StoreError> {
        stops::experiment_stops(self).await
    }

    async fn recommendation_outcomes(
        &self,
        experiment: &str,
        limit: u32,
    ) -> Result<Vec<RecommendationOutcome>, StoreError> {
        stops::recommendation_outcomes(self, experiment, limit).await
    }

    async fn call_trials(
        &self,
        experiment: &str,
        unit: AssignmentUnit,
        measure: CallMeasure,
        window: Duration,
        limit: u32,
    ) -> Result<Vec<UnitTrial>, StoreError> {
        stops::call_trials(self, experiment, unit, measure, window, limit).await
    }
}

#[derive(Deserialize)]
struct AssignmentRow(String, String, String, Micros);

impl From<AssignmentRow> for Assignment {
    fn from(row: AssignmentRow) -> Self {
        let AssignmentRow(experiment, subject, arm, assigned_at) = row;
        Self {
            arm: ExperimentArm { experiment, arm },
            subject,
            assigned_at: assigned_at.0,
        }
    }
}
