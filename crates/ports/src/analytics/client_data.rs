//! All that is stored of one client, to hand out and to remove.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::context::Context;
use riglm_domain::exchange::Exchange;
use riglm_domain::feedback::Feedback;
use riglm_domain::id::SessionId;
use riglm_domain::invocation::InvocationSummary;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::ListShown;
use riglm_domain::recommendation::Recommendation;
use riglm_domain::search::Search;
use riglm_domain::session::Session;
use riglm_domain::tool_override::ToolOverride;
use riglm_domain::work_session::WorkSession;
use serde::Serialize;
use serde_json::{Value, json};

use super::StoreError;

/// The clients that are meant: those whose keyed hash, in hexadecimal, is this text, or that
/// called themselves by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSelector(pub String);

/// One row as it is handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRow {
    /// The kind of row: `session`, `call`, `exchange`, `tools_listed`, `list_shown`, `search`,
    /// `context`, `recommendation`, `feedback`, `work_session`, `list_epoch`, `override`.
    pub kind: &'static str,
    /// A JSON object of its columns by name.
    pub row: Value,
}

impl ClientRow {
    /// The kinds of rows, in the order in which they are handed out.
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
    /// Like the others, returns [`StoreError::Failed`] when the row cannot be written as JSON.
    pub fn session(session: &Session, ended_at: Option<Timestamp>) -> Result<Self, StoreError> {
        let mut row = Self::new("session", session)?;
        row.insert("ended_at", &ended_at)?;
        Ok(row)
    }

    /// Returns the row of a call: the members of the invocation, and `end`, `request_tokens` and
    /// `response_tokens`, which are `null` where there is none.
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

    /// Returns the row of a page that was listed to a session: `session`, `listing` and
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
        let mut row = Self {
            kind: "tools_listed",
            row: json!({}),
        };
        row.insert("session", &session)?;
        row.insert("listing", listing)?;
        row.insert("listed_at", &listed_at)?;
        Ok(row)
    }

    /// Returns the row of a list that was shown.
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

    /// Returns the row of an epoch of a list that the client alone is shown.
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

    fn insert<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), StoreError> {
        self.row[name] = to_json(value)?;
        Ok(())
    }
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|source| StoreError::Failed {
        operation: "write a row as JSON",
        source: source.into(),
    })
}

/// How many rows were removed, of those that [`ClientData::export`] hands out.
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
///
/// To a client belong its sessions with everything that names one of them, its work sessions with the
/// recommendations and the feedback that name one of them, the epochs of lists that it alone is shown,
/// and the overrides whose scope is the client, by its keyed hash, or one of its sessions.
#[async_trait]
pub trait ClientData: Send + Sync + fmt::Debug {
    /// Gives all rows of the clients to `take`, kind by kind in the order of [`ClientRow::kind`],
    /// each kind by identifier or scope, or else by session and page or moment; nothing for a
    /// client that is not known. Ends early when `take` returns `false`.
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
    /// Other clients keep all of theirs. Where any epoch is removed,
    /// [`Topic::ListEpochs`](super::Topic::ListEpochs) changes. Where any session is removed, all snapshots of what was
    /// learned go with it, and [`Topic::Erasures`](super::Topic::Erasures) changes: who learned from
    /// calls learns anew from those that are left.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; a part may be removed then.
    async fn delete(&self, clients: &ClientSelector) -> Result<Deleted, StoreError>;
}
