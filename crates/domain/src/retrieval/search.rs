//! Searches for tools, with their results.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::catalog::tool::ToolRef;
use crate::id::{SearchId, SessionId};
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;

/// The quality that a search estimates for its own answer.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SearchQuality {
    /// The answer fits.
    High,
    /// The answer may fit.
    Medium,
    /// Nothing fits well.
    Low,
}

impl SearchQuality {
    /// All grades, the best first.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the grade is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A tool with its score, at its place in an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredTool {
    /// The tool.
    pub tool: ToolRef,
    /// Its score; a finite number, larger is better.
    pub score: f64,
}

/// One search and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// Identifies the search.
    pub id: SearchId,
    /// The session that searched.
    pub session: SessionId,
    /// The principal of the session.
    pub principal: Principal,
    /// The time of receipt.
    pub searched_at: Timestamp,
    /// Time to the answer, in microseconds.
    pub duration_us: u64,
    /// Keyed hash of the query.
    pub query_hash: KeyedHash,
    /// The query without secrets, if storing it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The estimated quality of the answer.
    pub quality: SearchQuality,
    /// The results, best first.
    pub results: Vec<ScoredTool>,
}
