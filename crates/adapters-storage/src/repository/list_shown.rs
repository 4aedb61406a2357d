//! Lists that sessions were shown.

use async_trait::async_trait;
use riglm_domain::id::SessionId;
use riglm_domain::list_shown::ListShown;
use riglm_domain::principal::Principal;
use riglm_ports::analytics::{ListShownRepository, StoreError};
use serde::Deserialize;

use super::tool_set::{self, Tools};
use crate::database::{Rows, Statement, Transaction};
use crate::store::Store;
use crate::value::{Micros, saturated};

const INSERT: Statement = Statement {
    table: "lists_shown",
    sqlite: "
        INSERT INTO lists_shown (
            session, shown_at, principal, epoch, policy, tool_set, n_available)
        SELECT
            unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4,
            value ->> 5, value ->> 6
        FROM jsonb_each(?1)
        WHERE true
        ON CONFLICT (session, shown_at) DO NOTHING",
    postgres: "
        INSERT INTO lists_shown (
            session, shown_at, principal, epoch, policy, tool_set, n_available)
        SELECT
            (value ->> 0)::uuid, (value ->> 1)::bigint, value ->> 2, (value ->> 3)::bigint,
            value ->> 4, value ->> 5, (value ->> 6)::bigint
        FROM jsonb_array_elements($1::jsonb)
        ON CONFLICT (session, shown_at) DO NOTHING",
};

const SELECT_NEWEST: Statement = Statement {
    table: "lists_shown",
    sqlite: "
        SELECT json_array(
            hex(session), principal, shown_at, epoch, policy, json(tools), n_available)
        FROM lists_shown
        JOIN tool_sets ON tool_sets.id = tool_set
        WHERE session = unhex(?1 ->> 0, '-')
        ORDER BY shown_at DESC
        LIMIT ?1 ->> 1",
    postgres: "
        SELECT json_build_array(
            session, principal, shown_at, epoch, policy, tools::json, n_available)::text
        FROM lists_shown
        JOIN tool_sets ON tool_sets.id = tool_set
        WHERE session = ($1::jsonb ->> 0)::uuid
        ORDER BY shown_at DESC
        LIMIT ($1::jsonb ->> 1)::bigint",
};

/// Writes lists that were shown, and their sets of tools.
pub(crate) async fn write(
    transaction: &mut Transaction,
    lists: &[&ListShown],
) -> Result<(), StoreError> {
    tool_set::write(transaction, lists.iter().map(|list| &list.tools)).await?;
    let rows = lists.iter().map(|list| {
        (
            list.session,
            Micros(list.shown_at),
            &list.principal,
            saturated(list.epoch),
            &list.policy,
            list.tools.id(),
            saturated(list.n_available),
        )
    });
    transaction.write(&INSERT, Rows::new(rows)?).await?;
    Ok(())
}

#[async_trait]
impl ListShownRepository for Store {
    async fn lists_shown(
        &self,
        session: SessionId,
        limit: u32,
    ) -> Result<Vec<ListShown>, StoreError> {
        let database = self.database().await?;
        let newest: Vec<Row> = database.rows(&SELECT_NEWEST, &(session, limit)).await?;
        Ok(newest.into_iter().rev().map(Into::into).collect())
    }
}

#[derive(Deserialize)]
pub(crate) struct Row(SessionId, Principal, Micros, u64, String, Tools, u64);

impl From<Row> for ListShown {
    fn from(row: Row) -> Self {
        let Row(session, principal, shown_at, epoch, policy, tools, n_available) = row;
        Self {
            session,
            principal,
            shown_at: shown_at.0,
            epoch,
            policy,
            tools: tools.into(),
            n_available,
        }
    }
}
