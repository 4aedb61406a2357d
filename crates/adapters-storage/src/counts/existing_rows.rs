//! Existing rows of the calls and sessions that new records refer to.

use std::collections::{HashMap, HashSet};

use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::{InvocationId, RunId, SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::{CountedCall, SessionTool, SessionTools};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{Statement, Transaction};
use crate::value::{Micros, saturating_count};

const KNOWN_CALLS: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(
            hex(id), principal, upstream, tool, sequence, started_at, outcome, duration_us,
            continues IS NOT NULL)
        FROM invocations
        WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(
            id, principal, upstream, tool, sequence, started_at, outcome, duration_us,
            (continues IS NOT NULL)::int)::text
        FROM invocations
        WHERE id = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))",
};

// Parameters: the lowest and the highest identifier, limit.
const CALLS_BETWEEN: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(hex(id))
        FROM invocations
        WHERE id BETWEEN unhex(?1 ->> 0, '-') AND unhex(?1 ->> 1, '-')
        LIMIT ?1 ->> 2",
    postgres: "
        SELECT json_build_array(id)::text
        FROM invocations
        WHERE id BETWEEN ($1::jsonb ->> 0)::uuid AND ($1::jsonb ->> 1)::uuid
        LIMIT ($1::jsonb ->> 2)::bigint",
};

const OPEN_CALLS_OF: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(hex(id))
        FROM invocations
        WHERE outcome IS NULL
            AND session IN (SELECT id FROM sessions WHERE run = unhex(?1 ->> 0, '-'))",
    postgres: "
        SELECT json_build_array(id)::text
        FROM invocations
        WHERE outcome IS NULL
            AND session IN (SELECT id FROM sessions WHERE run = ($1::jsonb ->> 0)::uuid)",
};

// One lookup per range of positions (`OFFSET 0` keeps them separate). Without good statistics,
// PostgreSQL would prefer to scan the whole table once.
const NEIGHBOURS: Statement = Statement {
    table: "invocations",
    sqlite: "
        SELECT json_array(hex(session), sequence, upstream, tool)
        FROM jsonb_each(?1) AS wanted
        CROSS JOIN invocations
            ON session = unhex(wanted.value ->> 0, '-')
                AND sequence BETWEEN wanted.value ->> 1 AND wanted.value ->> 2
        WHERE continues IS NULL",
    postgres: "
        SELECT json_build_array(session, sequence, upstream, tool)::text
        FROM jsonb_array_elements($1::jsonb) AS wanted
        CROSS JOIN LATERAL (
            SELECT session, sequence, upstream, tool
            FROM invocations
            WHERE session = (wanted.value ->> 0)::uuid
                AND sequence BETWEEN (wanted.value ->> 1)::bigint AND (wanted.value ->> 2)::bigint
                AND continues IS NULL
            OFFSET 0) AS neighbour",
};

// One row per session, because each row costs more than its values.
const SESSION_TOOLS: Statement = Statement {
    table: "session_tools",
    sqlite: "
        SELECT json_array(
            hex(session), json_group_array(json_array(tool, first_sequence, first_at)))
        FROM session_tools
        WHERE session IN (SELECT unhex(value, '-') FROM json_each(?1))
        GROUP BY session",
    postgres: "
        SELECT json_build_array(
            session, json_agg(json_build_array(tool, first_sequence, first_at)))::text
        FROM session_tools
        WHERE session = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))
        GROUP BY session",
};

#[derive(Debug)]
pub(crate) struct ExistingCall {
    pub(crate) principal: Principal,
    pub(crate) tool: ToolRef,
    pub(crate) outcome: Option<Outcome>,
    /// The countable values of the call; `None` for a round that continues another call.
    pub(crate) counted: Option<CountedCall>,
}

/// Returns the calls that have rows.
pub(crate) async fn known_calls(
    transaction: &mut Transaction,
    ids: &[InvocationId],
) -> Result<HashMap<InvocationId, ExistingCall>, StoreError> {
    #[derive(Deserialize)]
    struct ExistingCallRow {
        id: InvocationId,
        principal: Principal,
        upstream: UpstreamName,
        tool: ToolName,
        sequence: u64,
        started_at: Micros,
        outcome: Option<Outcome>,
        duration_us: Option<u64>,
        continues: u8,
    }
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<ExistingCallRow> = transaction.rows(&KNOWN_CALLS, &ids).await?;
    let calls = rows.into_iter().map(|row| {
        let tool = ToolRef {
            upstream: row.upstream,
            tool: row.tool,
        };
        let counted = (row.continues == 0).then(|| CountedCall {
            tool: tool.key(),
            sequence: row.sequence,
            started_at: row.started_at.0,
            outcome: row.outcome,
            duration_us: row.duration_us.unwrap_or(0),
        });
        let call = ExistingCall {
            principal: row.principal,
            tool,
            outcome: row.outcome,
            counted,
        };
        (row.id, call)
    });
    Ok(calls.collect())
}

/// Returns those of the calls that may have rows, which are few if the calls are new.
///
/// The identifiers of new calls are higher than those of nearly all rows. So a scan from the lowest
/// to the highest of them costs less than a search for each, unless it finds many rows.
pub(crate) async fn possibly_known(
    transaction: &mut Transaction,
    ids: &[InvocationId],
) -> Result<Vec<InvocationId>, StoreError> {
    let (Some(lowest), Some(highest)) = (ids.iter().min(), ids.iter().max()) else {
        return Ok(Vec::new());
    };
    let limit = ids.len() / 4;
    if limit == 0 {
        return Ok(ids.to_vec());
    }
    let found: Vec<(InvocationId,)> = transaction
        .rows(&CALLS_BETWEEN, &(lowest, highest, limit))
        .await?;
    if found.len() == limit {
        return Ok(ids.to_vec());
    }
    let found: HashSet<InvocationId> = found.into_iter().map(|(id,)| id).collect();
    Ok(ids
        .iter()
        .filter(|id| found.contains(id))
        .copied()
        .collect())
}

/// Returns the calls in flight in the sessions of a run.
pub(crate) async fn open_calls_of(
    transaction: &mut Transaction,
    run: RunId,
) -> Result<Vec<InvocationId>, StoreError> {
    let rows: Vec<(InvocationId,)> = transaction.rows(&OPEN_CALLS_OF, &[run]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Successive positions in a session, including the first and the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct PositionRange {
    pub(super) session: SessionId,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Returns the tools of the counted calls at these positions of sessions.
pub(super) async fn calls_at_positions(
    transaction: &mut Transaction,
    ranges: &[PositionRange],
) -> Result<HashMap<(SessionId, u64), Vec<ToolKey>>, StoreError> {
    let mut found: HashMap<_, Vec<ToolKey>> = HashMap::new();
    if ranges.is_empty() {
        return Ok(found);
    }
    let wanted: Vec<_> = (ranges.iter())
        .map(|range| {
            let [first, last] = [range.first, range.last].map(saturating_count);
            (range.session, first, last)
        })
        .collect();
    let rows: Vec<(SessionId, u64, UpstreamName, ToolName)> =
        transaction.rows(&NEIGHBOURS, &wanted).await?;
    for (session, sequence, upstream, tool) in rows {
        let key = ToolRef { upstream, tool }.key();
        found.entry((session, sequence)).or_default().push(key);
    }
    Ok(found)
}

/// Returns the tools that the sessions have used so far.
pub(crate) async fn session_tools_of(
    transaction: &mut Transaction,
    sessions: &[SessionId],
) -> Result<HashMap<SessionId, SessionTools>, StoreError> {
    #[derive(Deserialize)]
    struct SessionToolsRow(SessionId, Vec<(ToolKey, u64, Micros)>);
    let mut found: HashMap<_, SessionTools> = HashMap::new();
    if sessions.is_empty() {
        return Ok(found);
    }
    let rows: Vec<SessionToolsRow> = transaction.rows(&SESSION_TOOLS, &sessions).await?;
    for SessionToolsRow(session, tools) in rows {
        let known = found.entry(session).or_default();
        for (tool, first_sequence, first_at) in tools {
            known.insert(SessionTool {
                tool,
                first_sequence,
                first_at: first_at.0,
            });
        }
    }
    Ok(found)
}
