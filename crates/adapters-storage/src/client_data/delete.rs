//! Deletion of the rows of clients.

use riglm_domain::id::{OverrideId, SessionId};
use riglm_domain::usage::UsageChange;
use riglm_ports::analytics::{DeletedRows, StoreError, Topic};

use super::selection::ClientSelection;
use crate::counts;
use crate::database::{Database, EncodedRows, Statement, WriteLock};
use crate::maintenance::{
    lock_decisions, remove_calls_of, remove_sessions, remove_unused_tool_sets, remove_unused_tools,
};
use crate::repository::{changes, learned_state};

// The number of sessions per statement.
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

// Recommendations and feedback may belong to a work session without a known session.
const RECOMMENDATIONS_AND_FEEDBACK: [Statement; 2] = [
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

// Parameters: the clients, limit.
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

/// Deletes the rows of the clients.
///
/// The order makes an interrupted deletion repeatable: recommendations and feedback are found by
/// their work sessions, and decisions by the sessions, so these are deleted before them.
pub(super) async fn delete(
    database: &Database,
    selected: &ClientSelection,
) -> Result<DeletedRows, StoreError> {
    let mut deleted = DeletedRows::default();
    deleted.n_others += delete_recommendations_and_feedback(database, selected).await?;
    deleted.n_others += delete_decisions(database, selected).await?;
    delete_usage(database, selected, &mut deleted).await?;
    let mut transaction = database.begin(WriteLock::Usage).await?;
    lock_decisions(&mut transaction).await?;
    remove_unused_tool_sets(&mut transaction).await?;
    transaction.commit().await?;
    Ok(deleted)
}

/// Deletes recommendations and feedback of work sessions; returns the number of rows.
async fn delete_recommendations_and_feedback(
    database: &Database,
    selected: &ClientSelection,
) -> Result<u64, StoreError> {
    let mut transaction = database.begin(WriteLock::Usage).await?;
    let mut n_rows = 0;
    for statement in &RECOMMENDATIONS_AND_FEEDBACK {
        n_rows += transaction.execute(statement, &selected.clients).await?;
    }
    transaction.commit().await?;
    Ok(n_rows)
}

/// Deletes work sessions, epochs and overrides; returns their number.
async fn delete_decisions(
    database: &Database,
    selected: &ClientSelection,
) -> Result<u64, StoreError> {
    let overrides = selected.overrides(database).await?;
    let overrides: Vec<OverrideId> = overrides.iter().map(|row| row.id).collect();
    let mut transaction = database.begin(WriteLock::Decisions).await?;
    let n_work_sessions = transaction
        .execute(&WORK_SESSIONS, &selected.clients)
        .await?;
    let n_epochs = transaction.execute(&LIST_EPOCHS, &selected.clients).await?;
    if n_epochs > 0 {
        changes::increase_revision(&mut transaction, Topic::ListEpochs).await?;
    }
    let n_overrides = transaction
        .write(&OVERRIDES, EncodedRows::new(overrides)?)
        .await?;
    if n_overrides > 0 {
        changes::increase_revision(&mut transaction, Topic::Overrides).await?;
    }
    transaction.commit().await?;
    Ok(n_work_sessions + n_epochs + n_overrides)
}

/// Deletes sessions with all that belongs to them, and rebuilds the counts from the remaining rows.
async fn delete_usage(
    database: &Database,
    selected: &ClientSelection,
    deleted: &mut DeletedRows,
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
        // Unused, because the counts are rebuilt afterwards.
        let mut change = UsageChange::default();
        let removed = remove_sessions(&mut transaction, &sessions, &mut change).await?;
        deleted.n_sessions += sessions.len() as u64;
        deleted.n_others += removed.n_belongings;
    }
    if deleted.n_sessions > 0 {
        counts::rebuild(&mut transaction).await?;
        // Learned state may contain the calls of these sessions.
        lock_decisions(&mut transaction).await?;
        learned_state::delete_all(&mut transaction).await?;
    }
    remove_unused_tools(&mut transaction).await?;
    transaction.commit().await
}
