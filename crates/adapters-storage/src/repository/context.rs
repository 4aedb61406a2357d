//! Recorded contexts: tasks that clients declared.

use riglm_domain::id::{ContextId, SessionId};
use riglm_domain::intent::context::{Context, ContextSource};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_ports::analytics::StoreError;
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, Transaction};
use crate::store::Store;
use crate::value::{self, Hex, Micros};

const INSERT: Statement = Statement {
    table: "contexts",
    sqlite: "
        INSERT INTO contexts (
            id, session, principal, source, given_at, text_hash, text, model, vector)
        SELECT
            unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3,
            value ->> 4, unhex(value ->> 5), value ->> 6, value ->> 7, unhex(value ->> 8)
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO contexts (
            id, session, principal, source, given_at, text_hash, text, model, vector)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::uuid, value ->> 2, value ->> 3,
            (value ->> 4)::bigint, decode(value ->> 5, 'hex'), value ->> 6, value ->> 7,
            decode(value ->> 8, 'hex')
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (id) DO NOTHING",
};

/// A statement that reads the newest contexts that match a condition. Parameters: limit, and the
/// value of the condition.
macro_rules! select_newest {
    ($sqlite:literal, $postgres:literal) => {
        Statement {
            table: "contexts",
            sqlite: concat!(
                "SELECT json_array(
                    hex(id), hex(session), principal, source, given_at, hex(text_hash), text,
                    model, iif(vector IS NULL, NULL, hex(vector)))
                FROM contexts ",
                $sqlite,
                " ORDER BY id DESC LIMIT ?1 ->> 0"
            ),
            postgres: concat!(
                "SELECT json_build_array(
                    id, session, principal, source, given_at, encode(text_hash, 'hex'), text,
                    model, encode(vector, 'hex'))::text
                FROM contexts ",
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

// PostgreSQL has an index of the beginnings of names, because a name may be too long for an index.
const SELECT_NEWEST_OF_PRINCIPAL: Statement = select_newest!(
    "WHERE principal = ?1 ->> 1",
    "WHERE left(principal, 200) = left($1::jsonb ->> 1, 200) AND principal = $1::jsonb ->> 1"
);

const SELECT_WITH: Statement = select_newest!(
    "WHERE id IN (SELECT unhex(value, '-') FROM jsonb_each(?1, '$[1]'))",
    "WHERE id IN (SELECT value::uuid FROM jsonb_array_elements_text($1::jsonb -> 1))"
);

pub(crate) async fn write(
    transaction: &mut Transaction,
    contexts: &[&Context],
) -> Result<(), StoreError> {
    let rows = contexts.iter().map(|context| {
        let embedding = context.embedding.as_ref();
        (
            context.id,
            context.session,
            &context.principal,
            context.source,
            Micros(context.given_at),
            context.text_hash,
            &context.text,
            embedding.map(Embedding::model),
            embedding.map(|embedding| value::bytes_of(embedding.vector())),
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

/// Returns the newest contexts, oldest first, of a session or of all.
pub(super) async fn contexts(
    store: &Store,
    session: Option<SessionId>,
    limit: u32,
) -> Result<Vec<Context>, StoreError> {
    let statement = match session {
        None => SELECT_NEWEST,
        Some(_) => SELECT_NEWEST_OF_SESSION,
    };
    let database = store.database().await?;
    let newest: Vec<ContextRow> = database.rows(&statement, &(limit, session)).await?;
    newest.into_iter().rev().map(TryInto::try_into).collect()
}

/// Returns the newest contexts of a principal, oldest first.
pub(super) async fn contexts_of(
    store: &Store,
    principal: &Principal,
    limit: u32,
) -> Result<Vec<Context>, StoreError> {
    let database = store.database().await?;
    let parameter = (limit, principal);
    let newest: Vec<ContextRow> = database
        .rows(&SELECT_NEWEST_OF_PRINCIPAL, &parameter)
        .await?;
    newest.into_iter().rev().map(TryInto::try_into).collect()
}

/// Returns the contexts with these identifiers, oldest first.
pub(super) async fn contexts_with(
    store: &Store,
    ids: &[ContextId],
) -> Result<Vec<Context>, StoreError> {
    let database = store.database().await?;
    let newest: Vec<ContextRow> = database.rows(&SELECT_WITH, &(u32::MAX, ids)).await?;
    newest.into_iter().rev().map(TryInto::try_into).collect()
}

#[derive(Deserialize)]
pub(crate) struct ContextRow {
    id: ContextId,
    session: SessionId,
    principal: Principal,
    source: ContextSource,
    given_at: Micros,
    text_hash: KeyedHash,
    text: Option<String>,
    model: Option<String>,
    vector: Option<Hex>,
}

impl TryFrom<ContextRow> for Context {
    type Error = StoreError;

    fn try_from(row: ContextRow) -> Result<Self, StoreError> {
        let embedding = match (row.model, row.vector) {
            (Some(model), Some(vector)) => Some(embedding(&model, &vector)?),
            _ => None,
        };
        Ok(Self {
            id: row.id,
            session: row.session,
            principal: row.principal,
            source: row.source,
            given_at: row.given_at.0,
            text_hash: row.text_hash,
            text: row.text,
            embedding,
        })
    }
}

fn embedding(model: &str, bytes: &Hex) -> Result<Embedding, StoreError> {
    let corrupt = |reason: String| StoreError::Corrupt {
        table: "contexts",
        reason,
    };
    let vector = value::vector_of(bytes)
        .ok_or_else(|| corrupt("a vector has an incomplete component".into()))?;
    Embedding::new(model, vector).map_err(|error| corrupt(error.to_string()))
}
