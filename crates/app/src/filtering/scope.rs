//! What is remembered of a list, for those who share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::ToolSet;
use riglm_domain::listing::SteeredList;
use riglm_domain::tool::ToolRef;

use super::rendering::ShownList;

/// The most scopes that are remembered; those that were not used for longest are forgotten, and
/// read again from the store when they come back.
const MAX_SCOPES: usize = 10_000;
/// The most tools that are remembered as used.
pub(super) const MAX_USED: usize = 256;

/// Who shares a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScopeKey {
    text: String,
    is_shared: bool,
}

impl ScopeKey {
    /// Returns the key of a list that several sessions share.
    pub(super) fn shared(text: String) -> Self {
        Self {
            text,
            is_shared: true,
        }
    }

    /// Returns the key of the list of one work session.
    pub(super) fn of_work(text: String) -> Self {
        Self {
            text,
            is_shared: false,
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether several sessions share the list.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }
}

/// One list, and those who share it.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) key: ScopeKey,
    /// Held while it is decided what the list is: one at a time.
    pub(super) deciding: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The epoch that holds, as far as it is known, without what it knew.
    pub(super) epoch: Option<Arc<ListEpoch>>,
    /// The tools that it knew; many scopes share them.
    pub(super) known: Option<Arc<ToolSet>>,
    /// The number of the options by which the epoch that holds was chosen, or taken for one of them.
    pub(super) chosen_by: Option<u64>,
    /// The context for which the epoch that holds was chosen, or which it was found to fit.
    pub(super) chosen_for: Option<Arc<str>>,
    /// The store was asked which epoch holds.
    pub(super) is_read: bool,
    /// The store was asked what was called before.
    pub(super) is_recalled: bool,
    /// When an epoch began last because there were other tools.
    pub(super) catalog_changed_at: Option<Timestamp>,
    /// When tools that are new are looked at, which came too soon after others.
    pub(super) waits_until: Option<Timestamp>,
    /// The tools that were called, with the moment, the last one at the end.
    pub(super) used: Vec<(ToolRef, Timestamp)>,
    /// How often tools were called.
    pub(super) n_calls: u64,
    /// What the last search found and the list left out, until the next call.
    pub(super) sought: Vec<ToolRef>,
    /// Tools to be added at the end of the list when it is asked for next.
    pub(super) added: Vec<ToolRef>,
    /// The list of the policy that steers it, and the offer whose positions it has.
    pub(super) steered: Option<([u8; 32], SteeredList)>,
    /// Counts the lists of that policy.
    pub(super) n_steered: u64,
    /// The probability that the prediction gave to the tools which it chose last; `None` where
    /// something else chose them, or another process.
    pub(super) mass: Option<f64>,
    /// What was shown last.
    pub(super) shown: Option<Arc<ShownList>>,
}

impl State {
    /// Notes the epoch that holds. `offered` is what is offered now: mostly what it knew.
    pub(super) fn hold(&mut self, mut epoch: ListEpoch, offered: Arc<ToolSet>) -> Arc<ListEpoch> {
        let known = std::mem::replace(&mut epoch.known, ToolSet::new(Vec::new()));
        self.known = Some(if known.id() == offered.id() {
            offered
        } else {
            Arc::new(known)
        });
        let epoch = Arc::new(epoch);
        self.epoch = Some(Arc::clone(&epoch));
        epoch
    }

    /// Returns whether the epoch that holds is for this context, as far as there is one.
    pub(super) fn is_for(&self, context: Option<&Arc<str>>) -> bool {
        context.is_none() || self.chosen_for.as_ref() == context
    }

    /// Notes which tools were called before, the last one at the end. What was called since is known.
    pub(super) fn recall(&mut self, before: impl Iterator<Item = (ToolRef, Timestamp)>) {
        let since = std::mem::take(&mut self.used);
        let n_calls = self.n_calls;
        for (tool, at) in before {
            self.note_use(&tool, at);
        }
        // What was called here before the store was asked may be among them.
        self.n_calls = n_calls.max(self.n_calls - n_calls);
        let is_since = |tool: &ToolRef| since.iter().any(|(known, _)| known == tool);
        self.used.retain(|(tool, _)| !is_since(tool));
        let n_over = (self.used.len() + since.len()).saturating_sub(MAX_USED);
        self.used.drain(..n_over.min(self.used.len()));
        self.used.extend(since);
    }

    /// Notes that a tool was called.
    pub(super) fn note_use(&mut self, tool: &ToolRef, at: Timestamp) {
        self.n_calls += 1;
        self.used.retain(|(known, _)| known != tool);
        if self.used.len() >= MAX_USED {
            self.used.remove(0);
        }
        self.used.push((tool.clone(), at));
    }
}

impl Scope {
    fn new(key: ScopeKey) -> Self {
        Self {
            key,
            deciding: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All lists that are in use.
#[derive(Debug, Default)]
pub(super) struct Scopes(Mutex<HashMap<ScopeKey, (Arc<Scope>, Instant)>>);

impl Scopes {
    /// Returns the scope with this key.
    pub(super) fn get(&self, key: ScopeKey) -> Arc<Scope> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((scope, used_at)) = all.get_mut(&key) {
            *used_at = now;
            return Arc::clone(scope);
        }
        if all.len() >= MAX_SCOPES {
            let mut moments: Vec<Instant> = all.values().map(|(_, used_at)| *used_at).collect();
            let tenth = moments.len() / 10;
            let (_, oldest, _) = moments.select_nth_unstable(tenth);
            let oldest = *oldest;
            all.retain(|_, (_, used_at)| *used_at > oldest);
        }
        let scope = Arc::new(Scope::new(key.clone()));
        all.insert(key, (Arc::clone(&scope), now));
        scope
    }

    /// Has all shared scopes ask the store again which epoch holds.
    pub(super) fn read_again(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (scope, _) in all.values() {
            scope.state().is_read = false;
        }
    }
}
