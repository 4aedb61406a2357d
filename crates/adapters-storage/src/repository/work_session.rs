//! Work sessions.

use async_trait::async_trait;
use riglm_domain::id::WorkSessionId;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::work_session::{IdleGap, WorkSession, WorkSessionKey};
use riglm_ports::analytics::{StoreError, WorkSessionRepository};
use serde::{Deserialize, Serialize};

use super::returned_row::required_row;
use crate::database::{Statement, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const TABLE: &str = "work_sessions";

/// The columns of a row as one array, in the dialect of SQLite.
macro_rules! sqlite_row {
    () => {
        "json_array(hex(id), hex(key), principal, hex(client), started_at, last_active_at)"
    };
}

/// The columns of a row as one array, in the dialect of PostgreSQL.
macro_rules! postgres_row {
    () => {
        "json_build_array(
            id, encode(key, 'hex'), principal, encode(client, 'hex'), started_at,
            last_active_at)::text"
    };
}

/// A statement that reads rows. The final clause determines the parameter.
macro_rules! select {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: TABLE,
            sqlite: concat!("SELECT ", sqlite_row!(), " FROM work_sessions ", $sqlite),
            postgres: concat!(
                "SELECT ",
                postgres_row!(),
                " FROM work_sessions ",
                $postgres
            ),
        }
    };
}

const SELECT_NEWEST_OF_KEY: Statement = select!(
    "WHERE key = unhex(?1 ->> 0) ORDER BY last_active_at DESC, id DESC LIMIT 1",
    "WHERE key = decode($1::jsonb ->> 0, 'hex') ORDER BY last_active_at DESC, id DESC LIMIT 1"
);

const SELECT_ONE: Statement = select!(
    "WHERE id = unhex(?1 ->> 0, '-')",
    "WHERE id = ($1::jsonb ->> 0)::uuid"
);

const SELECT_NEWEST: Statement = select!(
    "ORDER BY last_active_at DESC, id DESC LIMIT ?1 ->> 0",
    "ORDER BY last_active_at DESC, id DESC LIMIT ($1::jsonb ->> 0)::bigint"
);

const GO_ON: Statement = Statement {
    table: TABLE,
    sqlite: concat!(
        "
        UPDATE work_sessions
        SET last_active_at = max(last_active_at, ?1 ->> 1)
        WHERE id = unhex(?1 ->> 0, '-')
        RETURNING ",
        sqlite_row!()
    ),
    postgres: concat!(
        "
        UPDATE work_sessions
        SET last_active_at = greatest(last_active_at, ($1::jsonb ->> 1)::bigint)
        WHERE id = ($1::jsonb ->> 0)::uuid
        RETURNING ",
        postgres_row!()
    ),
};

// Returns the row in any case: an existing row is set to its own values.
const BEGIN: Statement = Statement {
    table: TABLE,
    sqlite: concat!(
        "
        INSERT INTO work_sessions (id, key, principal, client, started_at, last_active_at)
        VALUES (
            unhex(?1 ->> 0, '-'), unhex(?1 ->> 1), ?1 ->> 2, unhex(?1 ->> 3), ?1 ->> 4,
            ?1 ->> 5)
        ON CONFLICT (id) DO UPDATE SET key = key
        RETURNING ",
        sqlite_row!()
    ),
    postgres: concat!(
        "
        INSERT INTO work_sessions (id, key, principal, client, started_at, last_active_at)
        SELECT
            (given ->> 0)::uuid, decode(given ->> 1, 'hex'), given ->> 2,
            decode(given ->> 3, 'hex'), (given ->> 4)::bigint, (given ->> 5)::bigint
        FROM (SELECT $1::jsonb AS given) AS parameter
        ON CONFLICT (id) DO UPDATE SET key = work_sessions.key
        RETURNING ",
        postgres_row!()
    ),
};

#[async_trait]
impl WorkSessionRepository for Store {
    async fn resolve_work_session(
        &self,
        candidate: &WorkSession,
        idle_gap: IdleGap,
    ) -> Result<WorkSession, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let of_key = [candidate.key];
        let newest: Option<WorkSessionRow> =
            transaction.row(&SELECT_NEWEST_OF_KEY, &of_key).await?;
        let newest = newest.map(WorkSession::from);
        let at = candidate.started_at;
        let (statement, row): (_, Option<WorkSessionRow>) = match newest {
            Some(newest) if newest.continues_at(at, idle_gap) => {
                let active = (newest.id, Micros(at));
                (&GO_ON, transaction.row(&GO_ON, &active).await?)
            }
            _ => (&BEGIN, transaction.row(&BEGIN, &row_of(candidate)).await?),
        };
        transaction.commit().await?;
        required_row(statement, row)
    }
}

/// Returns the work session with this identifier.
pub(super) async fn work_session(
    store: &Store,
    id: WorkSessionId,
) -> Result<Option<WorkSession>, StoreError> {
    let database = store.database().await?;
    let row: Option<WorkSessionRow> = database.row(&SELECT_ONE, &[id]).await?;
    Ok(row.map(Into::into))
}

/// Returns the newest work sessions by last activity, oldest first.
pub(super) async fn work_sessions(
    store: &Store,
    limit: u32,
) -> Result<Vec<WorkSession>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<WorkSessionRow> = database.rows(&SELECT_NEWEST, &[limit]).await?;
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

fn row_of(new: &WorkSession) -> impl Serialize {
    (
        new.id,
        new.key,
        &new.principal,
        new.client,
        Micros(new.started_at),
        Micros(new.last_active_at),
    )
}

#[derive(Deserialize)]
pub(crate) struct WorkSessionRow(
    WorkSessionId,
    WorkSessionKey,
    Principal,
    KeyedHash,
    Micros,
    Micros,
);

impl From<WorkSessionRow> for WorkSession {
    fn from(row: WorkSessionRow) -> Self {
        let WorkSessionRow(id, key, principal, client, started_at, last_active_at) = row;
        Self {
            id,
            key,
            principal,
            client,
            started_at: started_at.0,
            last_active_at: last_active_at.0,
        }
    }
}
