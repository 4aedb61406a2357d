//! Old rows removed, a number of them in one transaction.

mod aged;
mod calls;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::usage::UsageChange;
use riglm_ports::analytics::{Purged, StoreError};

use self::aged::Kind;
use super::removal::{keep_decisions_out, remove_sessions, remove_unused_tool_sets_among};
use crate::counts;
use crate::database::{Database, Statement, Transaction, WriteLock};
use crate::value::Micros;

/// Sessions that are over since before a moment and have no call, and how many rows belong to
/// each, those from which counts are made too. Parameters: the moment, limit.
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

/// Removes what is older than `before`, about `limit` rows, and says what that was.
pub(super) async fn purge(
    database: &Database,
    before: Timestamp,
    limit: u32,
) -> Result<Purged, StoreError> {
    let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX - 1);
    let mut transaction = database.begin(WriteLock::Usage).await?;
    keep_decisions_out(&mut transaction).await?;
    let mut purged = Purged::default();
    let mut change = UsageChange::default();
    let mut aged = aged::oldest(&mut transaction, before, limit + 1).await?;
    let has_all_aged = aged.len() <= limit;
    aged.truncate(limit);
    let mut tool_sets = aged::remove(&mut transaction, &aged).await?;
    let calls = aged.iter().filter(|row| row.kind == Kind::Call);
    let calls: Vec<&str> = calls.map(|row| row.id.as_str()).collect();
    purged.n_calls = calls::remove(&mut transaction, &calls, &mut change).await?;
    purged.n_others = (aged.len() - calls.len()) as u64;
    let over = sessions_over(&mut transaction, before, limit - aged.len()).await?;
    let removed = remove_sessions(&mut transaction, &over.sessions, &mut change).await?;
    purged.n_sessions = over.sessions.len() as u64;
    purged.n_others += removed.n_belongings;
    purged.is_done = has_all_aged && over.are_all;
    tool_sets.extend(removed.tool_sets);
    counts::apply(&mut transaction, change).await?;
    remove_unused_tool_sets_among(&mut transaction, &tool_sets).await?;
    transaction.commit().await?;
    Ok(purged)
}

/// Sessions that have nothing to stay for.
struct Over {
    sessions: Vec<SessionId>,
    /// There are no others.
    are_all: bool,
}

/// Returns sessions with about `room` rows, at least one session if there is any room.
async fn sessions_over(
    transaction: &mut Transaction,
    before: Timestamp,
    room: usize,
) -> Result<Over, StoreError> {
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
    Ok(Over { sessions, are_all })
}
