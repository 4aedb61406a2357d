//! Snapshots of learned state.

use async_trait::async_trait;
use riglm_domain::id::InvocationId;
use riglm_domain::usage::learned_state::Snapshot;
use riglm_ports::analytics::{SnapshotRepository, StoreError, Topic};
use serde::Deserialize;

use super::changes;
use super::version::check_follows;
use crate::database::{Statement, Transaction, WriteLock};
use crate::store::Store;
use crate::value::{Hex, Micros, saturating_count};

// The number of snapshots that are kept of each model.
const N_KEPT: u64 = 2;

const NEWEST_VERSION: Statement = Statement {
    table: "snapshots",
    sqlite: "SELECT json_array(max(version)) FROM snapshots WHERE model = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(max(version))::text FROM snapshots WHERE model = $1::jsonb ->> 0",
};

const INSERT: Statement = Statement {
    table: "snapshots",
    sqlite: "
        INSERT INTO snapshots (model, version, format, learned_to, taken_at, bytes)
        SELECT
            given ->> 0, given ->> 1, given ->> 2, unhex(given ->> 3, '-'), given ->> 4,
            unhex(given ->> 5)
        FROM (SELECT jsonb(?1) AS given)",
    postgres: "
        INSERT INTO snapshots (model, version, format, learned_to, taken_at, bytes)
        SELECT
            given ->> 0, (given ->> 1)::bigint, (given ->> 2)::bigint, (given ->> 3)::uuid,
            (given ->> 4)::bigint, decode(given ->> 5, 'hex')
        FROM (SELECT $1::jsonb AS given) AS parameter",
};

const REMOVE_UP_TO: Statement = Statement {
    table: "snapshots",
    sqlite: "DELETE FROM snapshots WHERE model = ?1 ->> 0 AND version <= ?1 ->> 1",
    postgres: "
        DELETE FROM snapshots
        WHERE model = $1::jsonb ->> 0 AND version <= ($1::jsonb ->> 1)::bigint",
};

const SELECT_NEWEST: Statement = Statement {
    table: "snapshots",
    sqlite: "
        SELECT json_array(
            model, version, format, iif(learned_to IS NULL, NULL, hex(learned_to)), taken_at,
            hex(bytes))
        FROM snapshots
        WHERE model = ?1 ->> 0
        ORDER BY version DESC
        LIMIT 1",
    postgres: "
        SELECT json_build_array(
            model, version, format, learned_to, taken_at, encode(bytes, 'hex'))::text
        FROM snapshots
        WHERE model = $1::jsonb ->> 0
        ORDER BY version DESC
        LIMIT 1",
};

const DELETE_ALL: Statement = Statement {
    table: "snapshots",
    sqlite: "DELETE FROM snapshots WHERE ?1 = '[]'",
    postgres: "DELETE FROM snapshots WHERE $1 = '[]'",
};

#[async_trait]
impl SnapshotRepository for Store {
    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let (model, version) = (&snapshot.model, snapshot.version);
        let row = (
            model,
            saturating_count(version),
            snapshot.format,
            snapshot.learned_to,
            Micros(snapshot.taken_at),
            Hex(snapshot.bytes.clone()),
        );
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let newest: Option<(Option<u64>,)> = transaction.row(&NEWEST_VERSION, &[model]).await?;
        let newest = newest.and_then(|(version,)| version).unwrap_or(0);
        check_follows(|| format!("model {model}"), version, newest)?;
        transaction.execute(&INSERT, &row).await?;
        // In the same transaction, so that the table never grows beyond the limit.
        if let Some(too_old) = version.checked_sub(N_KEPT) {
            let old = (model, saturating_count(too_old));
            transaction.execute(&REMOVE_UP_TO, &old).await?;
        }
        changes::increase_revision(&mut transaction, Topic::Snapshots).await?;
        transaction.commit().await
    }

    async fn newest_snapshot(&self, model: &str) -> Result<Option<Snapshot>, StoreError> {
        let database = self.database().await?;
        let newest: Option<SnapshotRow> = database.row(&SELECT_NEWEST, &[model]).await?;
        Ok(newest.map(Into::into))
    }

    async fn delete_snapshots(&self) -> Result<(), StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        delete_all(&mut transaction).await?;
        transaction.commit().await
    }
}

/// Deletes all snapshots, and reports the erasure in the change feed. Learners then learn again from
/// the recorded calls. The transaction must hold the lock on decisions.
pub(crate) async fn delete_all(transaction: &mut Transaction) -> Result<(), StoreError> {
    let none: [(); 0] = [];
    transaction.execute(&DELETE_ALL, &none).await?;
    changes::increase_revision(transaction, Topic::Erasures).await
}

#[derive(Deserialize)]
struct SnapshotRow(String, u64, u32, Option<InvocationId>, Micros, Hex);

impl From<SnapshotRow> for Snapshot {
    fn from(row: SnapshotRow) -> Self {
        let SnapshotRow(model, version, format, learned_to, taken_at, bytes) = row;
        Self {
            model,
            version,
            format,
            learned_to,
            taken_at: taken_at.0,
            bytes: bytes.0,
        }
    }
}
