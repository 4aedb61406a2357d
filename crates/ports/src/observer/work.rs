//! What work sessions do with their budgets of tokens and their searches.

use riglm_domain::safeguard::budget::BudgetState;
use riglm_domain::safeguard::circles::CircleAdvice;

/// Something that happened to the token budget of a work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetEvent {
    /// It came into another state.
    Entered {
        /// The state.
        state: BudgetState,
    },
    /// A call was not passed on since it is used up.
    Refused,
}

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SearchedIn {
    /// The tools that a session could call.
    Tools,
    /// Whatever an upstream tool searches.
    Upstream,
}

impl SearchedIn {
    /// All of it.
    pub const ALL: [Self; 2] = [Self::Tools, Self::Upstream];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Upstream => "upstream",
        }
    }
}

/// Something that a work session did with its searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CirclesEvent {
    /// It searched.
    Searched(SearchedIn),
    /// It called a tool after one or more searches.
    Followed(SearchedIn),
    /// It was told that it searches in circles.
    Warned {
        /// What it should do.
        advice: CircleAdvice,
        /// The first sign, of [`CircleSign::NAMES`](riglm_domain::safeguard::circles::CircleSign::NAMES).
        sign: &'static str,
    },
    /// It is known what it did after it was told so.
    Answered {
        /// It called a tool, or nothing more, and did not search once more.
        has_stopped: bool,
    },
    /// It is over.
    SessionOver {
        /// How often it searched for tools.
        n_searches: u64,
    },
}
