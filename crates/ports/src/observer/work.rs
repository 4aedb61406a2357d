//! Events of work sessions about token budgets and diminishing returns.

use riglm_domain::safeguards::budget::BudgetState;
use riglm_domain::safeguards::diminishing_returns::DiminishingAdvice;
use strum::{IntoStaticStr, VariantArray};

/// An event of the token budget of a work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum BudgetEvent {
    /// The budget is in another state now.
    #[strum(serialize = "token_budget_entered")]
    Entered {
        /// The new state.
        state: BudgetState,
    },
    /// A call was refused because the budget is used up.
    #[strum(serialize = "token_budget_refused")]
    Refused,
}

/// The place that a search covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SearchScope {
    /// The tools that a session can call.
    Tools,
    /// The data of an upstream, through a tool that searches it.
    Upstream,
}

impl SearchScope {
    /// All places.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the place.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An event of the detection of diminishing returns in a work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum DiminishingReturnsEvent {
    /// The work session searched.
    #[strum(serialize = "search_noted")]
    Searched(SearchScope),
    /// The work session called a tool after one or more searches.
    #[strum(serialize = "search_followed")]
    Followed(SearchScope),
    /// The work session got a warning that its searches bring nothing new.
    #[strum(serialize = "circles_warned")]
    Warned {
        /// The advice in the warning.
        advice: DiminishingAdvice,
        /// The first sign, one of
        /// [`DiminishingSign::NAMES`](riglm_domain::safeguards::diminishing_returns::DiminishingSign::NAMES).
        sign: &'static str,
    },
    /// The reaction to a warning is known.
    #[strum(serialize = "circles_answered")]
    Answered {
        /// Whether the work session stopped searching: it called a tool, or did nothing more.
        has_stopped: bool,
    },
    /// The work session is over.
    #[strum(serialize = "searches_over")]
    SessionOver {
        /// The number of searches for tools.
        n_searches: u64,
    },
}
