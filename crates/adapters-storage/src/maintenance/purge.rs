//! The purge of old rows, a limited number in each transaction.

mod calls;
mod old_rows;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::usage::UsageChange;
use riglm_ports::analytics::{PurgeReport, StoreError};

use self::old_rows::RowKind;
use super::removal::{lock_decisions, remove_sessions, remove_unused_tool_sets_among};
use crate::counts;
use crate::database::{Database, Statement, Transaction, WriteLock};
use crate::value::Micros;

/// Sessions that ended before a moment and have no calls, each with the number of rows that belong
/// to it, rows for counts included. Parameters: the moment, limit.
const SESSIONS_OVER: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(
            hex(id),
            (SELECT count(*) FROM exchanges WHERE session = sessions.id)
            + (SELECT count(*) FROM session_tool_lists WHERE session = sessions.id)
            + (SELECT count(*) FROM session_tools WHERE session = sessions.id)
            + (SELECT count(*) FROM lists_shown WHERE session = sessions.id)
            + (SELECT count(*) FROM searches WHERE session = sessions.id)
            + (SELECT count(*) FROM contexts WHERE session = sessions.id)
            + (SELECT count(*) FROM recommendations WHERE session = sessions.id)
            + (SELECT count(*) FROM feedback WHERE session = sessions.id))
        FROM sessions
        WHERE coalesce(ended_at, started_at) < ?1 ->> 0
            AND NOT EXISTS (SELECT 1 FROM invocations WHERE session = sessions.id)
        ORDER BY coalesce(ended_at, started_at), id
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(
            id,
            (SELECT count(*) FROM exchanges WHERE session = sessions.id)
            + (SELECT count(*) FROM session_tool_lists WHERE session = sessions.id)
            + (SELECT count(*) FROM session_tools WHERE session = sessions.id)
            + (SELECT count(*) FROM lists_shown WHERE session = sessions.id)
            + (SELECT count(*) FROM searches WHERE session = sessions.id)
            + (SELECT count(*) FROM contexts WHERE session = sessions.id)
            + (SELECT count(*) FROM recommendations WHERE session = sessions.id)
            + (SELECT count(*) FROM feedback WHERE session = sessions.id))::text
        FROM sessions
        WHERE coalesce(ended_at, started_at) < ($1::jsonb ->> 0)::bigint
            AND NOT EXISTS (SELECT 1 FROM invocations WHERE session = sessions.id)
        ORDER BY coalesce(ended_at, started_at), id
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// Deletes rows older than `before`, about `limit` rows; returns their numbers.
pub(super) async fn purge(
    database: &Database,
    before: Timestamp,
    limit: u32,
) -> Result<PurgeReport, StoreError> {
    let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX - 1);
    let mut transaction = database.begin(WriteLock::Usage).await?;
    lock_decisions(&mut transaction).await?;
    let mut purged = PurgeReport::default();
    let mut change = UsageChange::default();
    // One row more than the limit shows whether old rows remain.
    let mut aged = old_rows::oldest(&mut transaction, before, limit + 1).await?;
    let has_all_aged = aged.len() <= limit;
    aged.truncate(limit);
    let mut tool_sets = old_rows::remove(&mut transaction, &aged).await?;
    let calls = aged.iter().filter(|row| row.kind == RowKind::Call);
    let calls: Vec<&str> = calls.map(|row| row.id.as_str()).collect();
    purged.n_calls = calls::remove(&mut transaction, &calls, &mut change).await?;
    purged.n_others = (aged.len() - calls.len()) as u64;
    let over = ended_sessions(&mut transaction, before, limit - aged.len()).await?;
    let removed = remove_sessions(&mut transaction, &over.sessions, &mut change).await?;
    purged.n_sessions = over.sessions.len() as u64;
    purged.n_others += removed.n_belongings;
    purged.is_done = has_all_aged && over.are_all;
    tool_sets.extend(removed.tool_sets);
    counts::apply(&mut transaction, change).await?;
    // Last, because only now no deleted row uses these sets any more.
    remove_unused_tool_sets_among(&mut transaction, &tool_sets).await?;
    transaction.commit().await?;
    Ok(purged)
}

/// Sessions that can be deleted.
struct EndedSessions {
    sessions: Vec<SessionId>,
    /// No other session can be deleted.
    are_all: bool,
}

/// Returns sessions with about `room` rows in total, at least one session if `room` is not zero.
async fn ended_sessions(
    transaction: &mut Transaction,
    before: Timestamp,
    room: usize,
) -> Result<EndedSessions, StoreError> {
    let parameter = (Micros(before), room + 1);
    let found: Vec<(SessionId, usize)> = transaction.rows(&SESSIONS_OVER, &parameter).await?;
    let mut sessions = Vec::new();
    let mut n_rows = 0;
    for (session, n_belongings) in &found {
        n_rows += 1 + n_belongings;
        let fits = n_rows <= room || (sessions.is_empty() && room > 0);
        if !fits {
            break;
        }
        sessions.push(*session);
    }
    let are_all = sessions.len() == found.len();
    Ok(EndedSessions { sessions, are_all })
}
