//! Records to rows, a batch in one transaction.
//!
//! A batch is folded in memory first, so that a call whose beginning and end stand in it costs
//! one insert. Each kind of row then takes one statement with constant text, whose only parameter
//! is a JSON array that `jsonb_each` turns into rows: the number of statements, and of round trips
//! to the connection's thread, does not grow with the number of rows. (`json_each` gives the inner
//! arrays as text, which every column then parses again: it takes twice the processor time.)

mod fold;

use async_trait::async_trait;
use riglm_domain::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};
use sqlx::SqliteConnection;

use self::fold::Folded;
use super::{SqliteStore, exchange, invocation, listing, session};
use crate::error::failing;

#[async_trait]
impl RecordSink for SqliteStore {
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut transaction = self
            .writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(failing("begin to write records"))?;
        // What a lost run left open is closed at its place among the records.
        for part in records.split_inclusive(|record| matches!(record, Record::RunLost { .. })) {
            write(&mut transaction, &Folded::new(part)).await?;
            if let Some(Record::RunLost { run, noticed_at }) = part.last() {
                invocation::write_lost(&mut transaction, *run).await?;
                session::write_lost(&mut transaction, *run, *noticed_at).await?;
            }
        }
        transaction
            .commit()
            .await
            .map_err(failing("commit records"))
    }
}

async fn write(connection: &mut SqliteConnection, batch: &Folded<'_>) -> Result<(), StoreError> {
    session::write_opened(connection, &batch.sessions).await?;
    session::write_closed(connection, &batch.closed_sessions).await?;
    listing::write_seen(connection, &batch.pages).await?;
    listing::write_listed(connection, &batch.listed).await?;
    invocation::write_opened(connection, batch.calls()).await?;
    invocation::write_closed(connection, batch.ends()).await?;
    exchange::write(connection, &batch.exchanges).await
}
