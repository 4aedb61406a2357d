//! Embedding vectors of tool definitions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_ports::analytics::{EmbeddingRepository, StoreError};

use crate::database::{EncodedRows, Statement, WriteLock};
use crate::store::Store;
use crate::value::{Hex, bytes_of, vector_of};

const TABLE: &str = "embeddings";
// The number of vectors per statement: with the largest ones 16 MiB of text.
const N_PER_STATEMENT: usize = 256;

const PUT: Statement = Statement {
    table: TABLE,
    sqlite: "
        INSERT INTO embeddings (model, content_hash, vector)
        SELECT value ->> 0, value ->> 1, unhex(value ->> 2)
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (model, content_hash) DO UPDATE SET vector = excluded.vector",
    postgres: "
        INSERT INTO embeddings (model, content_hash, vector)
        SELECT value ->> 0, value ->> 1, decode(value ->> 2, 'hex')
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (model, content_hash) DO UPDATE SET vector = excluded.vector",
};

const SELECT: Statement = Statement {
    table: TABLE,
    sqlite: "
        SELECT json_array(content_hash, hex(vector))
        FROM embeddings
        WHERE model = ?1 ->> 0 AND content_hash IN (SELECT value FROM json_each(?1, '$[1]'))",
    postgres: "
        SELECT json_build_array(content_hash, encode(vector, 'hex'))::text
        FROM embeddings
        WHERE model = $1::jsonb ->> 0
            AND content_hash = ANY (ARRAY(
            SELECT value FROM jsonb_array_elements_text($1::jsonb -> 1)))",
};

const FORGET: Statement = Statement {
    table: TABLE,
    sqlite: "DELETE FROM embeddings WHERE model = ?1 ->> 0",
    postgres: "DELETE FROM embeddings WHERE model = $1::jsonb ->> 0",
};

#[async_trait]
impl EmbeddingRepository for Store {
    async fn put_embeddings(&self, embeddings: &[(String, Embedding)]) -> Result<(), StoreError> {
        // The last vector of a model and hash wins: a statement cannot change a row twice.
        let last: BTreeMap<(&str, &str), &Embedding> = (embeddings.iter())
            .map(|(content_hash, embedding)| {
                ((embedding.model(), content_hash.as_str()), embedding)
            })
            .collect();
        if last.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = last.into_iter().collect();
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        for part in rows.chunks(N_PER_STATEMENT) {
            let rows = (part.iter()).map(|((model, content_hash), embedding)| {
                (model, content_hash, bytes_of(embedding.vector()))
            });
            transaction.write(&PUT, EncodedRows::new(rows)?).await?;
        }
        transaction.commit().await
    }

    async fn embeddings(
        &self,
        model: &str,
        content_hashes: &[String],
    ) -> Result<BTreeMap<String, Embedding>, StoreError> {
        let database = self.database().await?;
        let parameter = (model, content_hashes);
        let found: Vec<(String, Hex)> = database.rows(&SELECT, &parameter).await?;
        (found.into_iter())
            .map(|(content_hash, bytes)| Ok((content_hash, decode_embedding(model, &bytes)?)))
            .collect()
    }

    async fn forget_model(&self, model: &str) -> Result<u64, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let n_forgotten = transaction.execute(&FORGET, &[model]).await?;
        transaction.commit().await?;
        Ok(n_forgotten)
    }
}

fn decode_embedding(model: &str, bytes: &Hex) -> Result<Embedding, StoreError> {
    let corrupt = |reason| StoreError::Corrupt {
        table: TABLE,
        reason,
    };
    let vector = vector_of(bytes).ok_or_else(|| {
        corrupt(format!(
            "a vector has an invalid length: {} bytes",
            bytes.0.len()
        ))
    })?;
    Embedding::new(model, vector).map_err(|error| corrupt(error.to_string()))
}
