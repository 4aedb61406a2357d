//! Export and deletion of all stored data of one client.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::id::SessionId;
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::InvocationSummary;
use riglm_domain::usage::session::Session;
use riglm_domain::usage::work_session::WorkSession;
use serde::Serialize;
use serde_json::{Value, json};

use super::StoreError;

/// Selects clients whose keyed hash, in hexadecimal, is this text, or that identified themselves
/// with it as their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSelector(pub String);

/// One exported row.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRow {
    /// The kind of row: `session`, `call`, `exchange`, `tools_listed`, `list_shown`, `search`,
    /// `context`, `recommendation`, `feedback`, `work_session`, `list_epoch`, `override`.
    pub kind: &'static str,
    /// A JSON object with the columns by name.
    pub row: Value,
}

impl ClientRow {
    /// The kinds of rows, in the order of the export.
    pub const KINDS: [&'static str; 12] = [
        "session",
        "call",
        "exchange",
        "tools_listed",
        "list_shown",
        "search",
        "context",
        "recommendation",
        "feedback",
        "work_session",
        "list_epoch",
        "override",
    ];

    /// Returns the row of a session: its members, and `ended_at`, which is `null` while it runs.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Failed`] when the row cannot be serialized as JSON. The other
    /// constructors do the same.
    pub fn session(session: &Session, ended_at: Option<Timestamp>) -> Result<Self, StoreError> {
        let mut row = Self::new("session", session)?;
        row.insert("ended_at", &ended_at)?;
        Ok(row)
    }

    /// Returns the row of a call: the members of the invocation, and `end`, `request_tokens` and
    /// `response_tokens`, which are `null` if they are missing.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn call(call: &InvocationSummary) -> Result<Self, StoreError> {
        let mut row = Self::new("call", &call.invocation)?;
        row.insert("end", &call.end)?;
        row.insert("request_tokens", &call.request_tokens)?;
        row.insert("response_tokens", &call.response_tokens)?;
        Ok(row)
    }

    /// Returns the row of an exchange.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn exchange(exchange: &Exchange) -> Result<Self, StoreError> {
        Self::new("exchange", exchange)
    }

    /// Returns the row of a page of tools that was listed to a session: `session`, `listing` and
    /// `listed_at`.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn tools_listed(
        session: SessionId,
        listing: &str,
        listed_at: Timestamp,
    ) -> Result<Self, StoreError> {
        let row = json!({"session": session, "listing": listing, "listed_at": listed_at});
        Self::new("tools_listed", &row)
    }

    /// Returns the row of a list that was shown to the client.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn list_shown(list: &ListShown) -> Result<Self, StoreError> {
        Self::new("list_shown", list)
    }

    /// Returns the row of a search.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn search(search: &Search) -> Result<Self, StoreError> {
        Self::new("search", search)
    }

    /// Returns the row of a context.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn context(context: &Context) -> Result<Self, StoreError> {
        Self::new("context", context)
    }

    /// Returns the row of a recommendation.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn recommendation(recommendation: &Recommendation) -> Result<Self, StoreError> {
        Self::new("recommendation", recommendation)
    }

    /// Returns the row of a piece of feedback.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn feedback(feedback: &Feedback) -> Result<Self, StoreError> {
        Self::new("feedback", feedback)
    }

    /// Returns the row of a work session.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn work_session(work_session: &WorkSession) -> Result<Self, StoreError> {
        Self::new("work_session", work_session)
    }

    /// Returns the row of an epoch of a list that only this client is shown.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn list_epoch(epoch: &ListEpoch) -> Result<Self, StoreError> {
        Self::new("list_epoch", epoch)
    }

    /// Returns the row of an override.
    ///
    /// # Errors
    ///
    /// As [`Self::session`].
    pub fn tool_override(tool_override: &ToolOverride) -> Result<Self, StoreError> {
        Self::new("override", tool_override)
    }

    fn new(kind: &'static str, row: &impl Serialize) -> Result<Self, StoreError> {
        let row = to_json(row)?;
        Ok(Self { kind, row })
    }

    fn insert(&mut self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        self.row[name] = to_json(value)?;
        Ok(())
    }
}

fn to_json(value: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|source| StoreError::Failed {
        operation: "write a row as JSON",
        source: source.into(),
    })
}

/// The number of deleted rows, out of the rows that [`ClientData::export`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedRows {
    /// Sessions.
    pub n_sessions: u64,
    /// Tool calls.
    pub n_calls: u64,
    /// Other rows.
    pub n_others: u64,
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErasureReport {
    /// The numbers of deleted rows.
    pub deleted: DeletedRows,
    /// Whether nothing of the clients is left, not even in the spool. If false, a running proxy
    /// still holds records of them.
    pub is_complete: bool,
    /// Whether a session of the clients had not ended. Records that it writes from now on belong to
    /// no session, and no later deletion finds them.
    pub has_open_session: bool,
}

/// Exports and deletes the stored data of clients.
///
/// The data of a client are its sessions with everything that names one of them, its work sessions
/// with the recommendations and the feedback that name one of them, the epochs of lists that only
/// this client is shown, and the overrides whose scope is the client, by its keyed hash, or one of
/// its sessions.
#[async_trait]
pub trait ClientData: Send + Sync + fmt::Debug {
    /// Passes all rows of the clients to `take`, kind by kind in the order of [`ClientRow::kind`].
    ///
    /// Each kind is ordered by identifier or scope, or else by session and page or moment. An
    /// unknown client has no rows. The export ends early when `take` returns `false`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError>;

    /// Deletes all rows of the clients and their contributions to the counts.
    ///
    /// Afterwards the files of the database contain no data of the clients either, as far as it has
    /// files of its own. Other clients keep all of their data. If any epoch is deleted,
    /// [`Topic::ListEpochs`](super::Topic::ListEpochs) changes. If any session is deleted, all
    /// snapshots of learned state are deleted with it, and
    /// [`Topic::Erasures`](super::Topic::Erasures) changes: learners then learn again from the
    /// remaining calls.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; a part may be deleted then.
    async fn delete(&self, clients: &ClientSelector) -> Result<DeletedRows, StoreError>;
}
