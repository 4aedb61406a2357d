//! All that is stored of one client, to hand out and to remove.

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;

use super::StoreError;

/// The clients that are meant: those whose keyed hash, in hexadecimal, is this text, or that
/// called themselves by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSelector(pub String);

/// One row as it is handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRow {
    /// The kind of row: `session`, `call`, `exchange`, `tools_listed`, `list_shown`, `search`,
    /// `context`, `recommendation`, `feedback`, `work_session`, `override`.
    pub kind: &'static str,
    /// Its columns by name.
    pub row: Value,
}

/// How many rows were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Sessions.
    pub n_sessions: u64,
    /// Tool calls.
    pub n_calls: u64,
    /// Other rows.
    pub n_others: u64,
}

/// Hands out and removes what is stored of clients.
#[async_trait]
pub trait ClientData: Send + Sync + fmt::Debug {
    /// Gives all rows of the clients to `take`, kind by kind in the order of [`ClientRow::kind`],
    /// each kind by identifier; nothing for a client that is not known. Ends early when `take`
    /// returns `false`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError>;

    /// Removes all rows of the clients and what they contributed to the counts. Afterwards nothing
    /// of them is found in the files of the database either, as far as it has files of its own.
    /// Other clients keep all of theirs.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; a part may be removed then.
    async fn delete(&self, clients: &ClientSelector) -> Result<Deleted, StoreError>;
}
