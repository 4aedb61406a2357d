//! The token budget of a work session: its use, and the notices about it.
//!
//! A model does not see the costs of its tools. It gets a notice of one line when half of the
//! budget is used, advice when little is left, and a request to stop before nothing is left. A
//! notice is due when a state is entered, and again after each further 5 % of the budget. A notice
//! in every result would itself use up the budget.

use std::fmt;
use std::num::NonZeroU64;

use strum::{IntoStaticStr, VariantArray};

use crate::num::to_f64;

/// The further use after which a notice is repeated, as a divisor of the budget: 5 %.
const NOTICES_PER_BUDGET: u64 = 20;

/// The kind of data that uses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenUseKind {
    /// Definitions of shown tools.
    #[strum(serialize = "tool definitions")]
    Definitions,
    /// Arguments of calls.
    Arguments,
    /// Results of calls.
    Results,
}

impl TokenUseKind {
    /// All parts.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the part in notices.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The number of tokens that a work session has used, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUse {
    /// Tokens of definitions of shown tools.
    pub definitions: u64,
    /// Tokens of arguments of calls.
    pub arguments: u64,
    /// Tokens of results of calls.
    pub results: u64,
}

impl TokenUse {
    /// Returns the tokens of a part.
    #[must_use]
    pub fn of(&self, part: TokenUseKind) -> u64 {
        match part {
            TokenUseKind::Definitions => self.definitions,
            TokenUseKind::Arguments => self.arguments,
            TokenUseKind::Results => self.results,
        }
    }

    /// Returns the total number of tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        (self.definitions)
            .saturating_add(self.arguments)
            .saturating_add(self.results)
    }

    /// Adds tokens to a part.
    pub fn add(&mut self, part: TokenUseKind, tokens: u64) {
        let place = self.place(part);
        *place = place.saturating_add(tokens);
    }

    /// Replaces an earlier added estimate by the counted number.
    pub fn correct(&mut self, part: TokenUseKind, estimated: u64, counted: u64) {
        let place = self.place(part);
        *place = place.saturating_sub(estimated).saturating_add(counted);
    }

    fn place(&mut self, part: TokenUseKind) -> &mut u64 {
        match part {
            TokenUseKind::Definitions => &mut self.definitions,
            TokenUseKind::Arguments => &mut self.arguments,
            TokenUseKind::Results => &mut self.results,
        }
    }
}

/// The state of a budget, by its used share.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum BudgetState {
    /// Little is used: there is no notice.
    #[default]
    Ok,
    /// The model should know the used share.
    Status,
    /// Little is left: the model should answer, or ask the user.
    Suggest,
    /// Almost nothing is left: the model should call no further tool.
    Stop,
}

impl BudgetState {
    /// All states, in rising order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for BudgetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The shares of a budget at which its states begin: rising, each above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetThresholds {
    status: f64,
    suggest: f64,
    stop: f64,
}

/// The reason for which shares are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ThresholdsError {
    /// A share is out of range.
    #[error("{name} must be a share above 0 and at most 1, not {value}")]
    NoShare {
        /// The name of its state.
        name: &'static str,
        /// The rejected share.
        value: f64,
    },
    /// A threshold is not above the one before.
    #[error("{upper} ({upper_value}) must be greater than {lower} ({lower_value})")]
    NotRising {
        /// The name of the state of the lower threshold.
        lower: &'static str,
        /// The lower threshold.
        lower_value: f64,
        /// The name of the state of the upper threshold.
        upper: &'static str,
        /// The upper threshold.
        upper_value: f64,
    },
}

impl BudgetThresholds {
    /// Returns the thresholds with these shares of a budget.
    ///
    /// # Errors
    ///
    /// Returns [`ThresholdsError`] unless `0 < status < suggest < stop <= 1`.
    pub fn new(status: f64, suggest: f64, stop: f64) -> Result<Self, ThresholdsError> {
        let all = [("status", status), ("suggest", suggest), ("stop", stop)];
        let is_share = |value: f64| value > 0.0 && value <= 1.0;
        if let Some((name, value)) = all.into_iter().find(|(_, value)| !is_share(*value)) {
            return Err(ThresholdsError::NoShare { name, value });
        }
        let mut pairs = all.iter().zip(&all[1..]);
        match pairs.find(|((_, lower), (_, upper))| lower >= upper) {
            Some(((lower, lower_value), (upper, upper_value))) => Err(ThresholdsError::NotRising {
                lower,
                lower_value: *lower_value,
                upper,
                upper_value: *upper_value,
            }),
            None => Ok(Self {
                status,
                suggest,
                stop,
            }),
        }
    }

    /// Returns the state of a budget after the use of so many tokens. A state begins exactly at its
    /// threshold.
    #[must_use]
    pub fn state(&self, used: u64, budget: NonZeroU64) -> BudgetState {
        // The division makes a share that is written as a decimal exact.
        let share = to_f64(used) / to_f64(budget.get());
        if share >= self.stop {
            BudgetState::Stop
        } else if share >= self.suggest {
            BudgetState::Suggest
        } else if share >= self.status {
            BudgetState::Status
        } else {
            BudgetState::Ok
        }
    }
}

impl Default for BudgetThresholds {
    fn default() -> Self {
        Self {
            status: 0.5,
            suggest: 0.7,
            stop: 0.9,
        }
    }
}

/// Returns the budget of a work session. The budget of the client wins over the configured one, but
/// cannot raise it unless that is allowed. Returns `None` without both.
#[must_use]
pub fn effective_budget(
    configured: Option<NonZeroU64>,
    said: Option<NonZeroU64>,
    may_raise: bool,
) -> Option<NonZeroU64> {
    match (configured, said) {
        (Some(configured), Some(said)) if !may_raise => Some(configured.min(said)),
        (configured, said) => said.or(configured),
    }
}

/// Tracks the budget of one work session, and the notices about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetTracker {
    state: BudgetState,
    budget: Option<NonZeroU64>,
    /// The highest state with a notice.
    said: BudgetState,
    /// The used tokens at the last notice.
    said_at: u64,
}

/// The result of a check of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetCheck {
    /// The present state.
    pub state: BudgetState,
    /// Whether the state has changed.
    pub is_new: bool,
    /// The notice, one line, if it is due.
    pub line: Option<String>,
}

impl BudgetTracker {
    /// Checks the use of a budget, which may have changed since the last check. A notice is due
    /// when a state without a notice is entered, and when at least 5 % of the budget were used
    /// since the last notice.
    ///
    /// A state that is left because an estimate was too high, and entered again, gets one notice
    /// only.
    pub fn check(
        &mut self,
        used: &TokenUse,
        budget: NonZeroU64,
        thresholds: &BudgetThresholds,
    ) -> BudgetCheck {
        let total = used.total();
        let state = thresholds.state(total, budget);
        let is_new = std::mem::replace(&mut self.state, state) != state;
        if self.budget.replace(budget) != Some(budget) {
            // The earlier notices were about another budget.
            self.said = self.said.min(state);
        }
        let step = budget.get().div_ceil(NOTICES_PER_BUDGET);
        let is_further = total >= self.said_at.saturating_add(step);
        let is_due = state > self.said || (state > BudgetState::Ok && is_further);
        let line = is_due.then(|| {
            self.said = self.said.max(state);
            self.said_at = total;
            notice(used, budget, state)
        });
        BudgetCheck {
            state,
            is_new,
            line,
        }
    }

    /// Returns the state at the last check.
    #[must_use]
    pub fn state(&self) -> BudgetState {
        self.state
    }
}

/// Returns the notice about a budget: the used share, the use by part, and advice.
#[must_use]
pub fn notice(used: &TokenUse, budget: NonZeroU64, state: BudgetState) -> String {
    let total = used.total();
    let percent = u128::from(total) * 100 / u128::from(budget.get());
    let mut parts: Vec<(u64, TokenUseKind)> = (TokenUseKind::ALL.iter())
        .map(|part| (used.of(*part), *part))
        .collect();
    // The sort is stable: equal parts stay in their order.
    parts.sort_by_key(|(tokens, _)| std::cmp::Reverse(*tokens));
    let parts: Vec<String> = (parts.iter())
        .filter(|(tokens, _)| *tokens > 0)
        .map(|(tokens, part)| format!("{} {tokens}", part.as_str()))
        .collect();
    let what_to_do = match state {
        BudgetState::Ok | BudgetState::Status => "",
        BudgetState::Suggest => {
            " Little is left: answer with what you have, or ask the user how to continue."
        }
        BudgetState::Stop => " Stop calling tools: answer with what you have.",
    };
    format!(
        "Token budget: {percent} % used, {total} of {budget} tokens ({}).{what_to_do}",
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests;
