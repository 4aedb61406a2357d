//! Feedback on tools.

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{
    FeedbackId, InvocationId, RecommendationId, SessionId, ToolName, UpstreamName, WorkSessionId,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::feedback::{Comment, Feedback, Rating, Verdict};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::Micros;

const INSERT: Statement = Statement {
    table: "feedback",
    sqlite: "
        INSERT INTO feedback (
            id, principal, session, upstream, tool, tool_key, verdict, rating, recommendation,
            invocation, given_at, work_session, comment)
        SELECT
            unhex(value ->> 0, '-'), value ->> 1, unhex(value ->> 2, '-'), value ->> 3,
            value ->> 4, value ->> 5, value ->> 6, value ->> 7, unhex(value ->> 8, '-'),
            unhex(value ->> 9, '-'), value ->> 10, unhex(value ->> 11, '-'), value ->> 12
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO feedback (
            id, principal, session, upstream, tool, tool_key, verdict, rating, recommendation,
            invocation, given_at, work_session, comment)
        SELECT
            (value ->> 0)::uuid, value ->> 1, (value ->> 2)::uuid, value ->> 3, value ->> 4,
            (value ->> 5)::bigint, value ->> 6, (value ->> 7)::bigint, (value ->> 8)::uuid,
            (value ->> 9)::uuid, (value ->> 10)::bigint, (value ->> 11)::uuid, value ->> 12
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

/// A statement that reads the newest feedback that matches a condition. Parameters: limit, principal,
/// and the key, upstream and name of a tool.
macro_rules! select_newest {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "feedback",
            sqlite: concat!(
                "SELECT json_array(
                    hex(id), principal, iif(session IS NULL, NULL, hex(session)), upstream, tool,
                    verdict, rating, iif(recommendation IS NULL, NULL, hex(recommendation)),
                    iif(invocation IS NULL, NULL, hex(invocation)), given_at,
                    iif(work_session IS NULL, NULL, hex(work_session)), comment)
                FROM feedback ",
                $sqlite,
                " ORDER BY id DESC LIMIT ?1 ->> 0"
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    id, principal, session, upstream, tool, verdict, rating, recommendation,
                    invocation, given_at, work_session, comment)::text
                FROM feedback ",
                $postgres,
                " ORDER BY id DESC LIMIT ($1::jsonb ->> 0)::bigint"
            ),
        }
    };
}

const SELECT_NEWEST: Statement = select_newest!("", "");

// PostgreSQL has an index of the beginnings of names, because a name may be too long for an index.
const SELECT_NEWEST_OF_PRINCIPAL: Statement = select_newest!(
    "WHERE principal = ?1 ->> 1",
    "WHERE left(principal, 200) = left($1::jsonb ->> 1, 200) AND principal = $1::jsonb ->> 1"
);

const SELECT_NEWEST_ON_TOOL: Statement = select_newest!(
    "WHERE tool_key = ?1 ->> 2 AND upstream = ?1 ->> 3 AND tool = ?1 ->> 4
        AND (?1 ->> 1 IS NULL OR principal = ?1 ->> 1)",
    "WHERE tool_key = ($1::jsonb ->> 2)::bigint
        AND upstream = $1::jsonb ->> 3 AND tool = $1::jsonb ->> 4
        AND ($1::jsonb ->> 1 IS NULL OR principal = $1::jsonb ->> 1)"
);

pub(crate) async fn write(
    transaction: &mut Transaction,
    feedback: &[&Feedback],
) -> Result<(), StoreError> {
    let rows = feedback.iter().map(|feedback| {
        (
            feedback.id,
            &feedback.principal,
            feedback.session,
            &feedback.tool.upstream,
            &feedback.tool.tool,
            feedback.tool.key(),
            feedback.verdict,
            feedback.rating,
            feedback.recommendation,
            feedback.invocation,
            Micros(feedback.given_at),
            feedback.work_session,
            &feedback.comment,
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the newest feedback, oldest first: of a principal or of all, on a tool or on all tools.
pub(super) async fn feedback(
    store: &Store,
    scope: Option<&Principal>,
    tool: Option<&ToolRef>,
    limit: u32,
) -> Result<Vec<Feedback>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<FeedbackRow> = match (scope, tool) {
        (None, None) => database.rows(&SELECT_NEWEST, &[limit]).await?,
        (Some(scope), None) => {
            let parameter = (limit, scope);
            database
                .rows(&SELECT_NEWEST_OF_PRINCIPAL, &parameter)
                .await?
        }
        (scope, Some(tool)) => {
            let parameter = (limit, scope, tool.key(), &tool.upstream, &tool.tool);
            database.rows(&SELECT_NEWEST_ON_TOOL, &parameter).await?
        }
    };
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

#[derive(Deserialize)]
pub(crate) struct FeedbackRow {
    id: FeedbackId,
    principal: Principal,
    session: Option<SessionId>,
    upstream: UpstreamName,
    tool: ToolName,
    verdict: Verdict,
    rating: Option<Rating>,
    recommendation: Option<RecommendationId>,
    invocation: Option<InvocationId>,
    given_at: Micros,
    work_session: Option<WorkSessionId>,
    comment: Option<Comment>,
}

impl From<FeedbackRow> for Feedback {
    fn from(row: FeedbackRow) -> Self {
        Self {
            id: row.id,
            principal: row.principal,
            session: row.session,
            work_session: row.work_session,
            tool: ToolRef {
                upstream: row.upstream,
                tool: row.tool,
            },
            verdict: row.verdict,
            rating: row.rating,
            comment: row.comment,
            recommendation: row.recommendation,
            invocation: row.invocation,
            given_at: row.given_at.0,
        }
    }
}
