//! Rows that grow old by themselves: all but sessions and what was listed to them or used by them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::InvocationId;
use riglm_ports::analytics::StoreError;

use crate::database::{Rows, Statement, Transaction};
use crate::value::Micros;

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Call,
    Exchange,
    ListShown,
    Search,
    Context,
    Recommendation,
    Feedback,
    WorkSession,
    ListEpoch,
}

/// An old row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Aged {
    /// The microsecond that it is of.
    at: i64,
    pub(super) kind: Kind,
    /// What identifies it: an identifier, the scope of an epoch, or the session of a list that was
    /// shown, together with `at`.
    pub(super) id: String,
}

/// The sets of tools that a row names.
type Sets = (String, Option<String>);

/// A statement that selects the oldest rows. Identifiers begin with the millisecond in which they
/// were made, so that their index leads to the oldest rows. Parameters: what identifiers of old
/// rows are below, the moment that rows are older than, limit.
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

/// Epochs of work sessions; all others stay. The scopes begin with `ListEpoch::WORK_SCOPE`.
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

const SELECT: [(Kind, Statement); 9] = [
    (Kind::Call, select_by_id!("invocations", "started_at")),
    (Kind::Exchange, select_by_id!("exchanges", "started_at")),
    (
        Kind::ListShown,
        select_by_time!("lists_shown", "shown_at", "session"),
    ),
    (Kind::Search, select_by_id!("searches", "searched_at")),
    (Kind::Context, select_by_id!("contexts", "given_at")),
    (
        Kind::Recommendation,
        select_by_id!("recommendations", "shown_at"),
    ),
    (Kind::Feedback, select_by_id!("feedback", "given_at")),
    (
        Kind::WorkSession,
        select_by_time!("work_sessions", "last_active_at", "id"),
    ),
    (Kind::ListEpoch, SELECT_EPOCHS),
];

const DELETE: [(Kind, Statement); 6] = [
    (Kind::Exchange, delete_by_id!("exchanges")),
    (Kind::Search, delete_by_id!("searches")),
    (Kind::Context, delete_by_id!("contexts")),
    (Kind::Recommendation, delete_by_id!("recommendations")),
    (Kind::Feedback, delete_by_id!("feedback")),
    (Kind::WorkSession, delete_by_id!("work_sessions")),
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

/// Returns the `limit` oldest rows that are older than `before`, oldest first.
pub(super) async fn oldest(
    transaction: &mut Transaction,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Aged>, StoreError> {
    // Rows of the millisecond of `before` may be older.
    let next_millisecond = before
        .checked_add(SignedDuration::from_millis(1))
        .unwrap_or(Timestamp::MAX);
    let bound = InvocationId::new(next_millisecond, [0; 10]);
    let parameter = (bound, Micros(before), limit);
    let mut aged = Vec::new();
    for (kind, statement) in &SELECT {
        let rows: Vec<(i64, String)> = transaction.rows(statement, &parameter).await?;
        aged.extend(rows.into_iter().map(|(at, id)| Aged {
            at,
            kind: *kind,
            id,
        }));
    }
    aged.sort_unstable();
    aged.truncate(limit);
    Ok(aged)
}

/// Removes the rows but for calls. Returns the sets of tools that the lists and epochs were made of
/// and chosen from.
pub(super) async fn remove(
    transaction: &mut Transaction,
    rows: &[Aged],
) -> Result<BTreeSet<String>, StoreError> {
    let of_kind = |kind| rows.iter().filter(move |row| row.kind == kind);
    for (kind, statement) in &DELETE {
        let ids = of_kind(*kind).map(|row| &row.id);
        transaction.write(statement, Rows::new(ids)?).await?;
    }
    let lists: Vec<_> = of_kind(Kind::ListShown)
        .map(|row| (&row.id, row.at))
        .collect();
    let scopes: Vec<&String> = of_kind(Kind::ListEpoch).map(|row| &row.id).collect();
    let mut sets = BTreeSet::new();
    for rows in [
        transaction
            .rows::<Sets>(&DELETE_LISTS_SHOWN, &lists)
            .await?,
        transaction.rows::<Sets>(&DELETE_EPOCHS, &scopes).await?,
    ] {
        sets.extend(rows.into_iter().flat_map(|(set, other)| [Some(set), other]));
    }
    Ok(sets.into_iter().flatten().collect())
}
