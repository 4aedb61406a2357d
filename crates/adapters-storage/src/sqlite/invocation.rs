//! Tool calls.

use async_trait::async_trait;
use riglm_domain::id::{RunId, ToolName};
use riglm_domain::invocation::{Invocation, InvocationEnd, InvocationSummary, ToolSource};
use riglm_domain::principal::Principal;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, StoreError};
use sqlx::{FromRow, SqliteConnection};

use super::SqliteStore;
use super::row::{Column, Rows, saturated};
use crate::error::failing;

const OPEN: &str = "
    INSERT INTO invocations (
        id, session, principal, upstream, tool, arguments_hash, arguments, started_at, sequence,
        source, request_bytes, outcome, duration_us, response_bytes, result)
    SELECT
        unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3, value ->> 4,
        unhex(value ->> 5), value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10,
        value ->> 11, value ->> 12, value ->> 13, value ->> 14
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (id) DO UPDATE SET
        outcome = excluded.outcome,
        duration_us = excluded.duration_us,
        response_bytes = excluded.response_bytes,
        result = excluded.result
    WHERE excluded.outcome IS NOT NULL
        AND (outcome IS NULL OR (outcome = 'unknown' AND excluded.outcome <> 'unknown'))";

const CLOSE: &str = "
    UPDATE invocations
    SET outcome = ended.value ->> 1,
        duration_us = ended.value ->> 2,
        response_bytes = ended.value ->> 3,
        result = ended.value ->> 4
    FROM jsonb_each(?1) AS ended
    WHERE invocations.id = unhex(ended.value ->> 0, '-')
        AND (outcome IS NULL OR (outcome = 'unknown' AND ended.value ->> 1 <> 'unknown'))";

const LOSE: &str = "
    UPDATE invocations
    SET outcome = 'unknown', duration_us = 0, response_bytes = 0
    WHERE outcome IS NULL AND session IN (SELECT id FROM sessions WHERE run = ?1)";

macro_rules! select_newest {
    ($filter:literal) => {
        concat!(
            "SELECT hex(id) AS id, hex(session) AS session, principal, upstream, tool,
                hex(arguments_hash) AS arguments_hash, arguments, started_at, sequence, source,
                request_bytes, outcome, duration_us, response_bytes, result
            FROM invocations ",
            $filter,
            " ORDER BY started_at DESC, invocations.id DESC LIMIT ?3"
        )
    };
}

macro_rules! count {
    ($filter:literal) => {
        concat!("SELECT count(*) FROM invocations ", $filter)
    };
}

/// Returns the statement with the conditions that the filter asks for, so that each one has the
/// index that fits. The session is parameter 1, the tool parameter 2, the limit parameter 3.
macro_rules! filtered {
    ($filter:expr, $statement:ident) => {
        match ($filter.session, &$filter.tool) {
            (None, None) => $statement!(""),
            (Some(_), None) => $statement!("WHERE session = ?1"),
            (None, Some(_)) => $statement!("WHERE tool = ?2"),
            // The plus keeps the planner from the index of the tool, which is the longer one to walk.
            (Some(_), Some(_)) => $statement!("WHERE session = ?1 AND +tool = ?2"),
        }
    };
}

/// Writes calls that began, with their ends where known.
pub(super) async fn write_opened<'a>(
    connection: &mut SqliteConnection,
    calls: impl Iterator<Item = (&'a Invocation, Option<&'a InvocationEnd>)>,
) -> Result<(), StoreError> {
    let rows = calls.map(|(call, end)| {
        (
            call.id,
            call.session,
            &call.principal,
            &call.upstream,
            &call.tool,
            call.arguments_hash,
            &call.arguments,
            call.started_at.as_microsecond(),
            saturated(call.sequence),
            call.source.as_str(),
            saturated(call.request_bytes),
            end.map(|end| end.outcome.as_str()),
            end.map(|end| saturated(end.duration_us)),
            end.map(|end| saturated(end.response_bytes)),
            end.and_then(|end| end.result.as_deref()),
        )
    });
    Rows::new(rows)?.write(connection, OPEN).await
}

/// Writes the ends of calls that began before. An end whose beginning was lost makes no row.
pub(super) async fn write_closed<'a>(
    connection: &mut SqliteConnection,
    ends: impl Iterator<Item = &'a InvocationEnd>,
) -> Result<(), StoreError> {
    let rows = ends.map(|end| {
        (
            end.id,
            end.outcome.as_str(),
            saturated(end.duration_us),
            saturated(end.response_bytes),
            &end.result,
        )
    });
    Rows::new(rows)?.write(connection, CLOSE).await
}

/// Closes the open calls of a lost run as `unknown`, with a duration of 0: how long they ran is
/// not known either.
pub(super) async fn write_lost(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<(), StoreError> {
    sqlx::query(LOSE)
        .bind(run.as_uuid().into_bytes().to_vec())
        .execute(connection)
        .await
        .map_err(failing("close the calls of a lost run"))?;
    Ok(())
}

#[async_trait]
impl InvocationRepository for SqliteStore {
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let newest: Vec<Row> = sqlx::query_as(filtered!(filter, select_newest))
            .bind(session_bytes(filter))
            .bind(filter.tool.as_ref().map(ToolName::as_str))
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(failing("read calls"))?;
        newest.into_iter().rev().map(TryInto::try_into).collect()
    }

    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(filtered!(filter, count))
            .bind(session_bytes(filter))
            .bind(filter.tool.as_ref().map(ToolName::as_str))
            .fetch_one(&self.readers)
            .await
            .map_err(failing("count calls"))?;
        // A count is never negative.
        Ok(count.unsigned_abs())
    }
}

fn session_bytes(filter: &InvocationFilter) -> Option<Vec<u8>> {
    filter
        .session
        .map(|session| session.as_uuid().into_bytes().to_vec())
}

#[derive(FromRow)]
struct Row {
    id: String,
    session: String,
    principal: String,
    upstream: String,
    tool: String,
    arguments_hash: String,
    arguments: Option<String>,
    started_at: i64,
    sequence: i64,
    source: String,
    request_bytes: i64,
    outcome: Option<String>,
    duration_us: Option<i64>,
    response_bytes: Option<i64>,
    result: Option<String>,
}

impl TryFrom<Row> for InvocationSummary {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let at = |column| Column {
            table: "invocations",
            column,
        };
        let invocation = Invocation {
            id: at("id").id(&row.id)?,
            session: at("session").id(&row.session)?,
            principal: Principal::named(&row.principal),
            upstream: at("upstream").upstream(&row.upstream)?,
            tool: ToolName::from(row.tool.as_str()),
            arguments_hash: at("arguments_hash").hash(&row.arguments_hash)?,
            arguments: row.arguments,
            started_at: at("started_at").time(row.started_at)?,
            sequence: at("sequence").count(row.sequence)?,
            source: at("source").present(ToolSource::parse(&row.source))?,
            request_bytes: at("request_bytes").count(row.request_bytes)?,
            continues: None,
            work_session: None,
            list_epoch: None,
            context: None,
        };
        let Some(outcome) = row.outcome else {
            return Ok(Self {
                invocation,
                end: None,
                request_tokens: None,
                response_tokens: None,
            });
        };
        let counted = |column, value: Option<i64>| {
            let column = at(column);
            column.present(value).and_then(|value| column.count(value))
        };
        let end = InvocationEnd {
            id: invocation.id,
            outcome: at("outcome").outcome(&outcome)?,
            duration_us: counted("duration_us", row.duration_us)?,
            response_bytes: counted("response_bytes", row.response_bytes)?,
            result: row.result,
        };
        Ok(Self {
            invocation,
            end: Some(end),
            request_tokens: None,
            response_tokens: None,
        })
    }
}
