//! Approvals: the definitions of tools that an operator accepted.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riglm_domain::catalog::tool::ToolSighting;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{StoreError, ToolApprovalRepository};
use serde::Deserialize;

use super::audit;
use crate::database::{EncodedRows, Statement, Transaction, WriteLock};
use crate::store::Store;
use crate::value::Micros;

const IS_KNOWN: Statement = Statement {
    table: "tool_approvals",
    sqlite: "
        SELECT json_array(1) FROM tool_approvals WHERE upstream = ?1 ->> 0 LIMIT 1",
    postgres: "
        SELECT json_build_array(1)::text
        FROM tool_approvals
        WHERE upstream = $1::jsonb ->> 0
        LIMIT 1",
};

const INSERT: Statement = Statement {
    table: "tool_approvals",
    sqlite: "
        INSERT INTO tool_approvals (
            upstream, tool, content_hash, definition, approved_at, approved_by)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (upstream, tool) DO UPDATE SET
            content_hash = excluded.content_hash,
            definition = excluded.definition,
            approved_at = excluded.approved_at,
            approved_by = excluded.approved_by",
    postgres: "
        INSERT INTO tool_approvals (
            upstream, tool, content_hash, definition, approved_at, approved_by)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::bigint,
            value ->> 5
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (upstream, md5(tool)) DO UPDATE SET
            content_hash = excluded.content_hash,
            definition = excluded.definition,
            approved_at = excluded.approved_at,
            approved_by = excluded.approved_by",
};

const SELECT: Statement = Statement {
    table: "tool_approvals",
    sqlite: "
        SELECT json_array(tool, content_hash, definition, approved_at, approved_by)
        FROM tool_approvals
        WHERE upstream = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(tool, content_hash, definition, approved_at, approved_by)::text
        FROM tool_approvals
        WHERE upstream = $1::jsonb ->> 0",
};

async fn write(
    transaction: &mut Transaction,
    upstream: &UpstreamName,
    approvals: &[ToolApproval],
) -> Result<(), StoreError> {
    // One row for each tool: a statement cannot replace a row that it has just written.
    let approvals: BTreeMap<&ToolName, &ToolApproval> = approvals
        .iter()
        .map(|approval| (&approval.sighting.name, approval))
        .collect();
    let rows = approvals.into_values().map(|approval| {
        let ToolSighting {
            name,
            content_hash,
            definition,
        } = &approval.sighting;
        (
            upstream,
            name,
            content_hash,
            definition,
            Micros(approval.approved_at),
            &approval.approved_by,
        )
    });
    transaction.write(&INSERT, EncodedRows::new(rows)?).await?;
    Ok(())
}

#[async_trait]
impl ToolApprovalRepository for Store {
    async fn approve_first(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let known: Option<(u8,)> = transaction.row(&IS_KNOWN, &[upstream]).await?;
        if known.is_some() {
            return Ok(false);
        }
        write(&mut transaction, upstream, approvals).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn approve(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        write(&mut transaction, upstream, approvals).await?;
        audit::write(&mut transaction, audit).await?;
        transaction.commit().await
    }

    async fn approvals(&self, upstream: &UpstreamName) -> Result<Vec<ToolApproval>, StoreError> {
        let database = self.database().await?;
        let rows: Vec<ToolApprovalRow> = database.rows(&SELECT, &[upstream]).await?;
        let mut approvals: Vec<ToolApproval> = rows.into_iter().map(Into::into).collect();
        // Ordered by the bytes of the names, independent of the collation of the database.
        approvals.sort_by(|one, other| one.sighting.name.cmp(&other.sighting.name));
        Ok(approvals)
    }
}

#[derive(Deserialize)]
struct ToolApprovalRow(ToolName, String, String, Micros, Principal);

impl From<ToolApprovalRow> for ToolApproval {
    fn from(row: ToolApprovalRow) -> Self {
        let ToolApprovalRow(name, content_hash, definition, approved_at, approved_by) = row;
        Self {
            sighting: ToolSighting {
                name,
                content_hash,
                definition,
            },
            approved_at: approved_at.0,
            approved_by,
        }
    }
}
