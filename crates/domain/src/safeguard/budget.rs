//! The budget of tokens of a work session: what of it is used, and when that is said.
//!
//! A model does not see what its tools cost it. It is told in one line when half of the budget is
//! used, what it should do when little is left, and to stop before nothing is. The line is said when
//! a state is entered and then again whenever a further 5 % of the budget were used: said in every
//! result, it would itself be what uses up the budget.

use std::fmt;
use std::num::NonZeroU64;

/// The further use of the budget after which something is said again, in parts of it: 5 %.
const SAID_EVERY: u64 = 20;

/// What tokens are used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UsePart {
    /// Definitions of tools that were shown.
    Definitions,
    /// Arguments of calls.
    Arguments,
    /// Results of calls.
    Results,
}

impl UsePart {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Definitions, Self::Arguments, Self::Results];

    /// Returns the name by which the part is spoken of.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Definitions => "tool definitions",
            Self::Arguments => "arguments",
            Self::Results => "results",
        }
    }
}

/// How many tokens a work session has used, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUse {
    /// Of definitions of tools that were shown.
    pub definitions: u64,
    /// Of arguments of calls.
    pub arguments: u64,
    /// Of results of calls.
    pub results: u64,
}

impl TokenUse {
    /// Returns the tokens of a part.
    #[must_use]
    pub fn of(&self, part: UsePart) -> u64 {
        match part {
            UsePart::Definitions => self.definitions,
            UsePart::Arguments => self.arguments,
            UsePart::Results => self.results,
        }
    }

    /// Returns the tokens of all parts together.
    #[must_use]
    pub fn total(&self) -> u64 {
        (self.definitions)
            .saturating_add(self.arguments)
            .saturating_add(self.results)
    }

    /// Adds tokens to a part.
    pub fn add(&mut self, part: UsePart, tokens: u64) {
        let place = self.place(part);
        *place = place.saturating_add(tokens);
    }

    /// Puts what was counted in the place of an estimate that was added before.
    pub fn correct(&mut self, part: UsePart, estimated: u64, counted: u64) {
        let place = self.place(part);
        *place = place.saturating_sub(estimated).saturating_add(counted);
    }

    fn place(&mut self, part: UsePart) -> &mut u64 {
        match part {
            UsePart::Definitions => &mut self.definitions,
            UsePart::Arguments => &mut self.arguments,
            UsePart::Results => &mut self.results,
        }
    }
}

/// How much of a budget is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetState {
    /// Little: nothing is said.
    #[default]
    Ok,
    /// So much that the model should know of it.
    Status,
    /// So much that the model should answer, or ask the user.
    Suggest,
    /// So much that the model should call no further tool.
    Stop,
}

impl BudgetState {
    /// All states, from little to much.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Status, Self::Suggest, Self::Stop];

    /// Returns the name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Status => "status",
            Self::Suggest => "suggest",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for BudgetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The shares of a budget from which on its states hold: rising, each above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetThresholds {
    status: f64,
    suggest: f64,
    stop: f64,
}

/// Why shares are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ThresholdsError {
    /// One is not in the range.
    #[error("{name} must be a share above 0 and at most 1, not {value}")]
    NoShare {
        /// The name of its state.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// One is not above the one before.
    #[error("{upper} ({upper_value}) must be greater than {lower} ({lower_value})")]
    NotRising {
        /// The name of the state of the one before.
        lower: &'static str,
        /// The share of that.
        lower_value: f64,
        /// The name of its state.
        upper: &'static str,
        /// What it is.
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

    /// Returns the state of a budget of which so many tokens are used. Exactly at a threshold its
    /// state holds.
    #[must_use]
    pub fn state(&self, used: u64, budget: NonZeroU64) -> BudgetState {
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of tokens are far below 2^52, and beyond it a share need not be exact"
        )]
        // Divided, so that a share which is written as a decimal is met exactly.
        let share = used as f64 / budget.get() as f64;
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

/// The budget that holds for a work session: what the client says goes before what is configured,
/// but cannot raise it unless that is allowed. `None` where neither says anything.
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

/// Follows the budget of one work session, and knows what was said of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetWatch {
    state: BudgetState,
    budget: Option<NonZeroU64>,
    /// The highest state of which something was said.
    said: BudgetState,
    /// The tokens that were used when something was said last.
    said_at: u64,
}

/// What came of looking at a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLook {
    /// The state that holds now.
    pub state: BudgetState,
    /// Whether that is another one than before.
    pub is_new: bool,
    /// What is to be said: one line.
    pub line: Option<String>,
}

impl BudgetWatch {
    /// Looks at what is used of a budget, which may be another one than before, and says what is to
    /// be said of it: when a state is entered that nothing was said of, and when at least 5 % of the
    /// budget more were used since something was said.
    ///
    /// A state that is left because an estimate was too high, and entered again, is spoken of once.
    pub fn look(
        &mut self,
        used: &TokenUse,
        budget: NonZeroU64,
        thresholds: &BudgetThresholds,
    ) -> BudgetLook {
        let total = used.total();
        let state = thresholds.state(total, budget);
        let is_new = std::mem::replace(&mut self.state, state) != state;
        if self.budget.replace(budget) != Some(budget) {
            // What was said was said of another budget.
            self.said = self.said.min(state);
        }
        let step = budget.get().div_ceil(SAID_EVERY);
        let is_further = total >= self.said_at.saturating_add(step);
        let is_due = state > self.said || (state > BudgetState::Ok && is_further);
        let line = is_due.then(|| {
            self.said = self.said.max(state);
            self.said_at = total;
            line(used, budget, state)
        });
        BudgetLook {
            state,
            is_new,
            line,
        }
    }

    /// Returns the state when it was looked at last.
    #[must_use]
    pub fn state(&self) -> BudgetState {
        self.state
    }
}

/// Returns what is said of a budget: how much of it is used, by what, and what to do.
#[must_use]
pub fn line(used: &TokenUse, budget: NonZeroU64, state: BudgetState) -> String {
    let total = used.total();
    let percent = u128::from(total) * 100 / u128::from(budget.get());
    let mut parts = UsePart::ALL.map(|part| (used.of(part), part));
    // The sort is stable: equal parts stay in their order.
    parts.sort_by_key(|(tokens, _)| std::cmp::Reverse(*tokens));
    let parts: Vec<String> = (parts.iter())
        .filter(|(tokens, _)| *tokens > 0)
        .map(|(tokens, part)| format!("{} {tokens}", part.as_str()))
        .collect();
    let what_to_do = match state {
        BudgetState::Ok | BudgetState::Status => "",
        BudgetState::Suggest => {
            " Little is left: answer with what is there, or ask the user how to go on."
        }
        BudgetState::Stop => " Stop calling tools: answer with what is there.",
    };
    format!(
        "Token budget: {percent} % used, {total} of {budget} tokens ({}).{what_to_do}",
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests;
