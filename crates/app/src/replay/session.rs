//! What is replayed: sessions of calls, and the catalog that their tools are from.

use std::fmt;

use jiff::Timestamp;
use riglm_domain::principal::Principal;

/// The tools that could be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCatalog {
    /// The tools; calls name them by position.
    pub tools: Vec<ReplayTool>,
}

/// A tool of a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayTool {
    /// Its name.
    pub name: String,
    /// What it says of itself; may be empty.
    pub description: String,
    /// The server that has it; may be empty.
    pub server: String,
}

/// What a client did in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySession {
    /// Identifies the session.
    pub id: String,
    /// Whose it is; `None` where there is no telling, and all are one's.
    pub principal: Option<Principal>,
    /// The client that it is of.
    pub client: Option<String>,
    /// The task that it worked on: several sessions may have tried the same.
    pub task: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// What was asked for at its beginning.
    pub query: Option<String>,
    /// What the user said, one text a turn; empty where turns are not known.
    pub turns: Vec<String>,
    /// Its calls in the order in which they were made.
    pub calls: Vec<ReplayCall>,
}

/// A call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCall {
    /// The position of its tool in the catalog.
    pub tool: usize,
    /// Whether it succeeded.
    pub ok: bool,
    /// The position of the turn that it belongs to in [`ReplaySession::turns`]; the first one
    /// where that is not known.
    pub turn: Option<usize>,
    /// When it was made.
    pub at: Option<Timestamp>,
}

/// Sessions, one after the other by their beginnings, as often as they are asked for.
pub trait SessionSource: Send + fmt::Debug {
    /// Why a session cannot be read.
    type Error: Send;

    /// Returns the next session; `None` after the last one.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be read.
    fn next(&mut self) -> impl Future<Output = Result<Option<ReplaySession>, Self::Error>> + Send;

    /// Begins again with the first session.
    ///
    /// # Errors
    ///
    /// Returns why that is not possible.
    fn restart(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}
