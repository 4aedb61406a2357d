//! The audit trail.

use async_trait::async_trait;
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{AuditTrail, StoreError};
use serde::Deserialize;

use crate::database::{Statement, Transaction, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const INSERT: Statement = Statement {
    table: "audit",
    sqlite: "
        INSERT INTO audit (id, at, actor, action, target, detail)
        VALUES (unhex(?1 ->> 0, '-'), ?1 ->> 1, ?1 ->> 2, ?1 ->> 3, ?1 ->> 4, ?1 ->> 5)
        ON CONFLICT (id) DO NOTHING",
    postgres: "
        INSERT INTO audit (id, at, actor, action, target, detail)
        SELECT
            (entry ->> 0)::uuid, (entry ->> 1)::bigint, entry ->> 2, entry ->> 3, entry ->> 4,
            entry ->> 5
        FROM (SELECT $1::jsonb AS entry) AS given
        ON CONFLICT (id) DO NOTHING",
};

// Parameters: limit, the cursor of the page or null.
const SELECT_NEWEST: Statement = Statement {
    table: "audit",
    sqlite: "
        SELECT json_array(hex(id), at, actor, action, target, detail)
        FROM audit
        WHERE ?1 ->> 1 IS NULL OR id < unhex(?1 ->> 1, '-')
        ORDER BY id DESC
        LIMIT ?1 ->> 0",
    postgres: "
        SELECT json_build_array(id, at, actor, action, target, detail)::text
        FROM audit
        WHERE $1::jsonb ->> 1 IS NULL OR id < ($1::jsonb ->> 1)::uuid
        ORDER BY id DESC
        LIMIT ($1::jsonb ->> 0)::bigint",
};

/// Writes an entry in the transaction of the change that it describes.
pub(crate) async fn write(
    transaction: &mut Transaction,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let row = (
        entry.id,
        Micros(entry.at),
        &entry.actor,
        &entry.action,
        &entry.target,
        &entry.detail,
    );
    transaction.execute(&INSERT, &row).await?;
    Ok(())
}

#[async_trait]
impl AuditTrail for Store {
    async fn add(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        write(&mut transaction, entry).await?;
        transaction.commit().await
    }

    async fn entries_before(
        &self,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let database = self.database().await?;
        let newest: Vec<AuditRow> = database.rows(&SELECT_NEWEST, &(limit, before)).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }
}

#[derive(Deserialize)]
struct AuditRow(AuditId, Micros, Principal, String, String, Option<String>);

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        let AuditRow(id, at, actor, action, target, detail) = row;
        Self {
            id,
            at: at.0,
            actor,
            action,
            target,
            detail,
        }
    }
}
