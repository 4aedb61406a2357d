//! Recorded searches for tools.

use riglm_domain::id::{SearchId, SessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::search::{Search, SearchQuality};
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use super::scored_tools::{ScoredTools, ScoredToolsColumn};
use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

const INSERT: Statement = Statement {
    table: "searches",
    sqlite: "
        INSERT INTO searches (
            id, session, principal, searched_at, duration_us, query_hash, query, quality, results)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3,
            value ->> 4, unhex(value ->> 5), value ->> 6, value ->> 7, value ->> 8
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO searches (
            id, session, principal, searched_at, duration_us, query_hash, query, quality, results)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, (value ->> 3)::bigint,
            (value ->> 4)::bigint, decode(value ->> 5, 'hex'), value ->> 6, value ->> 7,
            value ->> 8
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

/// A statement that reads the newest searches that match a condition. Parameters: limit, session.
macro_rules! select_newest {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "searches",
            sqlite: concat!(
                "SELECT json_array(
                    hex(id), hex(session), principal, searched_at, duration_us, hex(query_hash),
                    query, quality, json(results))
                FROM searches ",
                $sqlite,
                " ORDER BY id DESC LIMIT ?1 ->> 0"
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    id, session, principal, searched_at, duration_us, encode(query_hash, 'hex'),
                    query, quality, results::json)::text
                FROM searches ",
                $postgres,
                " ORDER BY id DESC LIMIT ($1::jsonb ->> 0)::bigint"
            ),
        }
    };
}

const SELECT_NEWEST: Statement = select_newest!("", "");

const SELECT_NEWEST_OF_SESSION: Statement = select_newest!(
    "WHERE session = unhex(?1 ->> 1, '-')",
    "WHERE session = ($1::jsonb ->> 1)::uuid"
);

pub(crate) async fn write(
    transaction: &mut Transaction,
    searches: &[&Search],
) -> Result<(), StoreError> {
    let rows = searches.iter().map(|search| {
        (
            search.id,
            search.session,
            &search.principal,
            Micros(search.searched_at),
            saturating_count(search.duration_us),
            search.query_hash,
            &search.query,
            search.quality,
            ScoredToolsColumn(&search.results),
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the newest searches, oldest first, of a session or of all.
pub(super) async fn searches(
    store: &Store,
    session: Option<SessionId>,
    limit: u32,
) -> Result<Vec<Search>, StoreError> {
    let statement = match session {
        None => SELECT_NEWEST,
        Some(_) => SELECT_NEWEST_OF_SESSION,
    };
    let database = store.database().await?;
    let newest: Vec<SearchRow> = database.rows(&statement, &(limit, session)).await?;
    Ok(newest.into_iter().rev().map(Into::into).collect())
}

#[derive(Deserialize)]
pub(crate) struct SearchRow {
    id: SearchId,
    session: SessionId,
    principal: Principal,
    searched_at: Micros,
    duration_us: u64,
    query_hash: KeyedHash,
    query: Option<String>,
    quality: SearchQuality,
    results: ScoredTools,
}

impl From<SearchRow> for Search {
    fn from(row: SearchRow) -> Self {
        Self {
            id: row.id,
            session: row.session,
            principal: row.principal,
            searched_at: row.searched_at.0,
            duration_us: row.duration_us,
            query_hash: row.query_hash,
            query: row.query,
            quality: row.quality,
            results: row.results.into(),
        }
    }
}
