//! Deletion of sessions with their rows, and of rows that nothing refers to any more.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::{SessionTool, SessionTools, UsageChange};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::value::Micros;

/// A statement that deletes the rows of sessions from a table. Parameter: the sessions.
macro_rules! delete_of_sessions {
    ($table:literal, $column:literal) => {
        delete_of_sessions!($table, $column, "", "")
    };
    ($table:literal, $column:literal, $sqlite:literal, $postgres:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "DELETE FROM ",
                $table,
                " WHERE ",
                $column,
                " IN (SELECT unhex(value, '-') FROM json_each(?1))",
                $sqlite
            ),
            postgres: concat!(
                "DELETE FROM ",
                $table,
                " WHERE ",
                $column,
                " = ANY (ARRAY(
                    SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))",
                $postgres
            ),
        }
    };
}

const CALLS: Statement = delete_of_sessions!("invocations", "session");

const SESSIONS: Statement = delete_of_sessions!("sessions", "id");

const SESSION_TOOLS: Statement = delete_of_sessions!(
    "session_tools",
    "session",
    " RETURNING json_array(hex(session), tool, principal, first_sequence, first_at)",
    " RETURNING json_build_array(session, tool, principal, first_sequence, first_at)::text"
);

const LISTS_SHOWN: Statement = delete_of_sessions!(
    "lists_shown",
    "session",
    " RETURNING json_array(tool_set, pool)",
    " RETURNING json_build_array(tool_set, pool)::text"
);

// All tables but the tools of a session and its lists, whose deleted rows are needed.
const DELETE_SESSION_ROWS: [Statement; 6] = [
    delete_of_sessions!("exchanges", "session"),
    delete_of_sessions!("session_tool_lists", "session"),
    delete_of_sessions!("searches", "session"),
    delete_of_sessions!("contexts", "session"),
    delete_of_sessions!("recommendations", "session"),
    delete_of_sessions!("feedback", "session"),
];

// SQLite has one writer in any case.
const DECISIONS_LOCK: Statement = Statement {
    table: "revisions",
    sqlite: "SELECT json_array() WHERE ?1 <> '[]'",
    postgres: "
        SELECT json_build_array(
            pg_advisory_xact_lock(hashtext('riglm ' || current_schema()), 2)::text)::text
        WHERE $1 = '[]'",
};

/// A statement that deletes the sets of tools that match a condition and that no list or epoch
/// uses.
macro_rules! delete_unused_sets {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "tool_sets",
            sqlite: concat!(
                "DELETE FROM tool_sets
                WHERE NOT EXISTS (SELECT 1 FROM lists_shown WHERE tool_set = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM lists_shown WHERE pool = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM list_epochs WHERE tool_set = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM list_epochs WHERE known = tool_sets.id)
                    AND ",
                $sqlite
            ),
            postgres: concat!(
                "DELETE FROM tool_sets
                WHERE NOT EXISTS (SELECT 1 FROM lists_shown WHERE tool_set = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM lists_shown WHERE pool = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM list_epochs WHERE tool_set = tool_sets.id)
                    AND NOT EXISTS (SELECT 1 FROM list_epochs WHERE known = tool_sets.id)
                    AND ",
                $postgres
            ),
        }
    };
}

const UNUSED_SETS_AMONG: Statement = delete_unused_sets!(
    "id IN (SELECT value FROM json_each(?1))",
    "id = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text($1::jsonb)))"
);

const UNUSED_SETS: Statement = delete_unused_sets!("?1 = '[]'", "$1 = '[]'");

const TOOLS: Statement = Statement {
    table: "tools",
    sqlite: "
        DELETE FROM tools
        WHERE ?1 = '[]' AND key NOT IN (
            SELECT tool FROM call_counts
            UNION SELECT tool FROM session_tools
            UNION SELECT tool_a FROM pair_counts
            UNION SELECT tool_b FROM pair_counts
            UNION SELECT tool_from FROM transition_counts
            UNION SELECT tool_to FROM transition_counts
            UNION SELECT tool_key FROM feedback)",
    postgres: "
        DELETE FROM tools
        WHERE $1 = '[]' AND key NOT IN (
            SELECT tool FROM call_counts
            UNION SELECT tool FROM session_tools
            UNION SELECT tool_a FROM pair_counts
            UNION SELECT tool_b FROM pair_counts
            UNION SELECT tool_from FROM transition_counts
            UNION SELECT tool_to FROM transition_counts
            UNION SELECT tool_key FROM feedback)",
};

/// Also takes the lock on decisions, in addition to the lock of the transaction. All transactions
/// with both locks take them in this order, which prevents deadlocks.
pub(crate) async fn lock_decisions(transaction: &mut Transaction) -> Result<(), StoreError> {
    let locked: Vec<(String,)> = transaction.rows(&DECISIONS_LOCK, &[(); 0]).await?;
    drop(locked);
    Ok(())
}

/// The result of a deletion of sessions.
#[derive(Debug, Default)]
pub(crate) struct RemovedSessions {
    /// The number of deleted rows other than sessions and counts.
    pub(crate) n_belongings: u64,
    /// The sets of tools that the deleted lists showed, and the sets that they were selected from.
    pub(crate) tool_sets: BTreeSet<String>,
}

/// Deletes sessions without calls, and all that belongs to them. Subtracts their contributions in
/// `change`.
pub(crate) async fn remove_sessions(
    transaction: &mut Transaction,
    sessions: &[SessionId],
    change: &mut UsageChange,
) -> Result<RemovedSessions, StoreError> {
    let mut removed = RemovedSessions::default();
    if sessions.is_empty() {
        return Ok(removed);
    }
    for statement in &DELETE_SESSION_ROWS {
        removed.n_belongings += transaction.execute(statement, &sessions).await?;
    }
    let shown: Vec<(String, Option<String>)> = transaction.rows(&LISTS_SHOWN, &sessions).await?;
    removed.n_belongings += shown.len() as u64;
    removed.tool_sets.extend(
        shown
            .into_iter()
            .flat_map(|(set, pool)| [Some(set), pool])
            .flatten(),
    );
    remove_session_tools(transaction, sessions, change).await?;
    transaction.execute(&SESSIONS, &sessions).await?;
    Ok(removed)
}

/// Deletes the used tools of sessions. Subtracts their contributions in `change`.
pub(super) async fn remove_session_tools(
    transaction: &mut Transaction,
    sessions: &[SessionId],
    change: &mut UsageChange,
) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct SessionToolRow(SessionId, ToolKey, Principal, u64, Micros);
    if sessions.is_empty() {
        return Ok(());
    }
    let rows: Vec<SessionToolRow> = transaction.rows(&SESSION_TOOLS, &sessions).await?;
    let mut used: BTreeMap<SessionId, (Principal, SessionTools)> = BTreeMap::new();
    for SessionToolRow(session, tool, principal, first_sequence, first_at) in rows {
        let (_, tools) =
            (used.entry(session)).or_insert_with(|| (principal, SessionTools::default()));
        tools.insert(SessionTool {
            tool,
            first_sequence,
            first_at: first_at.0,
        });
    }
    let none = SessionTools::default();
    for (principal, tools) in used.values() {
        change.change_session(principal, tools, &none);
    }
    Ok(())
}

/// Deletes the calls of sessions, but not their contributions to the counts; returns their number.
pub(crate) async fn remove_calls_of(
    transaction: &mut Transaction,
    sessions: &[SessionId],
) -> Result<u64, StoreError> {
    transaction.execute(&CALLS, &sessions).await
}

/// Deletes the given sets of tools that no list or epoch uses any more. The transaction must hold
/// the locks for lists and for epochs.
pub(super) async fn remove_unused_tool_sets_among(
    transaction: &mut Transaction,
    sets: &BTreeSet<String>,
) -> Result<(), StoreError> {
    (transaction.write(&UNUSED_SETS_AMONG, EncodedRows::new(sets)?)).await?;
    Ok(())
}

/// Deletes all sets of tools that no list or epoch uses, as [`remove_unused_tool_sets_among`] does.
pub(crate) async fn remove_unused_tool_sets(
    transaction: &mut Transaction,
) -> Result<(), StoreError> {
    transaction.execute(&UNUSED_SETS, &[(); 0]).await?;
    Ok(())
}

/// Deletes the names of tools that no count and no feedback refers to.
pub(crate) async fn remove_unused_tools(transaction: &mut Transaction) -> Result<(), StoreError> {
    transaction.execute(&TOOLS, &[(); 0]).await?;
    Ok(())
}
