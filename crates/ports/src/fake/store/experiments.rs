//! Experiments: assignments, stops and outcomes.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use riglm_domain::experiment::{
    Assignment, AssignmentUnit, CallMeasure, ExperimentStop, RecommendationOutcome, UnitTrial,
};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::Verdict;
use riglm_domain::usage::invocation::{InvocationSummary, ToolSource};

use super::MemoryStore;
use super::rows::Rows;
use super::stored_form::ToStored;
use crate::analytics::{ExperimentRepository, StoreError, Topic};

#[async_trait]
impl ExperimentRepository for MemoryStore {
    async fn assign(&self, assignment: &Assignment) -> Result<Assignment, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let key = (
            assignment.arm.experiment.clone(),
            assignment.subject.clone(),
        );
        let row = || assignment.to_stored();
        Ok(rows.assignments.entry(key).or_insert_with(row).clone())
    }

    async fn assignments(&self, experiment: &str) -> Result<Vec<Assignment>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.assignments.values();
        let of_experiment = all.filter(|row| row.arm.experiment == experiment);
        Ok(of_experiment.cloned().collect())
    }

    async fn stop_experiment(
        &self,
        stop: &ExperimentStop,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows_for_writing()?;
        if rows.experiment_stops.contains_key(&stop.experiment) {
            return Ok(false);
        }
        let name = stop.experiment.clone();
        rows.experiment_stops.insert(name, stop.to_stored());
        rows.add_entry(audit);
        rows.touch(Topic::Experiments);
        Ok(true)
    }

    async fn experiment_stops(&self) -> Result<Vec<ExperimentStop>, StoreError> {
        Ok(self
            .rows
            .lock()
            .experiment_stops
            .values()
            .cloned()
            .collect())
    }

    async fn recommendation_outcomes(
        &self,
        experiment: &str,
        limit: u32,
    ) -> Result<Vec<RecommendationOutcome>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.recommendations.values();
        let outcomes = all.filter_map(|row| rows.outcome_of(row, experiment));
        Ok(outcomes.take(limit_as_usize(limit)).collect())
    }

    async fn call_trials(
        &self,
        experiment: &str,
        unit: AssignmentUnit,
        measure: CallMeasure,
        window: Duration,
        limit: u32,
    ) -> Result<Vec<UnitTrial>, StoreError> {
        let rows = self.rows.lock();
        let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
        let mut seen = HashSet::new();
        let trials = rows.calls.values().filter_map(|summary| {
            let call = &summary.invocation;
            let subject = match unit {
                AssignmentUnit::Principal => call.principal.to_string(),
                AssignmentUnit::WorkSession => call.work_session?.to_string(),
            };
            let key = (experiment.to_owned(), subject);
            let assigned = rows.assignments.get(&key)?;
            let from = assigned.assigned_at;
            let is_within = call.started_at >= from && call.started_at < from + window;
            if !is_within {
                return None;
            }
            let succeeded_at = match measure {
                CallMeasure::Success => succeeded_at(summary),
                CallMeasure::Coverage => {
                    let work_session = call.work_session.map(|id| id.to_string());
                    let session = work_session.unwrap_or_else(|| call.session.to_string());
                    // Only the first call of a tool in a session counts.
                    if !seen.insert((session, call.upstream.clone(), call.tool.clone())) {
                        return None;
                    }
                    (call.source == ToolSource::Shown).then_some(call.started_at)
                }
            };
            Some(UnitTrial {
                arm: assigned.arm.arm.clone(),
                unit: assigned.subject.clone(),
                at: call.started_at,
                succeeded_at,
            })
        });
        Ok(trials.take(limit_as_usize(limit)).collect())
    }
}

impl Rows {
    fn outcome_of(&self, row: &Recommendation, experiment: &str) -> Option<RecommendationOutcome> {
        let arm = row.experiment.as_ref();
        let arm = arm.filter(|arm| arm.experiment == experiment)?;
        let is_selection = |feedback: &&riglm_domain::usage::feedback::Feedback| {
            feedback.recommendation == Some(row.id) && feedback.verdict == Verdict::Selected
        };
        let selections = || self.feedback.values().filter(is_selection);
        let called = selections().filter_map(|feedback| feedback.invocation);
        let calls = called.filter_map(|id| self.calls.get(&id));
        Some(RecommendationOutcome {
            arm: arm.arm.clone(),
            principal: row.principal.clone(),
            session: row.session,
            work_session: row.work_session,
            shown_at: row.shown_at,
            selected_at: selections().map(|feedback| feedback.given_at).min(),
            succeeded_at: calls.filter_map(succeeded_at).min(),
        })
    }
}

/// The longest duration of a call in microseconds; longer ones are capped, so that sums do not
/// overflow.
const MOST_MICROS: u64 = 1_000_000_000_000_000;

/// Returns the time at which a call was answered with a successful result.
fn succeeded_at(summary: &InvocationSummary) -> Option<Timestamp> {
    let end = summary.end.as_ref();
    let end = end.filter(|end| end.outcome.is_success())?;
    let took = end.wait_us.min(MOST_MICROS) + end.duration_us.min(MOST_MICROS);
    let took = i64::try_from(took).unwrap_or(i64::MAX);
    let at = summary.invocation.started_at;
    at.checked_add(SignedDuration::from_micros(took)).ok()
}

fn limit_as_usize(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
