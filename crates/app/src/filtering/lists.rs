//! Lists of tools by what is learned: one for each work session or, where revisions do not let
//! lists depend on sessions, for each principal and profile.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use riglm_domain::conformal::ConformalThreshold;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::{SelectionMode, ToolSet};
use riglm_domain::listing::{Choice, ListPolicyName};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_override::ToolOverride;
use riglm_ports::analytics::{
    ChangeFeed, ListEpochRepository, OverrideRepository, Topic, UsageRepository,
};
use riglm_ports::clock::Clock;
use riglm_ports::token_counter::TokenCounter;
use tokio_util::sync::CancellationToken;

use super::ask::ListAsk;
use super::choosing::{Chosen, ranking};
use super::marks::{Mark, marks};
use super::options::ListOptions;
use super::policy::policy_of;
use super::rendering::{Rendering, ShownList, render};
use super::scope::{Scope, Scopes};
use super::sizes::Sizes;
use crate::learning::NextTools;
use crate::search::Offer;

/// How long the store may take to say which epoch holds, or to take a new one. Without its answer
/// the list is chosen all the same; other processes may choose another one then.
const STORE_DEADLINE: Duration = Duration::from_millis(500);
/// How often it is looked whether operators or other processes changed something.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The least time between two epochs that begin because there are other tools.
const CATALOG_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// How long an epoch lasts in which all is shown because little is known.
const COLD_EPOCH: Duration = Duration::from_hours(1);
/// A new epoch of a list that sessions share keeps what was used within this time.
const KEEP_USED: SignedDuration = SignedDuration::from_mins(30);
/// The most new tools that are shown at once although nothing is known of them.
const MAX_NEW: usize = 5;
/// The most names of clients that are remembered.
const MAX_CLIENTS: usize = 1_000;
/// The longest of them.
const MAX_NAME_CHARS: usize = 200;
/// The most principals whose coverage is steered.
const MAX_STEERED: usize = 4_096;

/// Where lists are kept, so that all processes agree on them.
#[derive(Clone, Debug)]
pub struct ListStores {
    /// The epochs.
    pub epochs: Arc<dyn ListEpochRepository>,
    /// What operators decided.
    pub overrides: Arc<dyn OverrideRepository>,
    /// How often tools were called.
    pub usage: Arc<dyn UsageRepository>,
    /// What changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// What [`Lists`] are made of.
#[derive(Debug)]
pub struct ListsParts {
    /// What the operator wants.
    pub options: ListOptions,
    /// What predicts; `None` where nothing is learned.
    pub next_tools: Option<Arc<NextTools>>,
    /// Where lists are kept; `None` where nothing is recorded.
    pub stores: Option<ListStores>,
    /// Counts tokens of definitions.
    pub counter: Arc<dyn TokenCounter>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

/// Decides what lists show.
#[derive(Debug)]
pub struct Lists {
    pub(super) options: ListOptions,
    pub(super) next_tools: Option<Arc<NextTools>>,
    pub(super) stores: Option<ListStores>,
    pub(super) sizes: Arc<Sizes>,
    pub(super) scopes: Scopes,
    clock: Arc<dyn Clock>,
    overrides: ArcSwap<Vec<ToolOverride>>,
    /// Counts what operators decided.
    revision: AtomicU64,
    relisting: Mutex<HashSet<String>>,
    thresholds: Mutex<HashMap<Principal, ConformalThreshold>>,
    was_warned_of_budget: AtomicBool,
    was_warned_of_pins: AtomicBool,
}

impl Lists {
    /// Returns lists made of these parts.
    #[must_use]
    pub fn new(parts: ListsParts) -> Self {
        Self {
            options: parts.options,
            next_tools: parts.next_tools,
            stores: parts.stores,
            sizes: Arc::new(Sizes::new(parts.counter)),
            scopes: Scopes::default(),
            clock: parts.clock,
            overrides: ArcSwap::default(),
            revision: AtomicU64::new(0),
            relisting: Mutex::default(),
            thresholds: Mutex::default(),
            was_warned_of_budget: AtomicBool::new(false),
            was_warned_of_pins: AtomicBool::new(false),
        }
    }

    /// Returns the list for who asks, of what is offered.
    pub async fn list(&self, ask: &ListAsk<'_>, offer: &Arc<Offer>) -> Arc<ShownList> {
        let policy = policy_of(&self.options, ask);
        let scope = self.scopes.get(ask.scope());
        let revision = self.revision.load(Ordering::Acquire);
        if let Some(shown) = self.still_holds(&scope, ask, offer, policy, revision) {
            return shown;
        }
        let _deciding = scope.deciding.lock().await;
        let overrides = self.overrides.load_full();
        let marks = marks(&self.options, &overrides, ask, offer.tools());
        self.warn_of_pins(offer);
        let (epoch, is_fallback) = match policy {
            ListPolicyName::All => (self.whole(ask, policy), false),
            ListPolicyName::Allowlist | ListPolicyName::Denylist => {
                (self.by_names(ask, policy, offer), false)
            }
            ListPolicyName::Conformal => self.steered(&scope, ask, offer, &marks).await,
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                self.epoch(&scope, ask, offer, policy, &marks).await
            }
        };
        let pool = self.default_pool(ask, offer.tools());
        let tools = offer.tools();
        let pool = ToolSet::new(pool.into_iter().map(|at| tools[at].tool.clone()).collect());
        let rendering = Rendering {
            policy,
            marks: &marks,
            offer,
            pool,
            is_fallback,
            until: self.end_of(&scope, &epoch),
            revision,
            available_tokens: self.sizes.total(offer),
        };
        let shown = Arc::new(render(&epoch, rendering, |at| {
            self.sizes.of(&tools[at].definition)
        }));
        tracing::debug!(
            policy = policy.as_str(),
            epoch = shown.epoch,
            mode = shown.mode.as_str(),
            is_fallback,
            reason = shown.reason.map(|reason| reason.as_str()),
            n_pool = shown.pool.tools().len(),
            n_shown = shown.positions().len(),
            n_available = tools.len(),
            "a list was chosen"
        );
        scope.state().shown = Some(Arc::clone(&shown));
        shown
    }

    /// Notes that clients of this name ask for their list again when they are told of a change.
    pub fn note_relisting(&self, client: &str) {
        let mut known = self
            .relisting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_CLIENTS && !known.contains(client) {
            known.insert(client.chars().take(MAX_NAME_CHARS).collect());
        }
    }

    /// Returns whether clients of this name do.
    #[must_use]
    pub fn relists(&self, client: &str) -> bool {
        let known = self
            .relisting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.contains(client)
    }

    /// Returns the list that was shown last to those who share it; `None` where none was.
    #[must_use]
    pub fn shown(&self, ask: &ListAsk<'_>) -> Option<Arc<ShownList>> {
        let scope = self.scopes.get(ask.scope());
        let shown = scope.state().shown.clone();
        shown
    }

    /// Returns whether the list for who asks is known already, so that nothing has to be chosen.
    #[must_use]
    pub fn is_decided(&self, ask: &ListAsk<'_>, offer: &Arc<Offer>) -> bool {
        let policy = policy_of(&self.options, ask);
        let scope = self.scopes.get(ask.scope());
        let revision = self.revision.load(Ordering::Acquire);
        (self.still_holds(&scope, ask, offer, policy, revision)).is_some()
    }

    /// Returns the list that was shown last, if it is what would be shown now.
    fn still_holds(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        revision: u64,
    ) -> Option<Arc<ShownList>> {
        let state = scope.state();
        let shown = state.shown.as_ref()?;
        let is_same = shown.policy == policy
            && shown.revision == revision
            && shown.offer.id() == offer.id()
            && !self.options.gate_writes;
        let holds = match policy {
            ListPolicyName::Conformal => false,
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                let epoch = state.epoch.as_ref()?;
                epoch.epoch == shown.epoch
                    && state.is_read
                    && state.added.is_empty()
                    && !self.is_over(scope, epoch, ask.now)
            }
            _ => true,
        };
        (is_same && holds).then(|| Arc::clone(shown))
    }

    /// Returns whether an epoch that sessions share has lasted as long as it is to.
    fn is_over(&self, scope: &Scope, epoch: &ListEpoch, now: Timestamp) -> bool {
        self.end_of(scope, epoch).is_some_and(|end| now >= end)
    }

    /// Returns when an epoch that sessions share has lasted as long as it is to.
    fn end_of(&self, scope: &Scope, epoch: &ListEpoch) -> Option<Timestamp> {
        if !scope.key.is_shared() {
            return None;
        }
        let lasts = if epoch.mode == SelectionMode::Prediction {
            self.options.epoch
        } else {
            self.options.epoch.min(COLD_EPOCH)
        };
        epoch.began_at.checked_add(lasts).ok()
    }

    /// Returns the epoch that holds, which is begun where it is time, and whether it is a fallback.
    async fn epoch(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        marks: &[Mark],
    ) -> (Arc<ListEpoch>, bool) {
        self.read(scope).await;
        let known = scope.state().epoch.clone();
        let next = match &known {
            None => Some(self.first(scope, ask, offer, policy, marks).await),
            Some(epoch) => {
                self.following(scope, ask, offer, policy, marks, epoch)
                    .await
            }
        };
        let epoch = match next {
            Some(next) => self.begin(scope, next).await,
            None => match known {
                Some(known) => known,
                // There is one or it was made above.
                None => self.whole(ask, policy),
            },
        };
        let is_fallback = is_fallback(&epoch);
        (epoch, is_fallback)
    }

    /// Asks the store which epoch holds, unless that is known.
    async fn read(&self, scope: &Scope) {
        let Some(stores) = &self.stores else {
            scope.state().is_read = true;
            return;
        };
        if scope.state().is_read {
            return;
        }
        let asked = stores.epochs.list_epoch(scope.key.as_str());
        match tokio::time::timeout(STORE_DEADLINE, asked).await {
            Ok(Ok(stored)) => {
                let mut state = scope.state();
                state.is_read = true;
                let is_newer = |stored: &ListEpoch| {
                    (state.epoch.as_ref()).is_none_or(|known| stored.epoch >= known.epoch)
                };
                if let Some(stored) = stored.filter(is_newer) {
                    state.epoch = Some(Arc::new(stored));
                }
            }
            Ok(Err(error)) => tracing::debug!("the epoch of a list cannot be read: {error}"),
            Err(_) => tracing::debug!("the store does not say in time which epoch holds"),
        }
    }

    async fn first(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        marks: &[Mark],
    ) -> ListEpoch {
        let kept = self.kept(scope, ask);
        let chosen = self.choose(policy, ask, offer, &kept, marks).await;
        self.made(scope, ask, offer, policy, (1, chosen))
    }

    /// Returns the epoch that follows, if it is time for one.
    async fn following(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        marks: &[Mark],
        epoch: &ListEpoch,
    ) -> Option<ListEpoch> {
        let number = epoch.epoch.saturating_add(1);
        let is_hints = epoch.policy == ListPolicyName::Hints.as_str();
        let is_other_policy = is_hints != (policy == ListPolicyName::Hints);
        if is_other_policy || self.is_over(scope, epoch, ask.now) {
            let kept = self.kept(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            return Some(self.made(scope, ask, offer, policy, (number, chosen)));
        }
        let tools = offer.tools();
        let added = std::mem::take(&mut scope.state().added);
        let listed: HashSet<&ToolRef> = epoch.tools.tools().iter().collect();
        let mut added: Vec<ToolRef> = added
            .into_iter()
            .filter(|tool| {
                !listed.contains(tool) && tools.iter().any(|offered| offered.tool == *tool)
            })
            .collect();
        if epoch.mode == SelectionMode::All || policy == ListPolicyName::Hints {
            added.clear();
        }
        let known: HashSet<&ToolRef> = epoch.known.tools().iter().collect();
        let is_new = |at: &usize| !known.contains(&tools[*at].tool);
        let new: Vec<usize> = (0..tools.len()).filter(is_new).collect();
        let changed_at = scope.state().catalog_changed_at;
        let is_due = changed_at.is_none_or(|at| ask.now.duration_since(at) >= CATALOG_PAUSE);
        let mut all_known: BTreeSet<ToolRef> = epoch.known.tools().iter().cloned().collect();
        if epoch.mode != SelectionMode::All && !new.is_empty() && is_due {
            scope.state().catalog_changed_at = Some(ask.now);
            all_known.extend(new.iter().map(|at| tools[*at].tool.clone()));
            added.extend(
                self.worth_showing(policy, ask, offer, marks, (epoch, &new))
                    .await,
            );
        }
        let is_known_changed = all_known.len() != epoch.known.tools().len();
        if added.is_empty() && !is_known_changed {
            return None;
        }
        let mut seen = HashSet::new();
        let tools = epoch.tools.tools().iter().cloned().chain(added);
        let tools = tools.filter(|tool| seen.insert(tool.clone())).collect();
        Some(ListEpoch {
            epoch: number,
            policy: policy.as_str().into(),
            tools: ToolSet::new(tools),
            known: ToolSet::new(all_known.into_iter().collect()),
            ..epoch.clone()
        })
    }

    /// Returns which of the tools that are new deserve a place beside those that are listed: what a
    /// choice takes anyhow, and the first few, of which nothing can be known.
    async fn worth_showing(
        &self,
        policy: ListPolicyName,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        marks: &[Mark],
        (epoch, new): (&ListEpoch, &[usize]),
    ) -> Vec<ToolRef> {
        let listed: HashSet<ToolRef> = epoch.tools.tools().iter().cloned().collect();
        let chosen = self.choose(policy, ask, offer, &listed, marks).await;
        let is_chosen = |at: &usize| {
            chosen.mode == SelectionMode::All || chosen.tools.binary_search(at).is_ok()
        };
        let shown = new.iter().enumerate();
        let shown = shown.filter(|(n, at)| *n < MAX_NEW || is_chosen(at));
        shown
            .map(|(_, at)| offer.tools()[*at].tool.clone())
            .collect()
    }

    /// Returns what stays listed whatever is predicted, because it was used.
    fn kept(&self, scope: &Scope, ask: &ListAsk<'_>) -> HashSet<ToolRef> {
        let state = scope.state();
        let is_recent =
            |at: Timestamp| !scope.key.is_shared() || ask.now.duration_since(at) < KEEP_USED;
        let used = state.used.iter().filter(|(_, at)| is_recent(*at));
        used.map(|(tool, _)| tool.clone()).collect()
    }

    fn made(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        (epoch, chosen): (u64, Chosen),
    ) -> ListEpoch {
        let tools = offer.tools();
        let mut shown: Vec<ToolRef> = chosen
            .tools
            .iter()
            .map(|at| tools[*at].tool.clone())
            .collect();
        shown.sort_unstable();
        let mut known: Vec<ToolRef> = tools.iter().map(|tool| tool.tool.clone()).collect();
        known.sort_unstable();
        ListEpoch {
            scope: scope.key.as_str().to_owned(),
            epoch,
            policy: policy.as_str().into(),
            tools: ToolSet::new(shown),
            known: ToolSet::new(known),
            mode: chosen.mode,
            reason: chosen.reason,
            search_first: chosen.search_first,
            client: ask.client_hash.filter(|_| !scope.key.is_shared()),
            began_at: ask.now,
        }
    }

    /// Begins an epoch; returns the one that holds, which another process may have begun.
    async fn begin(&self, scope: &Scope, next: ListEpoch) -> Arc<ListEpoch> {
        let mut begun = next;
        if let Some(stores) = &self.stores {
            let beginning = stores.epochs.begin_epoch(&begun);
            match tokio::time::timeout(STORE_DEADLINE, beginning).await {
                Ok(Ok(stored)) => begun = stored,
                Ok(Err(error)) => tracing::debug!("an epoch cannot be stored: {error}"),
                Err(_) => tracing::debug!("the store does not take an epoch in time"),
            }
        }
        let begun = Arc::new(begun);
        scope.state().epoch = Some(Arc::clone(&begun));
        begun
    }

    /// Returns the list that is steered to cover its share of the calls.
    async fn steered(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        marks: &[Mark],
    ) -> (Arc<ListEpoch>, bool) {
        let policy = ListPolicyName::Conformal;
        let prediction = self.predict(ask, offer).filter(|_| {
            let next_tools = self.next_tools.as_ref();
            next_tools.is_some_and(|next| next.has_learned())
        });
        let Some(prediction) = prediction else {
            let kept = self.kept(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            let epoch = Arc::new(self.made(scope, ask, offer, policy, (1, chosen)));
            let is_fallback = is_fallback(&epoch);
            return (epoch, is_fallback);
        };
        let number = self.follow(scope, ask, offer, &ranking(&prediction));
        let listed: Vec<usize> = {
            let state = scope.state();
            let steered = state.steered.as_ref();
            steered.map_or_else(Vec::new, |(_, list)| {
                list.listed().iter().copied().collect()
            })
        };
        let chosen = Chosen {
            tools: listed,
            mode: SelectionMode::Prediction,
            reason: None,
            search_first: false,
        };
        let epoch = self.made(scope, ask, offer, policy, (number, chosen));
        (Arc::new(epoch), false)
    }

    /// Has the steered list follow a prediction; returns the number of the list.
    pub(super) fn follow(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Offer,
        ranked: &[(usize, f64)],
    ) -> u64 {
        let n_tools = offer.tools().len();
        let Some(threshold) = self.threshold(ask.principal, n_tools, |_| {}) else {
            return 1;
        };
        let bounds = self.options.bounds;
        let ranked = self.affordable(offer, ranked);
        let mut state = scope.state();
        let used: Vec<usize> = (state.used.iter())
            .filter_map(|(tool, _)| offer.tools().iter().position(|known| known.tool == *tool))
            .collect();
        let (_, mut list) = (state.steered.take())
            .filter(|(of, _)| *of == offer.id())
            .unwrap_or_else(|| (offer.id(), Default::default()));
        if list.follow(
            &threshold,
            ranked,
            used,
            (bounds.min_tools, bounds.max_tools),
        ) {
            state.n_steered += 1;
        }
        state.steered = Some((offer.id(), list));
        state.n_steered.max(1)
    }

    /// Returns the first of the tools that fit into the budget together.
    fn affordable<'a>(&self, offer: &Offer, ranked: &'a [(usize, f64)]) -> &'a [(usize, f64)] {
        let Some(budget) = self.options.bounds.token_budget else {
            return ranked;
        };
        let mut left = budget;
        let fits = ranked.iter().take_while(|(at, _)| {
            let tokens = self.sizes.of(&offer.tools()[*at].definition);
            let rest = left.checked_sub(tokens);
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        &ranked[..fits.count()]
    }

    /// Returns the threshold of a principal after `change`; `None` where the configured coverage is
    /// none.
    pub(super) fn threshold(
        &self,
        principal: &Principal,
        n_tools: usize,
        change: impl FnOnce(&mut ConformalThreshold),
    ) -> Option<ConformalThreshold> {
        let mut all = self
            .thresholds
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(principal) {
            let fresh = ConformalThreshold::new(self.options.coverage, n_tools).ok()?;
            if all.len() >= MAX_STEERED {
                all.clear();
            }
            all.insert(principal.clone(), fresh);
        }
        let threshold = all.get_mut(principal)?;
        change(threshold);
        Some(threshold.clone())
    }

    fn whole(&self, ask: &ListAsk<'_>, policy: ListPolicyName) -> Arc<ListEpoch> {
        Arc::new(ListEpoch {
            scope: String::new(),
            epoch: 1,
            policy: policy.as_str().into(),
            tools: ToolSet::new(Vec::new()),
            known: ToolSet::new(Vec::new()),
            mode: SelectionMode::All,
            reason: Some(riglm_domain::list_shown::SelectionReason::Operator),
            search_first: false,
            client: None,
            began_at: ask.now,
        })
    }

    fn by_names(
        &self,
        ask: &ListAsk<'_>,
        policy: ListPolicyName,
        offer: &Arc<Offer>,
    ) -> Arc<ListEpoch> {
        let (patterns, is_shown) = match policy {
            ListPolicyName::Allowlist => (&self.options.allow, true),
            _ => (&self.options.deny, false),
        };
        let tools = offer.tools().iter();
        let tools = tools.filter(|tool| super::marks::fits_any(patterns, tool) == is_shown);
        let mut tools: Vec<ToolRef> = tools.map(|tool| tool.tool.clone()).collect();
        tools.sort_unstable();
        Arc::new(ListEpoch {
            tools: ToolSet::new(tools),
            mode: SelectionMode::Names,
            ..(*self.whole(ask, policy)).clone()
        })
    }

    /// Notices what operators and other processes change, until it is told to stop.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let Some(stores) = self.stores.clone() else {
            return;
        };
        let mut known = None;
        let mut next_end = None;
        loop {
            if let Ok(revisions) = stores.changes.revisions().await {
                let now = self.clock.now();
                let at = |topic: Topic| {
                    let place = Topic::ALL.iter().position(|one| *one == topic);
                    place.map(|place| revisions[place])
                };
                let (overrides, epochs) = (at(Topic::Overrides), at(Topic::ListEpochs));
                let has_ended = next_end.is_some_and(|end| now >= end);
                let (old_overrides, old_epochs) = known.unwrap_or((None, None));
                if overrides != old_overrides || has_ended {
                    if let Ok(all) = stores.overrides.overrides(now).await {
                        next_end = super::marks::next_end(&all, now);
                        let is_same = **self.overrides.load() == all;
                        self.overrides.store(Arc::new(all));
                        if !is_same {
                            self.revision.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                }
                if epochs != old_epochs {
                    self.scopes.read_again();
                }
                known = Some((overrides, epochs));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    pub(super) fn warn_of_budget(&self, choice: &Choice) {
        let is_short = choice.shown.len() < self.options.bounds.min_tools;
        if is_short
            && choice.n_over_budget > 0
            && !self.was_warned_of_budget.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "filtering.token_budget is too small for filtering.min_tools tools: a list has \
                 {} of them",
                choice.shown.len()
            );
        }
    }

    /// Says, once, which pins name no tool, and what they may have meant.
    fn warn_of_pins(&self, offer: &Offer) {
        if self.options.pins.is_empty() || self.was_warned_of_pins.swap(true, Ordering::Relaxed) {
            return;
        }
        let tools = offer.tools();
        for pin in &self.options.pins {
            if tools
                .iter()
                .any(|tool| super::marks::fits_any(std::slice::from_ref(pin), tool))
            {
                continue;
            }
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let nearest = riglm_domain::retrieval::nearest_names(pin.as_str(), &names, 1);
            let nearest = nearest.first().map_or("none", |at| names[*at]);
            tracing::warn!(
                "filtering.pins: no tool is named {}; the nearest is {nearest}",
                pin.as_str()
            );
        }
    }
}

/// Returns whether something else chose the list than was to.
fn is_fallback(epoch: &ListEpoch) -> bool {
    match epoch.mode {
        SelectionMode::Prediction | SelectionMode::Names => false,
        SelectionMode::Frequency | SelectionMode::Pool => true,
        SelectionMode::All => {
            epoch.reason == Some(riglm_domain::list_shown::SelectionReason::PredictorFailed)
        }
    }
}

#[cfg(test)]
mod tests;
