//! Rows that are purged by their own age: all kinds except sessions and the tools that were listed
//! to them or used by them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::InvocationId;
use riglm_ports::analytics::StoreError;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::value::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowKind {
    Call,
    Exchange,
    ListShown,
    Search,
    Context,
    Recommendation,
    Feedback,
    WorkSession,
    ListEpoch,
    Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OldRow {
    /// The time of the row in microseconds.
    at: i64,
    pub(super) kind: RowKind,
    /// The key of the row: an identifier, the scope of an epoch, or the session of a list, which is
    /// unique together with `at`. Of a snapshot, the version and the model, with a space between.
    pub(super) id: String,
}

/// The identifiers of the sets of tools in a row.
type ToolSetIds = (String, Option<String>);

/// A statement that selects the oldest rows. Identifiers begin with the millisecond of their
/// creation, so that the primary index leads to the oldest rows. Parameters: an upper bound of the
/// identifiers of old rows, the time limit of old rows, the maximum number of rows.
macro_rules! select_by_id {
    ($table:literal, $moment:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $moment,
                ", hex(id)) FROM ",
                $table,
                " WHERE id < unhex(?1 ->> 0, '-') AND ",
                $moment,
                " < ?1 ->> 1 ORDER BY id LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $moment,
                ", id)::text FROM ",
                $table,
                " WHERE id < ($1::jsonb ->> 0)::uuid AND ",
                $moment,
                " < ($1::jsonb ->> 1)::bigint ORDER BY id LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// A statement that selects the oldest rows of a table with an index by time.
macro_rules! select_by_time {
    ($table:literal, $moment:literal, $id:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "SELECT json_array(",
                $moment,
                ", hex(",
                $id,
                ")) FROM ",
                $table,
                " WHERE ",
                $moment,
                " < ?1 ->> 1 ORDER BY ",
                $moment,
                ", ",
                $id,
                " LIMIT ?1 ->> 2"
            ),
            postgres: concat!(
                "SELECT json_build_array(",
                $moment,
                ", ",
                $id,
                ")::text FROM ",
                $table,
                " WHERE ",
                $moment,
                " < ($1::jsonb ->> 1)::bigint ORDER BY ",
                $moment,
                ", ",
                $id,
                " LIMIT ($1::jsonb ->> 2)::bigint"
            ),
        }
    };
}

/// A statement that deletes rows by their identifiers.
macro_rules! delete_by_id {
    ($table:literal) => {
        Statement {
            table: $table,
            sqlite: concat!(
                "DELETE FROM ",
                $table,
                " WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1))"
            ),
            postgres: concat!(
                "DELETE FROM ",
                $table,
                " WHERE id = ANY (ARRAY(
                    SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb)))"
            ),
        }
    };
}

// Epochs of work sessions only; all others stay. Their scopes begin with `ListEpoch::WORK_SCOPE`.
const SELECT_EPOCHS: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        SELECT json_array(began_at, scope)
        FROM list_epochs
        WHERE substr(scope, 1, 5) = 'work:' AND began_at < ?1 ->> 1
        ORDER BY began_at, scope
        LIMIT ?1 ->> 2",
    postgres: "
        SELECT json_build_array(began_at, scope)::text
        FROM list_epochs
        WHERE substr(scope, 1, 5) = 'work:' AND began_at < ($1::jsonb ->> 1)::bigint
        ORDER BY began_at, scope
        LIMIT ($1::jsonb ->> 2)::bigint",
};

// Each snapshot has some hundred kilobytes, and there are at most two of each model.
const SELECT_SNAPSHOTS: Statement = Statement {
    table: "snapshots",
    sqlite: "
        SELECT json_array(taken_at, version || ' ' || model)
        FROM snapshots
        WHERE taken_at < ?1 ->> 1
        ORDER BY taken_at, model, version
        LIMIT ?1 ->> 2",
    postgres: "
        SELECT json_build_array(taken_at, version || ' ' || model)::text
        FROM snapshots
        WHERE taken_at < ($1::jsonb ->> 1)::bigint
        ORDER BY taken_at, model, version
        LIMIT ($1::jsonb ->> 2)::bigint",
};

const SELECT: [(RowKind, Statement); 10] = [
    (RowKind::Call, select_by_id!("invocations", "started_at")),
    (RowKind::Exchange, select_by_id!("exchanges", "started_at")),
    (
        RowKind::ListShown,
        select_by_time!("lists_shown", "shown_at", "session"),
    ),
    (RowKind::Search, select_by_id!("searches", "searched_at")),
    (RowKind::Context, select_by_id!("contexts", "given_at")),
    (
        RowKind::Recommendation,
        select_by_id!("recommendations", "shown_at"),
    ),
    (RowKind::Feedback, select_by_id!("feedback", "given_at")),
    (
        RowKind::WorkSession,
        select_by_time!("work_sessions", "last_active_at", "id"),
    ),
    (RowKind::ListEpoch, SELECT_EPOCHS),
    (RowKind::Snapshot, SELECT_SNAPSHOTS),
];

const DELETE: [(RowKind, Statement); 6] = [
    (RowKind::Exchange, delete_by_id!("exchanges")),
    (RowKind::Search, delete_by_id!("searches")),
    (RowKind::Context, delete_by_id!("contexts")),
    (RowKind::Recommendation, delete_by_id!("recommendations")),
    (RowKind::Feedback, delete_by_id!("feedback")),
    (RowKind::WorkSession, delete_by_id!("work_sessions")),
];

const DELETE_LISTS_SHOWN: Statement = Statement {
    table: "lists_shown",
    sqlite: "
        DELETE FROM lists_shown
        WHERE (session, shown_at) IN (
            SELECT unhex(value ->> 0, '-'), value ->> 1 FROM jsonb_each(?1))
        RETURNING json_array(tool_set, pool)",
    postgres: "
        DELETE FROM lists_shown
        WHERE (session, shown_at) IN (
            SELECT (value ->> 0)::uuid, (value ->> 1)::bigint
            FROM jsonb_array_elements($1::jsonb))
        RETURNING json_build_array(tool_set, pool)::text",
};

const DELETE_EPOCHS: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        DELETE FROM list_epochs
        WHERE scope IN (SELECT value FROM json_each(?1))
        RETURNING json_array(tool_set, known)",
    postgres: "
        DELETE FROM list_epochs
        WHERE scope = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text($1::jsonb)))
        RETURNING json_build_array(tool_set, known)::text",
};

const DELETE_SNAPSHOTS: Statement = Statement {
    table: "snapshots",
    sqlite: "
        DELETE FROM snapshots
        WHERE version || ' ' || model IN (SELECT value FROM json_each(?1))",
    postgres: "
        DELETE FROM snapshots
        WHERE version || ' ' || model = ANY (ARRAY(
            SELECT value FROM jsonb_array_elements_text($1::jsonb)))",
};

/// Returns the `limit` oldest rows that are older than `before`, oldest first.
pub(super) async fn oldest(
    transaction: &mut Transaction,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<OldRow>, StoreError> {
    // Rows in the millisecond of `before` may be older than it.
    let next_millisecond = before
        .checked_add(SignedDuration::from_millis(1))
        .unwrap_or(Timestamp::MAX);
    let bound = InvocationId::new(next_millisecond, [0; 10]);
    let parameter = (bound, Micros(before), limit);
    let mut aged = Vec::new();
    for (kind, statement) in &SELECT {
        let rows: Vec<(i64, String)> = transaction.rows(statement, &parameter).await?;
        aged.extend(rows.into_iter().map(|(at, id)| OldRow {
            at,
            kind: *kind,
            id,
        }));
    }
    aged.sort_unstable();
    aged.truncate(limit);
    Ok(aged)
}

/// Deletes the rows except calls. Returns the sets of tools that the lists and epochs used.
pub(super) async fn remove(
    transaction: &mut Transaction,
    rows: &[OldRow],
) -> Result<BTreeSet<String>, StoreError> {
    let of_kind = |kind| rows.iter().filter(move |row| row.kind == kind);
    for (kind, statement) in &DELETE {
        let ids = of_kind(*kind).map(|row| &row.id);
        transaction.write(statement, EncodedRows::new(ids)?).await?;
    }
    let snapshots = of_kind(RowKind::Snapshot).map(|row| &row.id);
    let snapshots = EncodedRows::new(snapshots)?;
    transaction.write(&DELETE_SNAPSHOTS, snapshots).await?;
    let lists: Vec<_> = of_kind(RowKind::ListShown)
        .map(|row| (&row.id, row.at))
        .collect();
    let scopes: Vec<&String> = of_kind(RowKind::ListEpoch).map(|row| &row.id).collect();
    let mut sets = BTreeSet::new();
    for rows in [
        transaction
            .rows::<ToolSetIds>(&DELETE_LISTS_SHOWN, &lists)
            .await?,
        transaction
            .rows::<ToolSetIds>(&DELETE_EPOCHS, &scopes)
            .await?,
    ] {
        sets.extend(rows.into_iter().flat_map(|(set, other)| [Some(set), other]));
    }
    Ok(sets.into_iter().flatten().collect())
}
