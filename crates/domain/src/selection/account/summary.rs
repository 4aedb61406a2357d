//! Summaries of list accounts over many sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ListAccount;
use crate::num::ratio;

/// List accounts of all sessions together, and by policy and client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListSummary {
    /// All sessions together.
    pub all: PolicySummary,
    /// Sessions by the policy of their newest list.
    pub by_policy: BTreeMap<String, PolicySummary>,
    /// Sessions by the name that their client reports, if known.
    pub by_client: BTreeMap<String, PolicySummary>,
}

impl ListSummary {
    /// Adds the account of a session. `policy` is the policy of its newest list.
    pub fn add(&mut self, policy: &str, client: Option<&str>, account: &ListAccount) {
        self.all.add(account);
        (self.by_policy.entry(policy.to_owned()).or_default()).add(account);
        if let Some(client) = client {
            (self.by_client.entry(client.to_owned()).or_default()).add(account);
        }
    }
}

/// Sums over sessions, and means and shares of them, which are 0 without sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicySummary {
    /// Number of sessions.
    pub sessions: u64,
    /// Sums of the accounts.
    pub total: ListAccount,
    /// Number of sessions in which the shorter lists cost more than they saved.
    pub sessions_at_a_loss: u64,
    /// Number of sessions whose newest list hides tools.
    pub sessions_hiding: u64,
    /// Number of these sessions whose client looked for a hidden tool: it searched, called one, or
    /// used the tool that calls others.
    pub sessions_looking: u64,
}

impl PolicySummary {
    /// Returns the mean number of tools in the newest list of a session.
    #[must_use]
    pub fn mean_list_size(&self) -> f64 {
        ratio(self.total.shown_tools, self.sessions)
    }

    /// Returns the share of the available tools that the newest lists show.
    #[must_use]
    pub fn share_shown(&self) -> f64 {
        ratio(self.total.shown_tools, self.total.available_tools)
    }

    /// Returns the mean number of tools in a session that were not in the list at their first call.
    #[must_use]
    pub fn misses_per_session(&self) -> f64 {
        ratio(self.total.tool_misses, self.sessions)
    }

    /// Returns the mean number of searches in a session.
    #[must_use]
    pub fn searches_per_session(&self) -> f64 {
        ratio(self.total.searches, self.sessions)
    }

    /// Returns the mean number of list changes in a session.
    #[must_use]
    pub fn list_changes_per_session(&self) -> f64 {
        ratio(self.total.list_changes, self.sessions)
    }

    /// Returns the share of sessions in which the shorter lists cost more than they saved.
    #[must_use]
    pub fn share_at_a_loss(&self) -> f64 {
        ratio(self.sessions_at_a_loss, self.sessions)
    }

    /// Returns the share of sessions with hidden tools whose client looked for one; `None` without
    /// such sessions.
    #[must_use]
    pub fn share_looking(&self) -> Option<f64> {
        (self.sessions_hiding > 0).then(|| ratio(self.sessions_looking, self.sessions_hiding))
    }

    fn add(&mut self, account: &ListAccount) {
        let total = &mut self.total;
        for (sum, n) in [
            (&mut total.tools_loaded, account.tools_loaded),
            (&mut total.tools_used, account.tools_used),
            (&mut total.tool_misses, account.tool_misses),
            (&mut total.tool_escalations, account.tool_escalations),
            (&mut total.searches, account.searches),
            (&mut total.list_changes, account.list_changes),
            (&mut total.shown_tools, account.shown_tools),
            (&mut total.available_tools, account.available_tools),
            (&mut total.shown_tokens, account.shown_tokens),
            (&mut total.available_tokens, account.available_tokens),
        ] {
            *sum = sum.saturating_add(n);
        }
        total.tokens_saved = total.tokens_saved.saturating_add(account.tokens_saved);
        let cost = total.cost_avoided + account.cost_avoided;
        total.cost_avoided = cost.clamp(f64::MIN, f64::MAX);
        self.sessions += 1;
        self.sessions_at_a_loss += u64::from(account.cost_avoided < 0.0);
        let hides_some = account.shown_tools < account.available_tools;
        let looked = account.searches > 0 || account.tool_misses > 0;
        self.sessions_hiding += u64::from(hides_some);
        self.sessions_looking += u64::from(hides_some && looked);
    }
}
