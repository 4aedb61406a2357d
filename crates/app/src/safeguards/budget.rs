//! Token budgets of work sessions: the used tokens, and the notices about them.
//!
//! The traffic of the client counts in both directions: definitions of listed tools, arguments and
//! results, including the own tools of the proxy. On the path of a call sizes are estimated from
//! bytes, since counting 1 kB takes longer than all safeguards may take together. Soon after,
//! [`Recount`] replaces the estimate by the count.

mod config;
mod ledger;
mod recount;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use riglm_domain::mcp::edit::member;
use riglm_domain::safeguards::budget::{
    BudgetState, BudgetThresholds, TokenUse, TokenUseKind, effective_budget, notice,
};
use riglm_domain::usage::invocation::{SessionKey, TokenSize};
use riglm_ports::observer::{BudgetEvent, Event, Observer};
use riglm_ports::token_counter::TokenCounter;
use serde::Deserialize;

pub use self::config::{BudgetConfig, ProfileBudgetConfig};
use self::ledger::Ledger;
use self::recount::Recount;
use super::{GuardedCall, Notice, Refusal};

/// The kind of these notices.
const KIND: &str = "token_budget";

/// The reaction to a call when only the last part of a budget is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// A notice tells the model to stop; the model decides.
    #[default]
    Warn,
    /// Calls are refused.
    Refuse,
}

/// The budget of the work sessions under one profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BudgetPlan {
    /// Whether budgets are enabled.
    pub(super) is_enabled: bool,
    /// The tokens of a work session; `None` if only a client may set a budget.
    pub(super) tokens: Option<NonZeroU64>,
    /// The shares of the budget at which notices begin.
    pub(super) thresholds: BudgetThresholds,
    /// The reaction to calls after the budget is used up.
    pub(super) on_exhausted: OnExhausted,
    /// Whether a client may declare a higher budget than the configured one.
    pub(super) client_may_raise: bool,
}

impl Default for BudgetPlan {
    fn default() -> Self {
        BudgetConfig::default().plan()
    }
}

/// The budgets of all work sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BudgetPlans {
    /// The budget of work sessions without a profile, and under profiles without their own.
    pub(super) plan: BudgetPlan,
    /// The budgets of profiles with their own, by name.
    pub(super) profiles: HashMap<String, BudgetPlan>,
}

impl BudgetPlans {
    /// Returns whether a budget is enabled anywhere.
    pub(super) fn is_any(&self) -> bool {
        let mut profiles = self.profiles.values();
        self.plan.is_enabled || profiles.any(|plan| plan.is_enabled)
    }

    fn plan(&self, profile: Option<&str>) -> &BudgetPlan {
        let own = profile.and_then(|profile| self.profiles.get(profile));
        own.unwrap_or(&self.plan)
    }
}

/// The budgets of recent work sessions.
#[derive(Debug)]
pub(crate) struct Budgets {
    plans: BudgetPlans,
    ledger: Arc<Ledger>,
    recount: Arc<Recount>,
    observer: Arc<dyn Observer>,
}

impl Budgets {
    pub(super) fn new(
        plans: BudgetPlans,
        counter: Arc<dyn TokenCounter>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let ledger = Arc::new(Ledger::default());
        Self {
            plans,
            recount: Arc::new(Recount::new(Arc::clone(&ledger), counter)),
            ledger,
            observer,
        }
    }

    /// Returns the same plans with what sessions have used so far under `before`.
    pub(super) fn with_use_of(&self, before: &Self) -> Self {
        Self {
            plans: self.plans.clone(),
            ledger: Arc::clone(&before.ledger),
            recount: Arc::clone(&before.recount),
            observer: Arc::clone(&self.observer),
        }
    }

    /// Records the arguments of a call and the budget in its request.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the budget was already used up and the operator configured refusing.
    pub(super) fn admit(&self, call: &GuardedCall<'_>) -> Result<(), Refusal> {
        let plan = self.plans.plan(call.profile);
        if !plan.is_enabled {
            return Ok(());
        }
        let sent = call.arguments.unwrap_or_default();
        let tokens = estimate_tokens(sent);
        let (used, budget, is_refused) = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.session_key, call.at);
            account.said = call.token_budget.and_then(NonZeroU64::new).or(account.said);
            let (used, budget) = (account.used, plan.budget(account.said));
            let state = budget.map(|budget| plan.thresholds.state(used.total(), budget));
            let is_exhausted = state == Some(BudgetState::Stop);
            let is_refused = is_exhausted && plan.on_exhausted == OnExhausted::Refuse;
            // A refused call is not sent, so it uses no tokens.
            if !is_refused {
                account.used.add(TokenUseKind::Arguments, tokens);
            }
            (used, budget, is_refused)
        };
        let Some(budget) = budget else {
            return Ok(());
        };
        if is_refused {
            (self.observer).observe_from(&Event::Budget(BudgetEvent::Refused), &call.origin());
            return Err(refusal(&used, budget));
        }
        (self.recount).enqueue(call.session_key, TokenUseKind::Arguments, sent, tokens);
        Ok(())
    }

    /// Records the result of a call, which is JSON text; returns the notice about the budget.
    pub(super) fn record_result(&self, call: &GuardedCall<'_>, result: &str) -> Option<Notice> {
        let plan = self.plans.plan(call.profile);
        if !plan.is_enabled {
            return None;
        }
        // The data of an app do not reach the model.
        let result = call.read_by_model(result);
        let tokens = estimate_tokens(result);
        let look = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.session_key, call.ended_at());
            account.used.add(TokenUseKind::Results, tokens);
            let budget = plan.budget(account.said)?;
            account.watch.check(&account.used, budget, &plan.thresholds)
        };
        (self.recount).enqueue(call.session_key, TokenUseKind::Results, result, tokens);
        if look.is_new {
            let entered = BudgetEvent::Entered { state: look.state };
            (self.observer).observe_from(&Event::Budget(entered), &call.origin());
        }
        look.line.map(|text| Notice { kind: KIND, text })
    }

    /// Records the result of a call that cannot get a notice.
    pub(super) fn count_result(&self, call: &GuardedCall<'_>, result: &str) {
        let plan = self.plans.plan(call.profile);
        if !plan.is_enabled {
            return;
        }
        let tokens = estimate_tokens(result);
        let budget = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(call.session_key, call.ended_at());
            account.used.add(TokenUseKind::Results, tokens);
            plan.budget(account.said)
        };
        if budget.is_some() {
            (self.recount).enqueue(call.session_key, TokenUseKind::Results, result, tokens);
        }
    }

    /// Records that a work session got a list of tools, and the budget in its request. A list that
    /// was sent before is not counted again, because it is in the prompt already.
    pub(super) fn record_list(
        &self,
        session_key: SessionKey,
        profile: Option<&str>,
        token_budget: Option<u64>,
        list: ListText<'_>,
        at: Instant,
    ) {
        let plan = self.plans.plan(profile);
        let tools = list.tools;
        if !plan.is_enabled || tools.is_empty() {
            return;
        }
        let tokens = estimate_tokens(tools);
        let budget = {
            let mut accounts = self.ledger.accounts();
            let account = accounts.of(session_key, at);
            account.said = token_budget.and_then(NonZeroU64::new).or(account.said);
            if !account.is_new_page(list.digest) {
                return;
            }
            account.used.add(TokenUseKind::Definitions, tokens);
            plan.budget(account.said)
        };
        if budget.is_some() {
            (self.recount).enqueue(session_key, TokenUseKind::Definitions, tools, tokens);
        }
    }
}

/// The array of tools in a list, as JSON text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListText<'a> {
    pub(crate) tools: &'a str,
    /// A hash of the text, which identifies it in the lists of a session.
    pub(crate) digest: u64,
}

impl<'a> ListText<'a> {
    pub(crate) fn new(tools: &'a str) -> Self {
        let mut hasher = DefaultHasher::new();
        tools.hash(&mut hasher);
        Self {
            tools,
            digest: hasher.finish(),
        }
    }

    /// Returns the array in a result, which is JSON text; empty if there is none.
    pub(crate) fn of_result(result: &'a str) -> Self {
        Self::new(member(result, "tools").unwrap_or_default())
    }
}

impl BudgetPlan {
    fn budget(&self, said: Option<NonZeroU64>) -> Option<NonZeroU64> {
        effective_budget(self.tokens, said, self.client_may_raise)
    }
}

/// Returns the estimated number of tokens of a text.
fn estimate_tokens(text: &str) -> u64 {
    TokenSize::estimate(text.len() as u64).tokens()
}

fn refusal(used: &TokenUse, budget: NonZeroU64) -> Refusal {
    let line = notice(used, budget, BudgetState::Stop);
    Refusal {
        text: format!("This call was not made. {line}"),
    }
}
