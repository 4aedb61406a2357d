//! The budgets of tokens of work sessions: what is used of them, and what models are told of that.
//!
//! What the client is given counts, and what it sends: definitions of tools that it was shown,
//! arguments, results, those of the proxy's own tools as well. On the way of a call sizes are
//! estimated from bytes, since counting 1 kB takes longer than all safeguards together may; a moment later
//! [`Recount`] puts what was counted in the place of the estimate.

mod ledger;
mod recount;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use riglm_domain::edit::member;
use riglm_domain::invocation::{CallSession, TokenSize};
use riglm_domain::safeguard::budget::{
    BudgetState, BudgetThresholds, TokenUse, UsePart, effective_budget, line,
};
use riglm_ports::observer::{BudgetEvent, Event, EventOrigin, Observer};
use riglm_ports::token_counter::TokenCounter;
use serde::Deserialize;

use self::ledger::Ledger;
use self::recount::Recount;
use super::{GuardedCall, Notice, Refusal};

/// What notices of budgets are about.
const KIND: &str = "token_budget";

/// What becomes of calls when a budget is used up but for its last part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The model is told to stop, and decides.
    #[default]
    Warn,
    /// They are not passed on.
    Refuse,
}

/// The budget of the work sessions under one profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetPlan {
    /// Whether there is one at all.
    pub is_enabled: bool,
    /// The tokens of a work session; `None` where there is a budget only when the client says one.
    pub tokens: Option<NonZeroU64>,
    /// From which share on what is said.
    pub thresholds: BudgetThresholds,
    /// What becomes of calls when it is used up.
    pub on_exhausted: OnExhausted,
    /// Whether a client may say a budget that is higher than the one that is configured.
    pub client_may_raise: bool,
}

impl Default for BudgetPlan {
    fn default() -> Self {
        Self {
            is_enabled: true,
            tokens: None,
            thresholds: BudgetThresholds::default(),
            on_exhausted: OnExhausted::default(),
            client_may_raise: false,
        }
    }
}

/// What the operator wants of budgets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetOptions {
    /// The budget of work sessions under no profile, and under those that say nothing else.
    pub plan: BudgetPlan,
    /// The budgets under profiles that say something else, by their names.
    pub profiles: HashMap<String, BudgetPlan>,
}

impl BudgetOptions {
    /// Returns whether there may be a budget under some profile.
    #[must_use]
    pub fn is_any(&self) -> bool {
        let mut profiles = self.profiles.values();
        self.plan.is_enabled || profiles.any(|plan| plan.is_enabled)
    }

    fn plan(&self, profile: Option<&str>) -> &BudgetPlan {
        let own = profile.and_then(|profile| self.profiles.get(profile));
        own.unwrap_or(&self.plan)
    }
}

/// The budgets of the work sessions that were active lately.
#[derive(Debug)]
pub(crate) struct Budgets {
    options: BudgetOptions,
    ledger: Arc<Ledger>,
    recount: Recount,
    observer: Arc<dyn Observer>,
}

impl Budgets {
    pub(super) fn new(
        options: BudgetOptions,
        counter: Arc<dyn TokenCounter>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let ledger = Arc::new(Ledger::default());
        Self {
            options,
            recount: Recount::new(Arc::clone(&ledger), counter),
            ledger,
            observer,
        }
    }

    /// Notes what a call sends, and what its request says of the budget.
    ///
    /// # Errors
    ///
    /// Returns why it is not passed on: the budget was used up before it, and that is what the operator
    /// wants then.
    pub(super) fn admit(&self, call: &GuardedCall<'_>) -> Result<(), Refusal> {
        let plan = self.options.plan(call.profile);
        if !plan.is_enabled {
            return Ok(());
        }
        let sent = call.arguments.unwrap_or_default();
        let tokens = estimated(sent);
        let (used, budget, is_refused) = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.together, call.at);
            account.said = call.token_budget.and_then(NonZeroU64::new).or(account.said);
            let (used, budget) = (account.used, plan.budget(account.said));
            let state = budget.map(|budget| plan.thresholds.state(used.total(), budget));
            let is_exhausted = state == Some(BudgetState::Stop);
            let is_refused = is_exhausted && plan.on_exhausted == OnExhausted::Refuse;
            if !is_refused {
                account.used.add(UsePart::Arguments, tokens);
            }
            (used, budget, is_refused)
        };
        let Some(budget) = budget else {
            return Ok(());
        };
        if is_refused {
            self.observer.observe_from(
                &Event::Budget(BudgetEvent::Refused),
                &EventOrigin::of_session(call.principal, call.together),
            );
            return Err(refusal(&used, budget));
        }
        (self.recount).offer(call.together, UsePart::Arguments, sent, tokens);
        Ok(())
    }

    /// Notes the result of a call, which is JSON text, and returns what is to be said of the budget.
    pub(super) fn ended(&self, call: &GuardedCall<'_>, result: &str) -> Option<Notice> {
        let plan = self.options.plan(call.profile);
        if !plan.is_enabled {
            return None;
        }
        let tokens = estimated(result);
        let look = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.together, call.ended_at());
            account.used.add(UsePart::Results, tokens);
            let budget = plan.budget(account.said)?;
            account.watch.look(&account.used, budget, &plan.thresholds)
        };
        (self.recount).offer(call.together, UsePart::Results, result, tokens);
        if look.is_new {
            let state = look.state;
            self.observer.observe_from(
                &Event::Budget(BudgetEvent::Entered { state }),
                &EventOrigin::of_session(call.principal, call.together),
            );
        }
        look.line.map(|text| Notice { kind: KIND, text })
    }

    /// Notes the result of a call in which nothing can be said.
    pub(super) fn counted(&self, call: &GuardedCall<'_>, result: &str) {
        let plan = self.options.plan(call.profile);
        if !plan.is_enabled {
            return;
        }
        let tokens = estimated(result);
        let budget = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.together, call.ended_at());
            account.used.add(UsePart::Results, tokens);
            plan.budget(account.said)
        };
        if budget.is_some() {
            (self.recount).offer(call.together, UsePart::Results, result, tokens);
        }
    }

    /// Notes that a work session was shown a list of tools, a result as JSON text, and what the request
    /// for it said of the budget. A list that it was shown before is in its prompt already.
    pub(super) fn listed(
        &self,
        together: CallSession,
        (profile, token_budget): (Option<&str>, Option<u64>),
        result: &str,
        at: Instant,
    ) {
        let plan = self.options.plan(profile);
        let tools = member(result, "tools").unwrap_or_default();
        if !plan.is_enabled || tools.is_empty() {
            return;
        }
        let tokens = estimated(tools);
        let budget = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(together, at);
            account.said = token_budget.and_then(NonZeroU64::new).or(account.said);
            if !account.is_news(tools) {
                return;
            }
            account.used.add(UsePart::Definitions, tokens);
            plan.budget(account.said)
        };
        if budget.is_some() {
            (self.recount).offer(together, UsePart::Definitions, tools, tokens);
        }
    }
}

impl BudgetPlan {
    fn budget(&self, said: Option<NonZeroU64>) -> Option<NonZeroU64> {
        effective_budget(self.tokens, said, self.client_may_raise)
    }
}

/// Returns about how many tokens a text has.
fn estimated(text: &str) -> u64 {
    TokenSize::estimated(text.len() as u64).tokens()
}

fn refusal(used: &TokenUse, budget: NonZeroU64) -> Refusal {
    let line = line(used, budget, BudgetState::Stop);
    Refusal {
        text: format!("This call was not made. {line}"),
    }
}
