//! Records to rows and counts, a batch in one transaction.
//!
//! A batch is folded in memory first, so that a call whose beginning and end stand in it costs
//! one insert. Each kind of row then takes one statement with constant text, whose only parameter
//! is a JSON array that the database turns into rows: the number of statements, and of round
//! trips, does not grow with the number of rows. (In SQLite `jsonb_each` does so: `json_each`
//! gives the inner arrays as text, which every column then parses again, and takes twice the
//! processor time.)

mod fold;
mod usage;

use async_trait::async_trait;
use riglm_domain::id::InvocationId;
use riglm_domain::invocation::{InvocationEnd, Outcome};
use riglm_domain::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};

use self::fold::Folded;
use crate::counts;
use crate::database::{Database, Transaction, WriteLock};
use crate::error::failing;
use crate::repository::{
    context, exchange, feedback, invocation, list_shown, recommendation, search, session,
    tool_definition,
};
use crate::store::Store;

#[async_trait]
impl RecordSink for Store {
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let database = self.database().await?;
        let applying = apply(database, records);
        let applied = match database.deadline() {
            None => applying.await,
            // A server that is cut off in the middle of a transaction never answers; its
            // connection is given up, and the next attempt has another one.
            Some(deadline) => match tokio::time::timeout(deadline, applying).await {
                Ok(applied) => applied,
                Err(elapsed) => Err(failing("write records in time")(elapsed)),
            },
        };
        self.noting_damage(applied)
    }
}

async fn apply(database: &Database, records: &[Record]) -> Result<(), StoreError> {
    let mut transaction = database.begin(WriteLock::Usage).await?;
    // What a lost run left open is closed at its place among the records.
    for part in records.split_inclusive(|record| matches!(record, Record::RunLost { .. })) {
        write(&mut transaction, &Folded::new(part)).await?;
        if let Some(Record::RunLost { run, noticed_at }) = part.last() {
            let open = counts::open_calls_of(&mut transaction, *run).await?;
            let ends: Vec<_> = open.into_iter().map(unknown_end).collect();
            write(&mut transaction, &Folded::of_ends(&ends)).await?;
            session::write_lost(&mut transaction, *run, *noticed_at).await?;
        }
    }
    transaction.commit().await
}

/// Returns the end of a call of which nothing more is known, nor how long it ran.
fn unknown_end(id: InvocationId) -> InvocationEnd {
    InvocationEnd {
        id,
        outcome: Outcome::Unknown,
        duration_us: 0,
        wait_us: 0,
        response_bytes: 0,
        result: None,
    }
}

async fn write(transaction: &mut Transaction, batch: &Folded<'_>) -> Result<(), StoreError> {
    session::write_opened(transaction, &batch.sessions).await?;
    session::write_closed(transaction, &batch.closed_sessions).await?;
    tool_definition::write_seen(transaction, &batch.pages).await?;
    session::write_listed(transaction, &batch.listed).await?;
    // What is counted depends on the rows as they are before.
    let change = usage::change(transaction, batch).await?;
    invocation::write_closed(transaction, batch.ends()).await?;
    invocation::write_opened(transaction, batch.calls()).await?;
    invocation::write_tokens(transaction, &batch.tokens).await?;
    usage::write(transaction, change).await?;
    exchange::write(transaction, &batch.exchanges).await?;
    list_shown::write(transaction, &batch.lists_shown).await?;
    search::write(transaction, &batch.searches).await?;
    context::write(transaction, &batch.contexts).await?;
    recommendation::write(transaction, &batch.recommendations).await?;
    feedback::write(transaction, &batch.feedback).await
}
