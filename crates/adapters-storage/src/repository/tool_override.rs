//! Overrides: decisions of operators about tools in lists.

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::OverrideId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{OverrideRepository, StoreError, Topic};
use serde::Deserialize;

use super::{audit, changes};
use crate::database::{Statement, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const REMOVE_REPLACED: Statement = Statement {
    table: "overrides",
    sqlite: "
        DELETE FROM overrides
        WHERE id = unhex(?1 ->> 0, '-')
            OR (tool = ?1 ->> 1 AND scope_kind = ?1 ->> 2 AND scope_id = ?1 ->> 3)",
    postgres: "
        DELETE FROM overrides
        WHERE id = ($1::jsonb ->> 0)::uuid
            OR (tool = $1::jsonb ->> 1 AND scope_kind = $1::jsonb ->> 2
                AND scope_id = $1::jsonb ->> 3)",
};

const INSERT: Statement = Statement {
    table: "overrides",
    sqlite: "
        INSERT INTO overrides (
            id, tool, scope_kind, scope_id, action, expires_at, reason, created_by, created_at)
        VALUES (
            unhex(?1 ->> 0, '-'), ?1 ->> 1, ?1 ->> 2, ?1 ->> 3, ?1 ->> 4, ?1 ->> 5, ?1 ->> 6,
            ?1 ->> 7, ?1 ->> 8)",
    postgres: "
        INSERT INTO overrides (
            id, tool, scope_kind, scope_id, action, expires_at, reason, created_by, created_at)
        SELECT
            (given ->> 0)::uuid, given ->> 1, given ->> 2, given ->> 3, given ->> 4,
            (given ->> 5)::bigint, given ->> 6, given ->> 7, (given ->> 8)::bigint
        FROM (SELECT $1::jsonb AS given) AS parameter",
};

const REMOVE: Statement = Statement {
    table: "overrides",
    sqlite: "DELETE FROM overrides WHERE id = unhex(?1 ->> 0, '-')",
    postgres: "DELETE FROM overrides WHERE id = ($1::jsonb ->> 0)::uuid",
};

const SELECT_ACTIVE: Statement = Statement {
    table: "overrides",
    sqlite: "
        SELECT json_array(
            hex(id), tool, action,
            json(CASE scope_kind
                WHEN 'global' THEN json_object('kind', scope_kind)
                ELSE json_object('kind', scope_kind, 'id', scope_id)
            END),
            expires_at, reason, created_by, created_at)
        FROM overrides
        WHERE expires_at IS NULL OR expires_at > ?1 ->> 0
        ORDER BY id",
    postgres: "
        SELECT json_build_array(
            id, tool, action,
            CASE scope_kind
                WHEN 'global' THEN json_build_object('kind', scope_kind)
                ELSE json_build_object('kind', scope_kind, 'id', scope_id)
            END,
            expires_at, reason, created_by, created_at)::text
        FROM overrides
        WHERE expires_at IS NULL OR expires_at > ($1::jsonb ->> 0)::bigint
        ORDER BY id",
};

#[async_trait]
impl OverrideRepository for Store {
    async fn set_override(
        &self,
        tool_override: &ToolOverride,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        let (id, tool, scope) = (tool_override.id, &tool_override.tool, &tool_override.scope);
        let replaced = (id, tool, scope.kind(), scope.id());
        let row = (
            id,
            tool,
            scope.kind(),
            scope.id(),
            tool_override.action,
            tool_override.expires_at.map(Micros),
            &tool_override.reason,
            &tool_override.created_by,
            Micros(tool_override.created_at),
        );
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        transaction.execute(&REMOVE_REPLACED, &replaced).await?;
        transaction.execute(&INSERT, &row).await?;
        audit::write(&mut transaction, audit).await?;
        changes::increase_revision(&mut transaction, Topic::Overrides).await?;
        transaction.commit().await
    }

    async fn remove_override(
        &self,
        id: OverrideId,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        if transaction.execute(&REMOVE, &[id]).await? == 0 {
            return Ok(false);
        }
        audit::write(&mut transaction, audit).await?;
        changes::increase_revision(&mut transaction, Topic::Overrides).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn overrides(&self, at: Timestamp) -> Result<Vec<ToolOverride>, StoreError> {
        let database = self.database().await?;
        let rows: Vec<OverrideRow> = database.rows(&SELECT_ACTIVE, &[Micros(at)]).await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }
}

#[derive(Deserialize)]
pub(crate) struct OverrideRow(
    OverrideId,
    String,
    OverrideAction,
    OverrideScope,
    Option<Micros>,
    Option<String>,
    Principal,
    Micros,
);

impl From<OverrideRow> for ToolOverride {
    fn from(row: OverrideRow) -> Self {
        let OverrideRow(id, tool, action, scope, expires_at, reason, created_by, created_at) = row;
        Self {
            id,
            tool,
            action,
            scope,
            expires_at: expires_at.map(|end| end.0),
            reason,
            created_by,
            created_at: created_at.0,
        }
    }
}
