//! The rows of clients, removed.

use riglm_domain::id::{OverrideId, SessionId};
use riglm_domain::usage::UsageChange;
use riglm_ports::analytics::{Deleted, StoreError, Topic};

use super::selected::Selected;
use crate::counts;
use crate::database::{Database, Rows, Statement, Transaction, WriteLock};
use crate::maintenance::{
    keep_decisions_out, remove_calls_of, remove_sessions, remove_unused_tool_sets,
    remove_unused_tools,
};
use crate::repository::changes;

/// How many sessions are removed by one statement.
const N_SESSIONS: usize = 500;

const WORK_SESSIONS: Statement = Statement {
    table: "work_sessions",
    sqlite: "DELETE FROM work_sessions WHERE client IN (SELECT unhex(value) FROM json_each(?1))",
    postgres: "
        DELETE FROM work_sessions
        WHERE client = ANY (ARRAY(
            SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb)))",
};

/// A statement that deletes the rows of the clients' work sessions. Parameter: the clients.
macro_rules! delete_of_work_sessions {
    ($table:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "DELETE FROM ",
                $table,
                " WHERE work_session IN (
                    SELECT id FROM work_sessions
                    WHERE client IN (SELECT unhex(value) FROM json_each(?1)))"
            ),
            postgres: concat!(
                "DELETE FROM ",
                $table,
                " WHERE work_session IN (
                    SELECT id FROM work_sessions
                    WHERE client = ANY (ARRAY(
                        SELECT decode(value, 'hex')
                        FROM jsonb_array_elements_text($1::jsonb))))"
            ),
        }
    };
}

/// What was said in work sessions, of which no connection may be known.
const SAYINGS: [Statement; 2] = [
    delete_of_work_sessions!("recommendations"),
    delete_of_work_sessions!("feedback"),
];

const LIST_EPOCHS: Statement = Statement {
    table: "list_epochs",
    sqlite: "DELETE FROM list_epochs WHERE client IN (SELECT unhex(value) FROM json_each(?1))",
    postgres: "
        DELETE FROM list_epochs
        WHERE client = ANY (ARRAY(
            SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb)))",
};

const OVERRIDES: Statement = Statement {
    table: "overrides",
    sqlite: "DELETE FROM overrides WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1))",
    postgres: "
        DELETE FROM overrides
        WHERE id = ANY (ARRAY(
            SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))",
};

const SNAPSHOTS: Statement = Statement {
    table: "snapshots",
    sqlite: "DELETE FROM snapshots WHERE ?1 = '[]'",
    postgres: "DELETE FROM snapshots WHERE $1 = '[]'",
};

/// Parameters: the clients, limit.
const SOME_SESSIONS: Statement = Statement {
    table: "sessions",
    sqlite: "
        SELECT json_array(hex(id))
        FROM sessions
        WHERE client IN (SELECT unhex(value) FROM json_each(?1 -> 0))
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(id)::text
        FROM sessions
        WHERE client = ANY (ARRAY(
            SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb -> 0)))
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// Removes the rows of the clients. What was said in their work sessions goes first, then what is
/// decided for them: they are found by their work sessions and sessions, so that who is cut off can
/// begin again.
pub(super) async fn delete(
    database: &Database,
    selected: &Selected,
) -> Result<Deleted, StoreError> {
    let mut deleted = Deleted::default();
    deleted.n_others += delete_sayings(database, selected).await?;
    deleted.n_others += delete_decisions(database, selected).await?;
    delete_usage(database, selected, &mut deleted).await?;
    let mut transaction = database.begin(WriteLock::Usage).await?;
    keep_decisions_out(&mut transaction).await?;
    remove_unused_tool_sets(&mut transaction).await?;
    transaction.commit().await?;
    Ok(deleted)
}

/// Removes what was learned, also from the calls that the transaction removes, and tells all who
/// learned it: they learn anew from what is left.
async fn forget_what_was_learned(transaction: &mut Transaction) -> Result<(), StoreError> {
    keep_decisions_out(transaction).await?;
    let none: [(); 0] = [];
    transaction.execute(&SNAPSHOTS, &none).await?;
    changes::touch(transaction, Topic::Erasures).await
}

/// Removes what was said in work sessions; returns how many rows.
async fn delete_sayings(database: &Database, selected: &Selected) -> Result<u64, StoreError> {
    let mut transaction = database.begin(WriteLock::Usage).await?;
    let mut n_rows = 0;
    for statement in &SAYINGS {
        n_rows += transaction.execute(statement, &selected.clients).await?;
    }
    transaction.commit().await?;
    Ok(n_rows)
}

/// Removes work sessions, epochs and overrides; returns how many.
async fn delete_decisions(database: &Database, selected: &Selected) -> Result<u64, StoreError> {
    let overrides = selected.overrides(database).await?;
    let overrides: Vec<OverrideId> = overrides.iter().map(|row| row.id).collect();
    let mut transaction = database.begin(WriteLock::Decisions).await?;
    let n_work_sessions = transaction
        .execute(&WORK_SESSIONS, &selected.clients)
        .await?;
    let n_epochs = transaction.execute(&LIST_EPOCHS, &selected.clients).await?;
    if n_epochs > 0 {
        changes::touch(&mut transaction, Topic::ListEpochs).await?;
    }
    let n_overrides = transaction.write(&OVERRIDES, Rows::new(overrides)?).await?;
    if n_overrides > 0 {
        changes::touch(&mut transaction, Topic::Overrides).await?;
    }
    transaction.commit().await?;
    Ok(n_work_sessions + n_epochs + n_overrides)
}

/// Removes sessions with all that belongs to them, and makes the counts anew from what is left.
async fn delete_usage(
    database: &Database,
    selected: &Selected,
    deleted: &mut Deleted,
) -> Result<(), StoreError> {
    let mut transaction = database.begin(WriteLock::Usage).await?;
    let parameter = (&selected.clients, N_SESSIONS);
    loop {
        let sessions: Vec<(SessionId,)> = transaction.rows(&SOME_SESSIONS, &parameter).await?;
        if sessions.is_empty() {
            break;
        }
        let sessions: Vec<SessionId> = sessions.into_iter().map(|(id,)| id).collect();
        deleted.n_calls += remove_calls_of(&mut transaction, &sessions).await?;
        // The counts are made anew.
        let mut change = UsageChange::default();
        let removed = remove_sessions(&mut transaction, &sessions, &mut change).await?;
        deleted.n_sessions += sessions.len() as u64;
        deleted.n_others += removed.n_belongings;
    }
    if deleted.n_sessions > 0 {
        counts::rebuild(&mut transaction).await?;
        forget_what_was_learned(&mut transaction).await?;
    }
    remove_unused_tools(&mut transaction).await?;
    transaction.commit().await
}
