//! Recorded requests other than tool calls.

use riglm_domain::id::{ExchangeId, SessionId, UpstreamName};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

const INSERT: Statement = Statement {
    table: "exchanges",
    sqlite: "
        INSERT INTO exchanges (
            id, session, principal, upstream, method, target, started_at, duration_us, outcome)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3,
            value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO exchanges (
            id, session, principal, upstream, method, target, started_at, duration_us, outcome)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, value ->> 3, value ->> 4,
            value ->> 5, (value ->> 6)::bigint, (value ->> 7)::bigint, value ->> 8
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

const SELECT_NEWEST: Statement = Statement {
    table: "exchanges",
    sqlite: "
        SELECT json_array(
            hex(id), hex(session), principal, upstream, method, target, started_at, duration_us,
            outcome)
        FROM exchanges
        WHERE session = unhex(?1 ->> 0, '-')
        ORDER BY started_at DESC, id DESC
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(
            id, session, principal, upstream, method, target, started_at, duration_us,
            outcome)::text
        FROM exchanges
        WHERE session = ($1::jsonb ->> 0)::uuid
        ORDER BY started_at DESC, id DESC
        LIMIT ($1::jsonb ->> 1)::bigint",
};

pub(crate) async fn write(
    transaction: &mut Transaction,
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
            Micros(exchange.started_at),
            saturating_count(exchange.duration_us),
            exchange.outcome,
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the newest exchanges of a session, oldest first.
pub(super) async fn exchanges(
    store: &Store,
    session: SessionId,
    limit: u32,
) -> Result<Vec<Exchange>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<ExchangeRow> = database.rows(&SELECT_NEWEST, &(session, limit)).await?;
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

#[derive(Deserialize)]
pub(crate) struct ExchangeRow {
    id: ExchangeId,
    session: SessionId,
    principal: Principal,
    upstream: UpstreamName,
    method: String,
    target: Option<String>,
    started_at: Micros,
    duration_us: u64,
    outcome: Outcome,
}

impl From<ExchangeRow> for Exchange {
    fn from(row: ExchangeRow) -> Self {
        Self {
            id: row.id,
            session: row.session,
            principal: row.principal,
            upstream: row.upstream,
            method: row.method,
            target: row.target,
            started_at: row.started_at.0,
            duration_us: row.duration_us,
            outcome: row.outcome,
        }
    }
}
