//! Recorded tool calls.

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ContextId, InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{
    CallState, CallTokens, Invocation, InvocationEnd, InvocationSummary, Outcome, PastCall,
    ToolSource,
};
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, StoreError};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};

use super::exchange;
use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

// `OR FAIL` saves SQLite a copy of each changed page, for undoing the statement alone. After an error
// the whole transaction is undone.
const OPEN: Statement = Statement {
    table: "invocations",
    sqlite: "
        INSERT OR FAIL INTO invocations (
            id, session, principal, upstream, tool, arguments_hash, arguments, started_at,
            sequence, source, request_bytes, continues, work_session, list_epoch, context,
            outcome, duration_us, response_bytes, result, wait_us, request_tokens,
            response_tokens)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3,
            value ->> 4, unhex(value ->> 5), value ->> 6, value ->> 7, value ->> 8, value ->> 9,
            value ->> 10, unhex(value ->> 11, '-'), unhex(value ->> 12, '-'), value ->> 13,
            unhex(value ->> 14, '-'), value ->> 15, value ->> 16, value ->> 17, value ->> 18,
            value ->> 19, value ->> 20, value ->> 21
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO UPDATE SET
            outcome = excluded.outcome,
            duration_us = excluded.duration_us,
            response_bytes = excluded.response_bytes,
            result = excluded.result,
            wait_us = excluded.wait_us
        WHERE excluded.outcome IS NOT NULL
            AND (outcome IS NULL OR (outcome = 'unknown' AND excluded.outcome <> 'unknown'))",
    postgres: "
        INSERT INTO invocations (
            id, session, principal, upstream, tool, arguments_hash, arguments, started_at,
            sequence, source, request_bytes, continues, work_session, list_epoch, context,
            outcome, duration_us, response_bytes, result, wait_us, request_tokens,
            response_tokens)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, value ->> 3, value ->> 4,
            decode(value ->> 5, 'hex'), value ->> 6, (value ->> 7)::bigint,
            (value ->> 8)::bigint, value ->> 9, (value ->> 10)::bigint, (value ->> 11)::uuid,
            (value ->> 12)::uuid, (value ->> 13)::bigint, (value ->> 14)::uuid, value ->> 15,
            (value ->> 16)::bigint, (value ->> 17)::bigint, value ->> 18,
            (value ->> 19)::bigint, (value ->> 20)::bigint, (value ->> 21)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO UPDATE SET
            outcome = excluded.outcome,
            duration_us = excluded.duration_us,
            response_bytes = excluded.response_bytes,
            result = excluded.result,
            wait_us = excluded.wait_us
        WHERE excluded.outcome IS NOT NULL
            AND (invocations.outcome IS NULL
                OR (invocations.outcome = 'unknown' AND excluded.outcome <> 'unknown'))",
};

const CLOSE: Statement = Statement {
    table: "invocations",
    sqlite: "
        UPDATE OR FAIL invocations
        SET outcome = ended.value ->> 1,
            duration_us = ended.value ->> 2,
            response_bytes = ended.value ->> 3,
            result = ended.value ->> 4,
            wait_us = ended.value ->> 5
        FROM jsonb_each(?1) AS ended
        WHERE invocations.id = unhex(ended.value ->> 0, '-')
            AND (outcome IS NULL OR (outcome = 'unknown' AND ended.value ->> 1 <> 'unknown'))",
    postgres: "
        UPDATE invocations
        SET outcome = ended.value ->> 1,
            duration_us = (ended.value ->> 2)::bigint,
            response_bytes = (ended.value ->> 3)::bigint,
            result = ended.value ->> 4,
            wait_us = (ended.value ->> 5)::bigint
        FROM jsonb_array_elements($1::jsonb) AS ended
        WHERE invocations.id = (ended.value ->> 0)::uuid
            AND (outcome IS NULL OR (outcome = 'unknown' AND ended.value ->> 1 <> 'unknown'))",
};

// The first count of each text stays.
const MEASURE: Statement = Statement {
    table: "invocations",
    sqlite: "
        UPDATE OR FAIL invocations
        SET request_tokens = coalesce(request_tokens, measured.value ->> 1),
            response_tokens = coalesce(response_tokens, measured.value ->> 2)
        FROM jsonb_each(?1) AS measured
        WHERE invocations.id = unhex(measured.value ->> 0, '-')",
    postgres: "
        UPDATE invocations
        SET request_tokens = coalesce(request_tokens, (measured.value ->> 1)::bigint),
            response_tokens = coalesce(response_tokens, (measured.value ->> 2)::bigint)
        FROM jsonb_array_elements($1::jsonb) AS measured
        WHERE invocations.id = (measured.value ->> 0)::uuid",
};

/// A statement that reads the newest calls that match a condition. The third parameter is the
/// limit.
macro_rules! select_newest {
    ($sqlite:expr, $postgres:expr) => {
        Statement {
            table: "invocations",
            sqlite: concat!(
                "SELECT json_array(
                    hex(id), hex(session), principal, upstream, tool, hex(arguments_hash),
                    arguments, started_at, sequence, source, request_bytes,
                    iif(continues IS NULL, NULL, hex(continues)),
                    iif(work_session IS NULL, NULL, hex(work_session)), list_epoch,
                    iif(context IS NULL, NULL, hex(context)), outcome, duration_us,
                    response_bytes, result, request_tokens, response_tokens, wait_us)
                FROM invocations ",
                $sqlite,
                " ORDER BY id DESC LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    id, session, principal, upstream, tool, encode(arguments_hash, 'hex'),
                    arguments, started_at, sequence, source, request_bytes, continues,
                    work_session, list_epoch, context, outcome, duration_us, response_bytes,
                    result, request_tokens, response_tokens, wait_us)::text
                FROM invocations ",
                $postgres,
                " ORDER BY id DESC LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// A statement that reads past calls with the client of their sessions. SQLite returns all of them
/// as one text, because the driver takes longer to pass a row on than to read it.
macro_rules! select_past {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "invocations",
            sqlite: concat!(
                "SELECT coalesce(group_concat(call, ''), '')
                FROM (
                    SELECT json_array(
                        hex(invocations.id), hex(invocations.session),
                        iif(work_session IS NULL, NULL, hex(work_session)),
                        invocations.principal, client_name, upstream, tool,
                        invocations.started_at, iif(continues IS NULL, NULL, hex(continues)),
                        iif(context IS NULL, NULL, hex(context)), outcome) AS call
                    FROM invocations
                    LEFT JOIN sessions ON sessions.id = invocations.session ",
                $sqlite,
                ")"
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    invocations.id, invocations.session, work_session, invocations.principal,
                    client_name, upstream, tool, invocations.started_at, continues, context,
                    outcome)::text
                FROM invocations
                LEFT JOIN sessions ON sessions.id = invocations.session ",
                $postgres
            ),
        }
    };
}

// Parameters: the last call before the page, limit. The nil identifier stands before all calls.
const SELECT_PAGE: Statement = select_past!(
    "WHERE invocations.id > coalesce(unhex(?1 ->> 0, '-'), x'')
    ORDER BY invocations.id
    LIMIT ?1 ->> 1",
    "WHERE invocations.id >
        coalesce(($1::jsonb ->> 0)::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY invocations.id
    LIMIT ($1::jsonb ->> 1)::bigint"
);

// Parameters: those above, the principal. PostgreSQL has an index of the beginnings of names, because
// a name may be too long for an index.
const SELECT_PAGE_OF_PRINCIPAL: Statement = select_past!(
    "WHERE invocations.principal = ?1 ->> 2
        AND invocations.id > coalesce(unhex(?1 ->> 0, '-'), x'')
    ORDER BY invocations.id
    LIMIT ?1 ->> 1",
    "WHERE left(invocations.principal, 200) = left($1::jsonb ->> 2, 200)
        AND invocations.principal = $1::jsonb ->> 2
        AND invocations.id >
            coalesce(($1::jsonb ->> 0)::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY invocations.id
    LIMIT ($1::jsonb ->> 1)::bigint"
);

// Parameter: limit.
const SELECT_RECENT: Statement = select_past!(
    "ORDER BY invocations.id DESC LIMIT ?1 ->> 0",
    "ORDER BY invocations.id DESC LIMIT ($1::jsonb ->> 0)::bigint"
);

// Parameters: limit, principal.
const SELECT_RECENT_OF_PRINCIPAL: Statement = select_past!(
    "WHERE invocations.principal = ?1 ->> 1
    ORDER BY invocations.id DESC LIMIT ?1 ->> 0",
    "WHERE left(invocations.principal, 200) = left($1::jsonb ->> 1, 200)
        AND invocations.principal = $1::jsonb ->> 1
    ORDER BY invocations.id DESC LIMIT ($1::jsonb ->> 0)::bigint"
);

/// A statement that reads the newest call but some that matches a condition. Parameters: the number
/// of newer calls, principal.
macro_rules! select_before_newest {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "invocations",
            sqlite: concat!(
                "SELECT json_array(hex(id)) FROM invocations ",
                $sqlite,
                " ORDER BY id DESC LIMIT 1 OFFSET ?1 ->> 0"
            ),
            postgres: concat!(
                "SELECT json_build_array(id)::text FROM invocations ",
                $postgres,
                " ORDER BY id DESC LIMIT 1 OFFSET ($1::jsonb ->> 0)::bigint"
            ),
        }
    };
}

const SELECT_BEFORE_NEWEST: Statement = select_before_newest!("", "");

const SELECT_BEFORE_NEWEST_OF_PRINCIPAL: Statement = select_before_newest!(
    "WHERE principal = ?1 ->> 1",
    "WHERE left(principal, 200) = left($1::jsonb ->> 1, 200) AND principal = $1::jsonb ->> 1"
);

// Parameters: the contexts, nothing, limit.
const SELECT_AFTER: Statement = select_newest!(
    "WHERE context IN (SELECT unhex(value, '-') FROM jsonb_each(?1, '$[0]'))",
    "WHERE context IN (
        SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb -> 0))"
);

// Parameters: the work session, nothing, limit.
const SELECT_OF_WORK: Statement = select_newest!(
    "WHERE work_session = unhex(?1 ->> 0, '-')",
    "WHERE work_session = ($1::jsonb ->> 0)::uuid"
);

// Parameters: the identifiers, nothing, limit.
const SELECT_BY_ID: Statement = select_newest!(
    "WHERE id IN (SELECT unhex(value, '-') FROM jsonb_each(?1, '$[0]'))",
    "WHERE id = ANY (ARRAY(
        SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb -> 0)))"
);

// Parameter: the tools, each with its upstream and its name. Each row is looked up in the index of
// names from its newest entry on.
const SELECT_LAST: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(invocations.upstream, invocations.tool, invocations.started_at)
        FROM json_each(?1) AS asked
        CROSS JOIN invocations ON invocations.id = (
            SELECT id
            FROM invocations
            WHERE tool = asked.value ->> 1 AND upstream = asked.value ->> 0
            ORDER BY id DESC
            LIMIT 1)",
    postgres: "
        SELECT json_build_array(newest.upstream, newest.tool, newest.started_at)::text
        FROM jsonb_array_elements($1::jsonb) AS asked
        CROSS JOIN LATERAL (
            SELECT upstream, tool, started_at
            FROM invocations
            WHERE left(tool, 200) = left(asked.value ->> 1, 200)
                AND tool = asked.value ->> 1
                AND upstream = asked.value ->> 0
            ORDER BY id DESC
            LIMIT 1) AS newest",
};

/// A statement that counts the calls that match a condition, with the same parameters.
macro_rules! count {
    ($sqlite:expr, $postgres:expr) => {
        Statement {
            table: "invocations",
            sqlite: concat!(
                "SELECT json_array(count(*)) FROM invocations ",
                $sqlite,
                " LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(count(*))::text FROM invocations ",
                $postgres,
                " LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// Returns the statement with only the conditions of the filter, so that each one can use its
/// index.
macro_rules! filtered {
    ($filter:expr, $statement:ident) => {
        if ($filter.upstream.is_none() && $filter.since.is_none() && $filter.state.is_none()) {
            by_index!($filter, $statement, "", "")
        } else if $filter.state == Some(CallState::InFlight) {
            // Few calls are in flight. Without this hint, SQLite chooses the index with the sort
            // order and scans all calls that ended.
            $statement!(
                "INDEXED BY invocations_open
                WHERE outcome IS NULL
                AND (?1 ->> 0 IS NULL OR session = unhex(?1 ->> 0, '-'))
                AND (?1 ->> 1 IS NULL OR tool = ?1 ->> 1)
                AND id >= coalesce(unhex(?1 ->> 3, '-'), x'')
                AND (?1 ->> 4 IS NULL OR upstream = ?1 ->> 4)",
                "WHERE outcome IS NULL
                AND ($1::jsonb ->> 0 IS NULL OR session = ($1::jsonb ->> 0)::uuid)
                AND ($1::jsonb ->> 1 IS NULL OR tool = $1::jsonb ->> 1)
                AND id >= coalesce(
                    ($1::jsonb ->> 3)::uuid, '00000000-0000-0000-0000-000000000000')
                AND ($1::jsonb ->> 4 IS NULL OR upstream = $1::jsonb ->> 4)"
            )
        } else {
            by_index!(
                $filter,
                $statement,
                " AND id >= coalesce(unhex(?1 ->> 3, '-'), x'')
                AND (?1 ->> 4 IS NULL OR upstream = ?1 ->> 4)
                AND (?1 ->> 5 IS NULL OR outcome = ?1 ->> 5)",
                " AND id >= coalesce(
                    ($1::jsonb ->> 3)::uuid, '00000000-0000-0000-0000-000000000000')
                AND ($1::jsonb ->> 4 IS NULL OR upstream = $1::jsonb ->> 4)
                AND ($1::jsonb ->> 5 IS NULL OR outcome = $1::jsonb ->> 5)"
            )
        }
    };
}

/// Returns the statement with the conditions on session and tool, followed by further ones.
macro_rules! by_index {
    ($filter:expr, $statement:ident, $sqlite:literal, $postgres:literal) => {
        match ($filter.session, &$filter.tool) {
            (None, None) => {
                $statement!(
                    concat!("WHERE true", $sqlite),
                    concat!("WHERE true", $postgres)
                )
            }
            (Some(_), None) => $statement!(
                concat!("WHERE session = unhex(?1 ->> 0, '-')", $sqlite),
                concat!("WHERE session = ($1::jsonb ->> 0)::uuid", $postgres)
            ),
            // PostgreSQL has an index of the beginnings of names, because a name may be too long
            // for an index.
            (None, Some(_)) => $statement!(
                concat!("WHERE tool = ?1 ->> 1", $sqlite),
                concat!(
                    "WHERE left(tool, 200) = left($1::jsonb ->> 1, 200)
                    AND tool = $1::jsonb ->> 1",
                    $postgres
                )
            ),
            // The plus keeps the planner from using the index of the tool, which has more entries
            // to scan.
            (Some(_), Some(_)) => $statement!(
                concat!(
                    "WHERE session = unhex(?1 ->> 0, '-') AND +tool = ?1 ->> 1",
                    $sqlite
                ),
                concat!(
                    "WHERE session = ($1::jsonb ->> 0)::uuid AND tool = $1::jsonb ->> 1",
                    $postgres
                )
            ),
        }
    };
}

/// The parameter of a filtered statement: session, tool, limit, the lowest identifier, upstream,
/// and the outcome of calls that ended.
#[derive(Serialize)]
struct FilterParameter<'a>(
    Option<SessionId>,
    Option<&'a ToolName>,
    u32,
    Option<InvocationId>,
    Option<&'a UpstreamName>,
    Option<&'static str>,
);

impl<'a> FilterParameter<'a> {
    fn new(filter: &'a InvocationFilter, limit: u32) -> Self {
        Self(
            filter.session,
            filter.tool.as_ref(),
            limit,
            filter.since.map(|since| InvocationId::new(since, [0; 10])),
            filter.upstream.as_ref(),
            filter.state.and_then(|state| match state {
                CallState::InFlight => None,
                CallState::Ended(outcome) => Some(outcome.as_str()),
            }),
        )
    }
}

/// A call that began, with its end and its token counts if they are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCall<'a> {
    pub(crate) opened: &'a Invocation,
    pub(crate) end: Option<&'a InvocationEnd>,
    pub(crate) tokens: Option<CallTokens>,
}

/// Writes calls that began. If a call has a row, only its end is written.
pub(crate) async fn write_opened<'a>(
    transaction: &mut Transaction,
    calls: impl Iterator<Item = NewCall<'a>>,
) -> Result<(), StoreError> {
    transaction.write(&OPEN, EncodedRows::new(calls)?).await?;
    Ok(())
}

/// Writes the ends of calls that began before. An end without a beginning creates no row.
pub(crate) async fn write_closed<'a>(
    transaction: &mut Transaction,
    ends: impl Iterator<Item = &'a InvocationEnd>,
) -> Result<(), StoreError> {
    let rows = ends.map(|end| {
        (
            end.id,
            end.outcome,
            saturating_count(end.duration_us),
            saturating_count(end.response_bytes),
            &end.result,
            saturating_count(end.wait_us),
        )
    });
    transaction.write(&CLOSE, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Writes the token counts of calls that have rows, one for each call.
pub(crate) async fn write_tokens(
    transaction: &mut Transaction,
    tokens: impl Iterator<Item = CallTokens>,
) -> Result<(), StoreError> {
    let rows = tokens.map(|tokens| {
        (
            tokens.id,
            tokens.request.map(saturating_count),
            tokens.response.map(saturating_count),
        )
    });
    transaction.write(&MEASURE, EncodedRows::new(rows)?).await?;
    Ok(())
}

#[async_trait]
impl InvocationRepository for Store {
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let database = self.database().await?;
        let parameter = FilterParameter::new(filter, limit);
        let newest: Vec<InvocationRow> = database
            .rows(&filtered!(filter, select_newest), &parameter)
            .await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }

    async fn calls_by_id(
        &self,
        ids: &[InvocationId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let database = self.database().await?;
        let parameter = (ids, (), u32::MAX);
        let newest: Vec<InvocationRow> = database.rows(&SELECT_BY_ID, &parameter).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }

    async fn past_calls(
        &self,
        scope: Option<&Principal>,
        after: Option<InvocationId>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        let database = self.database().await?;
        let page: Vec<PastCallRow> = match scope {
            None => database.rows(&SELECT_PAGE, &(after, limit)).await?,
            Some(scope) => {
                let parameter = (after, limit, scope);
                database.rows(&SELECT_PAGE_OF_PRINCIPAL, &parameter).await?
            }
        };
        Ok(page.into_iter().map(Into::into).collect())
    }

    async fn recent_calls(
        &self,
        scope: Option<&Principal>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        let database = self.database().await?;
        let newest: Vec<PastCallRow> = match scope {
            None => database.rows(&SELECT_RECENT, &[limit]).await?,
            Some(scope) => {
                let parameter = (limit, scope);
                database
                    .rows(&SELECT_RECENT_OF_PRINCIPAL, &parameter)
                    .await?
            }
        };
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }

    async fn call_before_newest(
        &self,
        scope: Option<&Principal>,
        n: u32,
    ) -> Result<Option<InvocationId>, StoreError> {
        let database = self.database().await?;
        let found: Option<(InvocationId,)> = match scope {
            None => database.row(&SELECT_BEFORE_NEWEST, &[n]).await?,
            Some(scope) => {
                let parameter = (n, scope);
                database
                    .row(&SELECT_BEFORE_NEWEST_OF_PRINCIPAL, &parameter)
                    .await?
            }
        };
        Ok(found.map(|(id,)| id))
    }

    async fn calls_after(
        &self,
        contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let database = self.database().await?;
        let parameter = (contexts, (), u32::MAX);
        let newest: Vec<InvocationRow> = database.rows(&SELECT_AFTER, &parameter).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }

    async fn last_calls(&self, tools: &[ToolRef]) -> Result<Vec<(ToolRef, Timestamp)>, StoreError> {
        if tools.is_empty() {
            return Ok(Vec::new());
        }
        let database = self.database().await?;
        let asked = tools.iter().map(|tool| (&tool.upstream, &tool.tool));
        let asked: Vec<(&UpstreamName, &ToolName)> = asked.collect();
        let last: Vec<(UpstreamName, ToolName, Micros)> =
            database.rows(&SELECT_LAST, &asked).await?;
        let last = last.into_iter();
        Ok(last
            .map(|(upstream, tool, at)| (ToolRef { upstream, tool }, at.0))
            .collect())
    }

    async fn calls_of_work(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        let database = self.database().await?;
        let parameter = (work_session, (), limit);
        let newest: Vec<InvocationRow> = database.rows(&SELECT_OF_WORK, &parameter).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }

    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError> {
        let database = self.database().await?;
        let parameter = FilterParameter::new(filter, 1);
        let row: Option<(u64,)> = database.row(&filtered!(filter, count), &parameter).await?;
        Ok(row.map_or(0, |(count,)| count))
    }

    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError> {
        exchange::exchanges(self, session, limit).await
    }
}

/// The columns of the row, serialized as one array. A tuple can have at most 16 elements.
impl Serialize for NewCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (call, end) = (self.opened, self.end);
        let request_tokens = self.tokens.and_then(|tokens| tokens.request);
        let response_tokens = self.tokens.and_then(|tokens| tokens.response);
        let mut row = serializer.serialize_seq(Some(22))?;
        row.serialize_element(&call.id)?;
        row.serialize_element(&call.session)?;
        row.serialize_element(&call.principal)?;
        row.serialize_element(&call.upstream)?;
        row.serialize_element(&call.tool)?;
        row.serialize_element(&call.arguments_hash)?;
        row.serialize_element(&call.arguments)?;
        row.serialize_element(&Micros(call.started_at))?;
        row.serialize_element(&saturating_count(call.sequence))?;
        row.serialize_element(&call.source)?;
        row.serialize_element(&saturating_count(call.request_bytes))?;
        row.serialize_element(&call.continues)?;
        row.serialize_element(&call.work_session)?;
        row.serialize_element(&call.list_epoch.map(saturating_count))?;
        row.serialize_element(&call.context)?;
        row.serialize_element(&end.map(|end| end.outcome))?;
        row.serialize_element(&end.map(|end| saturating_count(end.duration_us)))?;
        row.serialize_element(&end.map(|end| saturating_count(end.response_bytes)))?;
        row.serialize_element(&end.and_then(|end| end.result.as_deref()))?;
        row.serialize_element(&end.map(|end| saturating_count(end.wait_us)))?;
        row.serialize_element(&request_tokens.map(saturating_count))?;
        row.serialize_element(&response_tokens.map(saturating_count))?;
        row.end()
    }
}

/// The columns in the order of the statement.
#[derive(Deserialize)]
pub(crate) struct InvocationRow {
    id: InvocationId,
    session: SessionId,
    principal: Principal,
    upstream: UpstreamName,
    tool: ToolName,
    arguments_hash: KeyedHash,
    arguments: Option<String>,
    started_at: Micros,
    sequence: u64,
    source: ToolSource,
    request_bytes: u64,
    continues: Option<InvocationId>,
    work_session: Option<WorkSessionId>,
    list_epoch: Option<u64>,
    context: Option<ContextId>,
    outcome: Option<Outcome>,
    duration_us: Option<u64>,
    response_bytes: Option<u64>,
    result: Option<String>,
    request_tokens: Option<u64>,
    response_tokens: Option<u64>,
    wait_us: Option<u64>,
}

impl From<InvocationRow> for InvocationSummary {
    fn from(row: InvocationRow) -> Self {
        let end = row.outcome.map(|outcome| InvocationEnd {
            id: row.id,
            outcome,
            duration_us: row.duration_us.unwrap_or(0),
            wait_us: row.wait_us.unwrap_or(0),
            response_bytes: row.response_bytes.unwrap_or(0),
            result: row.result,
        });
        Self {
            invocation: Invocation {
                id: row.id,
                session: row.session,
                principal: row.principal,
                upstream: row.upstream,
                tool: row.tool,
                arguments_hash: row.arguments_hash,
                arguments: row.arguments,
                started_at: row.started_at.0,
                sequence: row.sequence,
                source: row.source,
                request_bytes: row.request_bytes,
                continues: row.continues,
                work_session: row.work_session,
                list_epoch: row.list_epoch,
                context: row.context,
            },
            end,
            request_tokens: row.request_tokens,
            response_tokens: row.response_tokens,
        }
    }
}

/// The columns of a past call in the order of the statement.
#[derive(Deserialize)]
struct PastCallRow {
    id: InvocationId,
    session: SessionId,
    work_session: Option<WorkSessionId>,
    principal: Principal,
    client: Option<String>,
    upstream: UpstreamName,
    tool: ToolName,
    started_at: Micros,
    continues: Option<InvocationId>,
    context: Option<ContextId>,
    outcome: Option<Outcome>,
}

impl From<PastCallRow> for PastCall {
    fn from(row: PastCallRow) -> Self {
        Self {
            id: row.id,
            session: row.session,
            work_session: row.work_session,
            principal: row.principal,
            client: row.client,
            upstream: row.upstream,
            tool: row.tool,
            started_at: row.started_at.0,
            continues: row.continues,
            context: row.context,
            outcome: row.outcome,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::config::Durability;
    use crate::database::Database;

    /// Returns the steps by which an empty database would execute each statement.
    pub(in crate::repository) async fn steps(statements: &[Statement]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(dir.path().join("riglm.db"), Durability::Process);
        let Database::Sqlite(database) = store.database().await.unwrap() else {
            panic!("the store is in SQLite");
        };
        let mut plans = Vec::new();
        for statement in statements {
            let explain = format!("EXPLAIN QUERY PLAN {}", statement.sqlite);
            let steps = sqlx::query(AssertSqlSafe(explain))
                .bind("[]")
                .fetch_all(database.readers())
                .await
                .unwrap();
            let details = steps.iter().map(|step| step.get::<String, _>("detail"));
            plans.push(details.collect());
        }
        plans
    }

    #[tokio::test]
    async fn queries_for_calls_in_flight_use_their_index() {
        let filter = InvocationFilter {
            state: Some(CallState::InFlight),
            ..InvocationFilter::default()
        };
        let statements = [filtered!(filter, select_newest), filtered!(filter, count)];
        for plan in steps(&statements).await {
            assert!(plan[0].contains("invocations_open"), "{plan:?}");
        }
    }

    #[tokio::test]
    async fn the_last_call_of_each_tool_is_looked_up_in_the_index_of_names() {
        let plans = steps(&[SELECT_LAST]).await;
        let plan = plans.concat();
        let has_step = |words: &str| plan.iter().any(|step| step.starts_with(words));
        assert!(
            has_step("SEARCH invocations USING INDEX invocations_by_tool"),
            "{plan:?}"
        );
        assert!(!has_step("SCAN invocations"), "{plan:?}");
    }
}
