//! Calls removed, and what they contributed taken out of the counts.

use std::collections::{BTreeSet, HashMap};

use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::invocation::Outcome;
use riglm_domain::principal::Principal;
use riglm_domain::tool::{ToolKey, ToolRef};
use riglm_domain::usage::{CountedCall, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::counts;
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

/// A call that was removed and had been counted.
struct Removed {
    session: SessionId,
    principal: Principal,
    counted: CountedCall,
}

impl Row {
    fn removed(self) -> Option<Removed> {
        let tool = ToolRef {
            upstream: self.upstream,
            tool: self.tool,
        };
        (self.continues == 0).then(|| Removed {
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
    let removed: Vec<Removed> = rows.into_iter().filter_map(Row::removed).collect();
    for call in &removed {
        change.remove_call(&call.principal, &call.counted);
    }
    part(transaction, &removed, change).await?;
    let unknown: Vec<(SessionId,)> = transaction.rows(&UNKNOWN_SESSIONS, &sessions).await?;
    let unknown: Vec<SessionId> = unknown.into_iter().map(|(session,)| session).collect();
    forget_tools_of(transaction, &unknown, change).await?;
    Ok(n_calls)
}

/// Takes back which of the calls followed which, and which of those that are left.
async fn part(
    transaction: &mut Transaction,
    removed: &[Removed],
    change: &mut UsageChange,
) -> Result<(), StoreError> {
    let mut places: BTreeSet<(SessionId, u64)> = BTreeSet::new();
    let mut by_place: HashMap<(SessionId, u64), Vec<ToolKey>> = HashMap::new();
    for call in removed {
        let sequence = call.counted.sequence;
        let beside = [sequence.checked_sub(1), sequence.checked_add(1)];
        places.extend(
            beside
                .into_iter()
                .flatten()
                .map(|place| (call.session, place)),
        );
        by_place
            .entry((call.session, sequence))
            .or_default()
            .push(call.counted.tool);
    }
    let places: Vec<_> = places.into_iter().collect();
    let left = counts::neighbours(transaction, &places).await?;
    for call in removed {
        let tool = call.counted.tool;
        let at = |sequence| (call.session, sequence);
        if let Some(before) = call.counted.sequence.checked_sub(1).map(at) {
            let earlier = [left.get(&before), by_place.get(&before)];
            for from in earlier.into_iter().flatten().flatten() {
                change.count_transition(&call.principal, *from, tool, -1);
            }
        }
        // Those among the removed ones are taken back from the later side.
        if let Some(after) = call.counted.sequence.checked_add(1).map(at) {
            for to in left.get(&after).into_iter().flatten() {
                change.count_transition(&call.principal, tool, *to, -1);
            }
        }
    }
    Ok(())
}
