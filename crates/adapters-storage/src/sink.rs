//! The record sink: applies a batch of records to rows and counts in one transaction.
//!
//! A batch is first folded in memory, so that a call with both beginning and end in the batch costs
//! one insert. Each kind of row then takes one statement with a constant text. Its only parameter
//! is a JSON array that the database expands into rows, so that the number of statements and round
//! trips does not grow with the number of rows. (SQLite uses `jsonb_each` for this. `json_each`
//! returns the inner arrays as text, which every column then parses again, and takes twice the
//! processor time.)

mod fold;
mod usage;

use async_trait::async_trait;
use riglm_domain::id::InvocationId;
use riglm_domain::usage::invocation::{InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{RecordSink, StoreError};

use self::fold::FoldedBatch;
use crate::counts;
use crate::database::{Database, Transaction, WriteLock};
use crate::error::operation_error;
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
            // A server that is disconnected in the middle of a transaction never answers. The
            // connection is dropped at the deadline, and the next attempt uses another one.
            Some(deadline) => match tokio::time::timeout(deadline, applying).await {
                Ok(applied) => applied,
                Err(elapsed) => Err(operation_error("write records in time")(elapsed)),
            },
        };
        self.mark_if_damaged(applied)
    }
}

async fn apply(database: &Database, records: &[Record]) -> Result<(), StoreError> {
    let mut transaction = database.begin(WriteLock::Usage).await?;
    // A lost run closes its open calls at its position among the records.
    for part in records.split_inclusive(|record| matches!(record, Record::RunLost { .. })) {
        write(&mut transaction, &FoldedBatch::new(part)).await?;
        if let Some(Record::RunLost { run, noticed_at }) = part.last() {
            let open = counts::open_calls_of(&mut transaction, *run).await?;
            let ends: Vec<_> = open.into_iter().map(unknown_end).collect();
            write(&mut transaction, &FoldedBatch::of_ends(&ends)).await?;
            session::write_lost(&mut transaction, *run, *noticed_at).await?;
        }
    }
    transaction.commit().await
}

/// Returns the end of a call with an unknown outcome and an unknown duration.
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

async fn write(transaction: &mut Transaction, batch: &FoldedBatch<'_>) -> Result<(), StoreError> {
    session::write_opened(transaction, &batch.sessions).await?;
    session::write_closed(transaction, &batch.closed_sessions).await?;
    tool_definition::write_seen(transaction, &batch.pages).await?;
    session::write_listed(transaction, &batch.listed).await?;
    // The changes of the counts depend on the rows before they are written.
    let change = usage::change(transaction, batch).await?;
    invocation::write_closed(transaction, batch.ends()).await?;
    invocation::write_opened(transaction, batch.calls()).await?;
    // The rows of new calls have them already.
    let tokens = (batch.tokens()).filter(|tokens| !change.new_calls.contains(&tokens.id));
    invocation::write_tokens(transaction, tokens).await?;
    usage::write(transaction, change).await?;
    exchange::write(transaction, &batch.exchanges).await?;
    list_shown::write(transaction, &batch.lists_shown).await?;
    search::write(transaction, &batch.searches).await?;
    context::write(transaction, &batch.contexts).await?;
    recommendation::write(transaction, &batch.recommendations).await?;
    feedback::write(transaction, &batch.feedback).await
}
