//! Deletion of calls, and of their contributions to the counts.

use std::collections::BTreeSet;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::counts::{self, ChangedCall};
use crate::database::{Statement, Transaction};
use crate::maintenance::removal::remove_session_tools;
use crate::value::Micros;

const DELETE: Statement = Statement {
    table: "invocations",
    sqlite: "
        DELETE FROM invocations
        WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1))
        RETURNING json_array(
            hex(session), principal, upstream, tool, sequence, started_at, outcome, duration_us,
            continues IS NOT NULL)",
    postgres: "
        DELETE FROM invocations
        WHERE id = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))
        RETURNING json_build_array(
            session, principal, upstream, tool, sequence, started_at, outcome, duration_us,
            (continues IS NOT NULL)::int)::text",
};

// Selects the sessions that have neither a row nor a call.
const UNKNOWN_SESSIONS: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(value)
        FROM json_each(?1)
        WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = unhex(value, '-'))
            AND NOT EXISTS (SELECT 1 FROM invocations WHERE session = unhex(value, '-'))",
    postgres: "
        SELECT json_build_array(value)::text
        FROM jsonb_array_elements_text($1::jsonb)
        WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = value::uuid)
            AND NOT EXISTS (SELECT 1 FROM invocations WHERE session = value::uuid)",
};

// A deleted call.
#[derive(Deserialize)]
struct RemovedCallRow {
    session: SessionId,
    principal: Principal,
    upstream: UpstreamName,
    tool: ToolName,
    sequence: u64,
    started_at: Micros,
    outcome: Option<Outcome>,
    duration_us: Option<u64>,
    continues: u8,
}

impl RemovedCallRow {
    fn into_removed_call(self) -> Option<ChangedCall> {
        let tool = ToolRef {
            upstream: self.upstream,
            tool: self.tool,
        };
        (self.continues == 0).then(|| ChangedCall {
            session: self.session,
            principal: self.principal,
            counted: CountedCall {
                tool: tool.key(),
                sequence: self.sequence,
                started_at: self.started_at.0,
                outcome: self.outcome,
                duration_us: self.duration_us.unwrap_or(0),
            },
        })
    }
}

/// Deletes calls and subtracts their contributions in `change`; returns the number of calls.
///
/// The used tools of a session stay with it, unless nothing else of the session is recorded.
pub(super) async fn remove(
    transaction: &mut Transaction,
    ids: &[&str],
    change: &mut UsageChange,
) -> Result<u64, StoreError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let rows: Vec<RemovedCallRow> = transaction.rows(&DELETE, &ids).await?;
    let n_calls = rows.len() as u64;
    let sessions: BTreeSet<SessionId> = rows.iter().map(|row| row.session).collect();
    let removed: Vec<ChangedCall> = rows
        .into_iter()
        .filter_map(RemovedCallRow::into_removed_call)
        .collect();
    for call in &removed {
        change.remove_call(&call.principal, &call.counted);
    }
    counts::count_transitions(transaction, &removed, -1, change).await?;
    let unknown: Vec<(SessionId,)> = transaction.rows(&UNKNOWN_SESSIONS, &sessions).await?;
    let unknown: Vec<SessionId> = unknown.into_iter().map(|(session,)| session).collect();
    remove_session_tools(transaction, &unknown, change).await?;
    Ok(n_calls)
}
