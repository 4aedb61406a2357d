//! Calls removed, and what they contributed taken out of the counts.

use std::collections::BTreeSet;

use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::invocation::Outcome;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::counts::{self, MovedCall};
use crate::database::{Statement, Transaction};
use crate::maintenance::removal::forget_tools_of;
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

/// Those of the sessions of which neither a row nor a call is there.
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

/// A call that was removed.
#[derive(Deserialize)]
struct Row {
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

impl Row {
    fn removed(self) -> Option<MovedCall> {
        let tool = ToolRef {
            upstream: self.upstream,
            tool: self.tool,
        };
        (self.continues == 0).then(|| MovedCall {
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

/// Removes calls; what they contributed is taken out of `change`. What sessions used stays with
/// them, but for sessions of which nothing else is recorded. Returns how many calls there were.
pub(super) async fn remove(
    transaction: &mut Transaction,
    ids: &[&str],
    change: &mut UsageChange,
) -> Result<u64, StoreError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let rows: Vec<Row> = transaction.rows(&DELETE, &ids).await?;
    let n_calls = rows.len() as u64;
    let sessions: BTreeSet<SessionId> = rows.iter().map(|row| row.session).collect();
    let removed: Vec<MovedCall> = rows.into_iter().filter_map(Row::removed).collect();
    for call in &removed {
        change.remove_call(&call.principal, &call.counted);
    }
    counts::count_successions(transaction, &removed, -1, change).await?;
    let unknown: Vec<(SessionId,)> = transaction.rows(&UNKNOWN_SESSIONS, &sessions).await?;
    let unknown: Vec<SessionId> = unknown.into_iter().map(|(session,)| session).collect();
    forget_tools_of(transaction, &unknown, change).await?;
    Ok(n_calls)
}
