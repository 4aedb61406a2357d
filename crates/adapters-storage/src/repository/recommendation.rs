//! Recommendations as they were shown to clients.

use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use super::scored_tools::{RecommendedColumn, RecommendedTools};
use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

const INSERT: Statement = Statement {
    table: "recommendations",
    sqlite: "
        INSERT INTO recommendations (
            id, session, principal, shown_at, intent_hash, intent, weights, experiment, arm,
            tools, work_session)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3,
            unhex(value ->> 4), value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9,
            unhex(value ->> 10, '-')
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO recommendations (
            id, session, principal, shown_at, intent_hash, intent, weights, experiment, arm,
            tools, work_session)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, (value ->> 3)::bigint,
            decode(value ->> 4, 'hex'), value ->> 5, (value ->> 6)::bigint, value ->> 7,
            value ->> 8, value ->> 9, (value ->> 10)::uuid
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

/// A statement that reads recommendations. The final clause determines the parameter.
macro_rules! select {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "recommendations",
            sqlite: concat!(
                "SELECT json_array(
                    hex(id), iif(session IS NULL, NULL, hex(session)), principal, shown_at,
                    hex(intent_hash), intent, weights, experiment, arm, json(tools),
                    iif(work_session IS NULL, NULL, hex(work_session)))
                FROM recommendations ",
                $sqlite
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    id, session, principal, shown_at, encode(intent_hash, 'hex'), intent, weights,
                    experiment, arm, tools::json, work_session)::text
                FROM recommendations ",
                $postgres
            ),
        }
    };
}

const SELECT_ONE: Statement = select!(
    "WHERE id = unhex(?1 ->> 0, '-')",
    "WHERE id = ($1::jsonb ->> 0)::uuid"
);

const SELECT_NEWEST: Statement = select!(
    "ORDER BY id DESC LIMIT ?1 ->> 0",
    "ORDER BY id DESC LIMIT ($1::jsonb ->> 0)::bigint"
);

pub(crate) async fn write(
    transaction: &mut Transaction,
    recommendations: &[&Recommendation],
) -> Result<(), StoreError> {
    let rows = recommendations.iter().map(|recommendation| {
        let experiment = recommendation.experiment.as_ref();
        (
            recommendation.id,
            recommendation.session,
            &recommendation.principal,
            Micros(recommendation.shown_at),
            recommendation.intent_hash,
            &recommendation.intent,
            recommendation.weights.map(saturating_count),
            experiment.map(|arm| &arm.experiment),
            experiment.map(|arm| &arm.arm),
            RecommendedColumn(&recommendation.tools),
            recommendation.work_session,
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the recommendation with this identifier.
pub(super) async fn recommendation(
    store: &Store,
    id: RecommendationId,
) -> Result<Option<Recommendation>, StoreError> {
    let database = store.database().await?;
    let row: Option<RecommendationRow> = database.row(&SELECT_ONE, &[id]).await?;
    Ok(row.map(Into::into))
}

/// Returns the newest recommendations, oldest first.
pub(super) async fn recommendations(
    store: &Store,
    limit: u32,
) -> Result<Vec<Recommendation>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<RecommendationRow> = database.rows(&SELECT_NEWEST, &[limit]).await?;
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

#[derive(Deserialize)]
pub(crate) struct RecommendationRow {
    id: RecommendationId,
    session: Option<SessionId>,
    principal: Principal,
    shown_at: Micros,
    intent_hash: KeyedHash,
    intent: Option<String>,
    weights: Option<u64>,
    experiment: Option<String>,
    arm: Option<String>,
    tools: RecommendedTools,
    work_session: Option<WorkSessionId>,
}

impl From<RecommendationRow> for Recommendation {
    fn from(row: RecommendationRow) -> Self {
        Self {
            id: row.id,
            session: row.session,
            work_session: row.work_session,
            principal: row.principal,
            shown_at: row.shown_at.0,
            intent_hash: row.intent_hash,
            intent: row.intent,
            weights: row.weights,
            experiment: (row.experiment.zip(row.arm))
                .map(|(experiment, arm)| ExperimentArm { experiment, arm }),
            tools: row.tools.into(),
        }
    }
}
