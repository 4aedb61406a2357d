//! Epochs of lists.

use async_trait::async_trait;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use riglm_domain::selection::{ExpectedCoverage, SizeChoice};
use riglm_ports::analytics::{ListEpochRepository, StoreError, Topic};
use serde::Deserialize;

use super::returned_row::required_row;
use super::tool_set::ToolsColumn;
use super::version::check_follows;
use super::{changes, tool_set};
use crate::database::{Statement, WriteLock};
use crate::store::Store;
use crate::value::{Micros, saturating_count};

const BEGIN: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        INSERT INTO list_epochs (
            scope, epoch, policy, tool_set, began_at, known, mode, reason, search_first, client,
            size_choice, expected_coverage)
        VALUES (
            ?1 ->> 0, ?1 ->> 1, ?1 ->> 2, ?1 ->> 3, ?1 ->> 4, ?1 ->> 5, ?1 ->> 6, ?1 ->> 7,
            ?1 ->> 8, unhex(?1 ->> 9), ?1 ->> 10, ?1 ->> 11)
        ON CONFLICT (scope) DO UPDATE SET
            epoch = excluded.epoch, policy = excluded.policy, tool_set = excluded.tool_set,
            began_at = excluded.began_at, known = excluded.known, mode = excluded.mode,
            reason = excluded.reason, search_first = excluded.search_first,
            client = excluded.client, size_choice = excluded.size_choice,
            expected_coverage = excluded.expected_coverage",
    postgres: "
        INSERT INTO list_epochs (
            scope, epoch, policy, tool_set, began_at, known, mode, reason, search_first, client,
            size_choice, expected_coverage)
        SELECT
            given ->> 0, (given ->> 1)::bigint, given ->> 2, given ->> 3, (given ->> 4)::bigint,
            given ->> 5, given ->> 6, given ->> 7, (given ->> 8)::boolean,
            decode(given ->> 9, 'hex'), given ->> 10, (given ->> 11)::double precision
        FROM (SELECT $1::jsonb AS given) AS parameter
        ON CONFLICT (scope) DO UPDATE SET
            epoch = excluded.epoch, policy = excluded.policy, tool_set = excluded.tool_set,
            began_at = excluded.began_at, known = excluded.known, mode = excluded.mode,
            reason = excluded.reason, search_first = excluded.search_first,
            client = excluded.client, size_choice = excluded.size_choice,
            expected_coverage = excluded.expected_coverage",
};

const SELECT: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        SELECT json_array(
            scope, epoch, policy, json(shown.tools), began_at, json(known.tools), mode, reason,
            search_first, iif(client IS NULL, NULL, hex(client)), json(size_choice),
            expected_coverage)
        FROM list_epochs
        JOIN tool_sets AS shown ON shown.id = tool_set
        JOIN tool_sets AS known ON known.id = list_epochs.known
        WHERE scope = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(
            scope, epoch, policy, shown.tools::json, began_at, known.tools::json, mode, reason,
            search_first::int, encode(client, 'hex'), size_choice::json,
            expected_coverage)::text
        FROM list_epochs
        JOIN tool_sets AS shown ON shown.id = tool_set
        JOIN tool_sets AS known ON known.id = list_epochs.known
        WHERE scope = $1::jsonb ->> 0",
};

#[async_trait]
impl ListEpochRepository for Store {
    async fn begin_epoch(&self, epoch: &ListEpoch) -> Result<ListEpoch, StoreError> {
        let scope = &epoch.scope;
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let known: Option<ListEpochRow> = transaction.row(&SELECT, &[scope]).await?;
        let newest = known.as_ref().map_or(0, |known| known.epoch);
        let follows = check_follows(|| format!("scope {scope}"), epoch.epoch, newest);
        match known {
            Some(known) if follows.is_err() => return Ok(known.into()),
            _ => follows?,
        }
        let row = (
            scope,
            saturating_count(epoch.epoch),
            &epoch.policy,
            epoch.tools.id(),
            Micros(epoch.began_at),
            epoch.known.id(),
            epoch.mode,
            epoch.reason,
            epoch.search_first,
            epoch.client,
            &epoch.size_choice,
            epoch.expected_coverage,
        );
        tool_set::write(&mut transaction, [&epoch.tools, &epoch.known]).await?;
        transaction.execute(&BEGIN, &row).await?;
        changes::increase_revision(&mut transaction, Topic::ListEpochs).await?;
        let begun: Option<ListEpochRow> = transaction.row(&SELECT, &[scope]).await?;
        transaction.commit().await?;
        required_row(&SELECT, begun)
    }

    async fn list_epoch(&self, scope: &str) -> Result<Option<ListEpoch>, StoreError> {
        let database = self.database().await?;
        let epoch: Option<ListEpochRow> = database.row(&SELECT, &[scope]).await?;
        Ok(epoch.map(Into::into))
    }
}

/// The columns in the order of the statement.
#[derive(Deserialize)]
pub(crate) struct ListEpochRow {
    scope: String,
    epoch: u64,
    policy: String,
    tools: ToolsColumn,
    began_at: Micros,
    known: ToolsColumn,
    mode: SelectionMode,
    reason: Option<SelectionReason>,
    search_first: u8,
    client: Option<KeyedHash>,
    size_choice: Option<SizeChoice>,
    expected_coverage: Option<ExpectedCoverage>,
}

impl From<ListEpochRow> for ListEpoch {
    fn from(row: ListEpochRow) -> Self {
        Self {
            scope: row.scope,
            epoch: row.epoch,
            policy: row.policy,
            tools: row.tools.into(),
            known: row.known.into(),
            mode: row.mode,
            reason: row.reason,
            search_first: row.search_first != 0,
            client: row.client,
            size_choice: row.size_choice,
            expected_coverage: row.expected_coverage,
            began_at: row.began_at.0,
        }
    }
}
