//! The change feed: a revision for each topic.

use std::collections::HashMap;

use async_trait::async_trait;
use riglm_ports::analytics::{ChangeFeed, StoreError, Topic};

use crate::database::{Statement, Transaction};
use crate::store::Store;

const TOUCH: Statement = Statement {
    table: "revisions",
    sqlite: "
        INSERT INTO revisions (topic, revision)
        VALUES (?1 ->> 0, 1)
        ON CONFLICT (topic) DO UPDATE SET revision = revision + 1",
    postgres: "
        INSERT INTO revisions (topic, revision)
        VALUES ($1::jsonb ->> 0, 1)
        ON CONFLICT (topic) DO UPDATE SET revision = revisions.revision + 1",
};

const SELECT: Statement = Statement {
    table: "revisions",
    sqlite: "
        SELECT json_array(topic, revision)
        FROM revisions
        WHERE topic IN (SELECT value FROM json_each(?1))",
    postgres: "
        SELECT json_build_array(topic, revision)::text
        FROM revisions
        WHERE topic = ANY (ARRAY(
            SELECT value FROM jsonb_array_elements_text($1::jsonb)))",
};

/// Increases the revision of a topic. The transaction must hold the lock on decisions.
pub(crate) async fn increase_revision(
    transaction: &mut Transaction,
    topic: Topic,
) -> Result<(), StoreError> {
    transaction.execute(&TOUCH, &[topic.as_str()]).await?;
    Ok(())
}

#[async_trait]
impl ChangeFeed for Store {
    async fn revisions(&self) -> Result<[u64; Topic::ALL.len()], StoreError> {
        let database = self.database().await?;
        let names: Vec<&str> = Topic::ALL.iter().map(|topic| topic.as_str()).collect();
        let rows: Vec<(String, u64)> = database.rows(&SELECT, &names).await?;
        let by_name: HashMap<String, u64> = rows.into_iter().collect();
        let mut revisions = [0; Topic::ALL.len()];
        for (revision, name) in revisions.iter_mut().zip(names) {
            *revision = by_name.get(name).copied().unwrap_or(0);
        }
        Ok(revisions)
    }
}
