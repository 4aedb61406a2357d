//! Recorded requests other than tool calls.

use async_trait::async_trait;
use riglm_domain::exchange::Exchange;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_ports::analytics::{ExchangeRepository, StoreError};
use sqlx::{FromRow, SqliteConnection};

use super::SqliteStore;
use super::row::{Column, Rows, saturated};
use crate::error::failing;

const INSERT: &str = "
    INSERT INTO exchanges (
        id, session, principal, upstream, method, target, started_at, duration_us, outcome)
    SELECT
        unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3, value ->> 4,
        value ->> 5, value ->> 6, value ->> 7, value ->> 8
    FROM jsonb_each(?1)
    WHERE true
    ON CONFLICT (id) DO NOTHING";

const SELECT_NEWEST: &str = "
    SELECT hex(id) AS id, hex(session) AS session, principal, upstream, method, target,
        started_at, duration_us, outcome
    FROM exchanges
    WHERE session = ?1
    ORDER BY started_at DESC, exchanges.id DESC
    LIMIT ?2";

/// Writes requests that ended.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    exchanges: &[&Exchange],
) -> Result<(), StoreError> {
    let rows = exchanges.iter().map(|exchange| {
        (
            exchange.id,
            exchange.session,
            &exchange.principal,
            &exchange.upstream,
            &exchange.method,
            &exchange.target,
            exchange.started_at.as_microsecond(),
            saturated(exchange.duration_us),
            exchange.outcome.as_str(),
        )
    });
    Rows::new(rows)?.write(connection, INSERT).await
}

#[async_trait]
impl ExchangeRepository for SqliteStore {
    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError> {
        let newest: Vec<Row> = sqlx::query_as(SELECT_NEWEST)
            .bind(session.as_uuid().into_bytes().to_vec())
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(failing("read exchanges"))?;
        newest.into_iter().rev().map(TryInto::try_into).collect()
    }
}

#[derive(FromRow)]
struct Row {
    id: String,
    session: String,
    principal: String,
    upstream: String,
    method: String,
    target: Option<String>,
    started_at: i64,
    duration_us: i64,
    outcome: String,
}

impl TryFrom<Row> for Exchange {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let at = |column| Column {
            table: "exchanges",
            column,
        };
        Ok(Self {
            id: at("id").id(&row.id)?,
            session: at("session").id(&row.session)?,
            principal: Principal::named(&row.principal),
            upstream: at("upstream").upstream(&row.upstream)?,
            method: row.method,
            target: row.target,
            started_at: at("started_at").time(row.started_at)?,
            duration_us: at("duration_us").count(row.duration_us)?,
            outcome: at("outcome").outcome(&row.outcome)?,
        })
    }
}
