//! Memories of upstream servers.

use std::collections::BTreeSet;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_ports::analytics::{ServerMemory, ServerMemoryRepository, StoreError};
use serde::Deserialize;

use crate::database::{EncodedRows, Statement, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const TABLE: &str = "server_memories";

// It gets one row at a time: a content may be large, and the text of a parameter has a limit.
const PUT: Statement = Statement {
    table: TABLE,
    sqlite: "
        INSERT INTO server_memories (upstream, part, fingerprint, content, learned_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (upstream, part) DO UPDATE SET
            fingerprint = excluded.fingerprint,
            content = excluded.content,
            learned_at = excluded.learned_at",
    postgres: "
        INSERT INTO server_memories (upstream, part, fingerprint, content, learned_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (upstream, part) DO UPDATE SET
            fingerprint = excluded.fingerprint,
            content = excluded.content,
            learned_at = excluded.learned_at",
};

const REMOVE: Statement = Statement {
    table: TABLE,
    sqlite: "DELETE FROM server_memories WHERE upstream = ?1 ->> 0 AND part = ?1 ->> 1",
    postgres: "
        DELETE FROM server_memories
        WHERE upstream = $1::jsonb ->> 0 AND part = $1::jsonb ->> 1",
};

// Removes all parts of an upstream but the newest. Parameters: the upstream, the number of parts.
const LIMIT: Statement = Statement {
    table: TABLE,
    sqlite: "
        DELETE FROM server_memories
        WHERE upstream = ?1 ->> 0 AND part IN (
            SELECT part
            FROM server_memories
            WHERE upstream = ?1 ->> 0
            ORDER BY learned_at DESC, part DESC
            LIMIT -1 OFFSET ?1 ->> 1)",
    postgres: "
        DELETE FROM server_memories
        WHERE upstream = $1::jsonb ->> 0 AND part = ANY (ARRAY(
            SELECT part
            FROM server_memories
            WHERE upstream = $1::jsonb ->> 0
            ORDER BY learned_at DESC, part COLLATE \"C\" DESC
            OFFSET ($1::jsonb ->> 1)::bigint))",
};

const SELECT: Statement = Statement {
    table: TABLE,
    sqlite: "
        SELECT json_array(upstream, part, fingerprint, content, learned_at)
        FROM server_memories
        WHERE upstream IN (SELECT value FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(upstream, part, fingerprint, content, learned_at)::text
        FROM server_memories
        WHERE upstream = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text($1::jsonb)))",
};

#[async_trait]
impl ServerMemoryRepository for Store {
    async fn remember_servers(&self, memories: &[ServerMemory]) -> Result<(), StoreError> {
        // Encoded before the transaction, because a server ends one that is idle for long.
        let mut encoded = Vec::new();
        for memory in memories {
            let ServerMemory {
                upstream,
                fingerprint,
                part,
                content,
                learned_at,
            } = memory;
            let row = (upstream, part, fingerprint, content, Micros(*learned_at));
            let row = EncodedRows::new(memory.fits().then_some(row))?;
            encoded.push(((upstream, part), row));
        }
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        for (key, row) in encoded {
            // A memory that does not fit has no row.
            if transaction.write(&PUT, row).await? == 0 {
                transaction.execute(&REMOVE, &key).await?;
            }
        }
        let upstreams: BTreeSet<_> = memories.iter().map(|memory| &memory.upstream).collect();
        for upstream in upstreams {
            let limit = (upstream, ServerMemory::MAX_PARTS);
            transaction.execute(&LIMIT, &limit).await?;
        }
        transaction.commit().await
    }

    async fn recall_servers(
        &self,
        upstreams: &[UpstreamName],
    ) -> Result<Vec<ServerMemory>, StoreError> {
        let database = self.database().await?;
        let rows: Vec<ServerMemoryRow> = database.rows(&SELECT, &upstreams).await?;
        let mut memories: Vec<ServerMemory> = rows.into_iter().map(Into::into).collect();
        // Ordered by the bytes of the names, independent of the collation of the database.
        memories
            .sort_by(|one, other| (&one.upstream, &one.part).cmp(&(&other.upstream, &other.part)));
        Ok(memories)
    }
}

#[derive(Deserialize)]
struct ServerMemoryRow(UpstreamName, String, String, String, Micros);

impl From<ServerMemoryRow> for ServerMemory {
    fn from(row: ServerMemoryRow) -> Self {
        let ServerMemoryRow(upstream, part, fingerprint, content, learned_at) = row;
        Self {
            upstream,
            fingerprint,
            part,
            content,
            learned_at: learned_at.0,
        }
    }
}
