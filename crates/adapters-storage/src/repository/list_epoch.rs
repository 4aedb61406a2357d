//! Epochs of lists.

use async_trait::async_trait;
use riglm_domain::list_epoch::ListEpoch;
use riglm_ports::analytics::{ListEpochRepository, StoreError, Topic};
use serde::Deserialize;

use super::tool_set::Tools;
use super::version::check_follows;
use super::written::written;
use super::{changes, tool_set};
use crate::database::{Statement, WriteLock};
use crate::store::Store;
use crate::value::{Micros, saturated};

const BEGIN: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        INSERT INTO list_epochs (scope, epoch, policy, tool_set, began_at)
        VALUES (?1 ->> 0, ?1 ->> 1, ?1 ->> 2, ?1 ->> 3, ?1 ->> 4)
        ON CONFLICT (scope) DO UPDATE SET
            epoch = excluded.epoch, policy = excluded.policy, tool_set = excluded.tool_set,
            began_at = excluded.began_at",
    postgres: "
        INSERT INTO list_epochs (scope, epoch, policy, tool_set, began_at)
        SELECT
            given ->> 0, (given ->> 1)::bigint, given ->> 2, given ->> 3, (given ->> 4)::bigint
        FROM (SELECT $1::jsonb AS given) AS parameter
        ON CONFLICT (scope) DO UPDATE SET
            epoch = excluded.epoch, policy = excluded.policy, tool_set = excluded.tool_set,
            began_at = excluded.began_at",
};

const SELECT: Statement = Statement {
    table: "list_epochs",
    sqlite: "
        SELECT json_array(scope, epoch, policy, json(tools), began_at)
        FROM list_epochs JOIN tool_sets ON tool_sets.id = tool_set
        WHERE scope = ?1 ->> 0",
    postgres: "
        SELECT json_build_array(scope, epoch, policy, tools::json, began_at)::text
        FROM list_epochs JOIN tool_sets ON tool_sets.id = tool_set
        WHERE scope = $1::jsonb ->> 0",
};

#[async_trait]
impl ListEpochRepository for Store {
    async fn begin_epoch(&self, epoch: &ListEpoch) -> Result<ListEpoch, StoreError> {
        let scope = &epoch.scope;
        let mut transaction = self.database().await?.begin(WriteLock::Decisions).await?;
        let known: Option<Row> = transaction.row(&SELECT, &[scope]).await?;
        let newest = known.as_ref().map_or(0, |known| known.1);
        let follows = check_follows(|| format!("scope {scope}"), epoch.epoch, newest);
        match known {
            Some(known) if follows.is_err() => return Ok(known.into()),
            _ => follows?,
        }
        let row = (
            scope,
            saturated(epoch.epoch),
            &epoch.policy,
            epoch.tools.id(),
            Micros(epoch.began_at),
        );
        tool_set::write(&mut transaction, [&epoch.tools]).await?;
        transaction.execute(&BEGIN, &row).await?;
        changes::touch(&mut transaction, Topic::ListEpochs).await?;
        let begun: Option<Row> = transaction.row(&SELECT, &[scope]).await?;
        transaction.commit().await?;
        written(&SELECT, begun)
    }

    async fn list_epoch(&self, scope: &str) -> Result<Option<ListEpoch>, StoreError> {
        let database = self.database().await?;
        let epoch: Option<Row> = database.row(&SELECT, &[scope]).await?;
        Ok(epoch.map(Into::into))
    }
}

#[derive(Deserialize)]
struct Row(String, u64, String, Tools, Micros);

impl From<Row> for ListEpoch {
    fn from(row: Row) -> Self {
        let Row(scope, epoch, policy, tools, began_at) = row;
        Self {
            scope,
            epoch,
            policy,
            tools: tools.into(),
            began_at: began_at.0,
        }
    }
}
