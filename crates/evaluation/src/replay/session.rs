//! Input of a replay: a catalog of tools, and sessions of calls.

use std::fmt;

use jiff::Timestamp;
use riglm_domain::privacy::principal::Principal;

/// The catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCatalog {
    /// The tools. Calls refer to them by position.
    pub tools: Vec<ReplayTool>,
}

/// A tool of a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayTool {
    /// Name.
    pub name: String,
    /// Description. May be empty.
    pub description: String,
    /// Name of the server. May be empty.
    pub server: String,
}

/// The calls of a client in one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySession {
    /// Identifier of the session.
    pub id: String,
    /// The principal, or `None` if unknown. Sessions without one count as sessions of the same
    /// principal.
    pub principal: Option<Principal>,
    /// Name of the client.
    pub client: Option<String>,
    /// The task. Several sessions can have the same one.
    pub task: Option<String>,
    /// Start time.
    pub started_at: Option<Timestamp>,
    /// The query at the start.
    pub query: Option<String>,
    /// The user's text in each turn. Empty if turns are unknown.
    pub turns: Vec<String>,
    /// The calls in order of time.
    pub calls: Vec<ReplayCall>,
}

/// A recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCall {
    /// Position of the tool in the catalog.
    pub tool: usize,
    /// Whether the call succeeded.
    pub ok: bool,
    /// Index of the turn in [`ReplaySession::turns`], or `None` if unknown, which counts as the
    /// first one.
    pub turn: Option<usize>,
    /// Time of the call.
    pub at: Option<Timestamp>,
}

/// Sessions in the order of their start times. The sequence can be read several times.
pub trait SessionSource: Send + fmt::Debug {
    /// Error of reading a session.
    type Error: Send;

    /// Returns the next session, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// Returns an error if the session cannot be read.
    fn next(&mut self) -> impl Future<Output = Result<Option<ReplaySession>, Self::Error>> + Send;

    /// Starts again with the first session.
    ///
    /// # Errors
    ///
    /// Returns an error if that is not possible.
    fn restart(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}
