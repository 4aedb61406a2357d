//! Epochs: how they begin, what follows them, and where they are kept.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::listing::ListPolicyName;
use riglm_domain::tool::ToolRef;

use super::ask::ListAsk;
use super::choosing::Chosen;
use super::lists::Lists;
use super::marks::Mark;
use super::options::ListOptions;
use super::scope::Scope;
use crate::search::Offer;

/// How long the store may take to say which epoch holds, or to take a new one. Without its answer
/// the list is chosen all the same; other processes may choose another one then.
const STORE_DEADLINE: Duration = Duration::from_millis(500);
/// The least time between two epochs that begin because there are other tools.
const CATALOG_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Duration of an epoch that something else than what was learned chose.
const COLD_EPOCH: Duration = Duration::from_hours(1);
/// A new epoch of a list that sessions share keeps what was used within this time.
const KEEP_USED: SignedDuration = SignedDuration::from_mins(30);
/// The most new tools that are shown at once although nothing is known of them.
const MAX_NEW: usize = 5;

impl Lists {
    /// Returns whether an epoch that sessions share has lasted as long as it is to.
    pub(super) fn is_over(&self, scope: &Scope, ask: &ListAsk<'_>, epoch: &ListEpoch) -> bool {
        self.end_of(scope, ask, epoch)
            .is_some_and(|end| ask.now >= end)
    }

    /// Returns when another list is planned; never for one that goes by names, or is whole because
    /// the operator wants it.
    pub(super) fn until(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        epoch: &ListEpoch,
        policy: ListPolicyName,
    ) -> Option<Timestamp> {
        use ListPolicyName::{Append, Epoch, Hints};
        if !matches!(policy, Epoch | Append | Hints) {
            return None;
        }
        let waits_until = scope.state().waits_until;
        self.end_of(scope, ask, epoch)
            .into_iter()
            .chain(waits_until)
            .min()
    }

    /// Returns when an epoch that sessions share has lasted as long as it is to.
    fn end_of(&self, scope: &Scope, ask: &ListAsk<'_>, epoch: &ListEpoch) -> Option<Timestamp> {
        if !scope.key.is_shared() {
            return None;
        }
        let longest = self.options(ask).epoch;
        let is_learned = epoch.mode == SelectionMode::Prediction && epoch.reason.is_none();
        let lasts = if is_learned {
            longest
        } else {
            longest.min(COLD_EPOCH)
        };
        epoch.began_at.checked_add(lasts).ok()
    }

    /// Returns the epoch that holds, which is begun where it is time, and whether it is a fallback.
    pub(super) async fn epoch(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        marks: &[Mark],
    ) -> (Arc<ListEpoch>, bool) {
        self.read(scope, offer).await;
        let known = scope.state().epoch.clone();
        // Before anything is chosen: what changes meanwhile has it chosen again.
        let number = self.numbered(ask).number;
        let next = match &known {
            None => Some(self.first(scope, ask, offer, policy, marks).await),
            Some(epoch) => {
                self.following(scope, ask, offer, policy, marks, epoch)
                    .await
            }
        };
        {
            let mut state = scope.state();
            state.chosen_by = Some(number);
            if let Some(context) = ask.context() {
                state.chosen_for = Some(Arc::clone(context));
            }
        }
        let epoch = match next {
            Some(next) => self.begin(scope, next, offer).await,
            None => match known {
                Some(known) => known,
                // There is one or it was made above.
                None => whole(ask, policy),
            },
        };
        let is_fallback = is_fallback(&epoch);
        (epoch, is_fallback)
    }

    /// Returns the list of an offer that lacks the tools of some upstreams, which are starting or
    /// down, and whether it is a fallback: the epoch that holds, with more tools if too few of its
    /// own are offered. No epoch begins, since it would last without those upstreams.
    pub(super) async fn provisional(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        marks: &[Mark],
    ) -> (Arc<ListEpoch>, bool) {
        self.read(scope, offer).await;
        let held = scope.state().epoch.clone();
        if let Some(held) = &held
            && self.has_enough(held, ask, offer)
        {
            return (Arc::clone(held), is_fallback(held));
        }
        let mut kept = kept(scope, ask);
        if let Some(held) = &held {
            kept.extend(held.tools.tools().iter().cloned());
        }
        let chosen = self.choose(policy, ask, offer, &kept, marks).await;
        let number = held.map_or(0, |held| held.epoch);
        let epoch = made(scope, ask, offer, policy, (number, chosen));
        let is_fallback = is_fallback(&epoch);
        (Arc::new(epoch), is_fallback)
    }

    /// Returns whether an epoch shows as many of the tools that are offered as a list has at least.
    fn has_enough(&self, epoch: &ListEpoch, ask: &ListAsk<'_>, offer: &Offer) -> bool {
        let least = self.options(ask).bounds.min_tools.min(offer.tools().len());
        let mut offered =
            (epoch.tools.tools().iter()).filter(|tool| offer.position_of(tool).is_some());
        epoch.mode == SelectionMode::All || least == 0 || offered.nth(least - 1).is_some()
    }

    /// Asks the store which epoch holds, unless that is known.
    async fn read(&self, scope: &Scope, offer: &Offer) {
        let Some(kept) = &self.stores else {
            scope.state().is_read = true;
            return;
        };
        if scope.state().is_read {
            return;
        }
        let asked = kept.epochs.list_epoch(scope.key.as_str());
        match tokio::time::timeout(STORE_DEADLINE, asked).await {
            Ok(Ok(stored)) => {
                let mut state = scope.state();
                state.is_read = true;
                let is_newer = |stored: &ListEpoch| {
                    (state.epoch.as_ref()).is_none_or(|known| stored.epoch >= known.epoch)
                };
                if let Some(stored) = stored.filter(is_newer) {
                    state.hold(stored, offer.tool_set());
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
        let kept = kept(scope, ask);
        let chosen = self.choose(policy, ask, offer, &kept, marks).await;
        made(scope, ask, offer, policy, (1, chosen))
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
        if is_other_policy || self.is_over(scope, ask, epoch) {
            let kept = kept(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            return Some(made(scope, ask, offer, policy, (number, chosen)));
        }
        // Who says that they do something else has the list of that when they ask for it again.
        let is_of_other_context = !scope.state().is_for(ask.context());
        if is_of_other_context || self.is_of_other_options(scope, ask, epoch) {
            let kept = kept(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            let next = made(scope, ask, offer, policy, (number, chosen));
            // Another process, which was told of the same, may have chosen it already.
            if !is_same_choice(&next, epoch) {
                return Some(next);
            }
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
        let all_known = scope
            .state()
            .known
            .clone()
            .unwrap_or_else(|| offer.tool_set());
        let is_same = all_known.id() == offer.tool_set().id();
        let known: HashSet<&ToolRef> = if is_same {
            HashSet::new()
        } else {
            all_known.tools().iter().collect()
        };
        let is_new = |at: &usize| !is_same && !known.contains(&tools[*at].tool);
        let new: Vec<usize> = (0..tools.len()).filter(is_new).collect();
        let changed_at = scope.state().catalog_changed_at;
        let is_due = changed_at.is_none_or(|at| ask.now.duration_since(at) >= CATALOG_PAUSE);
        let n_known = all_known.tools().len();
        let mut all_known: BTreeSet<ToolRef> = all_known.tools().iter().cloned().collect();
        let is_late = epoch.mode != SelectionMode::All && !new.is_empty();
        if is_late && !is_due {
            scope.state().waits_until =
                changed_at.and_then(|at| at.checked_add(CATALOG_PAUSE).ok());
        }
        if is_late && is_due {
            {
                let mut state = scope.state();
                state.catalog_changed_at = Some(ask.now);
                state.waits_until = None;
            }
            all_known.extend(new.iter().map(|at| tools[*at].tool.clone()));
            added.extend(
                self.worth_showing(policy, ask, offer, marks, (epoch, &new))
                    .await,
            );
        }
        let is_for_size = matches!(
            epoch.reason,
            Some(
                SelectionReason::SmallCatalog
                    | SelectionReason::NotPaying
                    | SelectionReason::NothingLearned
                    | SelectionReason::ColdStart
            )
        );
        if epoch.mode == SelectionMode::All && is_for_size && !new.is_empty() {
            // It was shown whole because that costs little, which it may not do any more.
            return self
                .chosen_anew(scope, ask, offer, policy, (marks, &all_known, number))
                .await;
        }
        let is_known_changed = all_known.len() != n_known;
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

    /// Returns whether an epoch was chosen by other options than those that hold. An epoch of the
    /// store, of which that cannot be told, counts as one of those that held when it began.
    fn is_of_other_options(&self, scope: &Scope, ask: &ListAsk<'_>, epoch: &ListEpoch) -> bool {
        let wanted = self.numbered(ask);
        match scope.state().chosen_by {
            Some(number) => number != wanted.number,
            None => (wanted.changed_at).is_some_and(|changed_at| epoch.began_at < changed_at),
        }
    }

    /// Returns the epoch that follows one in which everything was shown, once there are more tools.
    /// What was listed stays.
    async fn chosen_anew(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        (marks, listed, number): (&[Mark], &BTreeSet<ToolRef>, u64),
    ) -> Option<ListEpoch> {
        let mut kept = kept(scope, ask);
        kept.extend(listed.iter().cloned());
        let chosen = self.choose(policy, ask, offer, &kept, marks).await;
        Some(made(scope, ask, offer, policy, (number, chosen)))
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

    /// Begins an epoch; returns the one that holds, which another process may have begun.
    async fn begin(&self, scope: &Scope, next: ListEpoch, offer: &Offer) -> Arc<ListEpoch> {
        let mut begun = next;
        if let Some(stores) = &self.stores {
            let beginning = stores.epochs.begin_epoch(&begun);
            match tokio::time::timeout(STORE_DEADLINE, beginning).await {
                Ok(Ok(stored)) => begun = stored,
                Ok(Err(error)) => tracing::debug!("an epoch cannot be stored: {error}"),
                Err(_) => tracing::debug!("the store does not take an epoch in time"),
            }
        }
        scope.state().hold(begun, offer.tool_set())
    }
}

/// Returns what stays listed whatever is predicted, because it was used.
pub(super) fn kept(scope: &Scope, ask: &ListAsk<'_>) -> HashSet<ToolRef> {
    let state = scope.state();
    let is_recent =
        |at: Timestamp| !scope.key.is_shared() || ask.now.duration_since(at) < KEEP_USED;
    let used = state.used.iter().filter(|(_, at)| is_recent(*at));
    used.map(|(tool, _)| tool.clone()).collect()
}

pub(super) fn made(
    scope: &Scope,
    ask: &ListAsk<'_>,
    offer: &Arc<Offer>,
    policy: ListPolicyName,
    (epoch, chosen): (u64, Chosen),
) -> ListEpoch {
    let tools = offer.tools();
    scope.state().mass = chosen.mass;
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

pub(super) fn whole(ask: &ListAsk<'_>, policy: ListPolicyName) -> Arc<ListEpoch> {
    Arc::new(ListEpoch {
        scope: String::new(),
        epoch: 1,
        policy: policy.as_str().into(),
        tools: ToolSet::new(Vec::new()),
        known: ToolSet::new(Vec::new()),
        mode: SelectionMode::All,
        reason: Some(SelectionReason::Operator),
        search_first: false,
        client: None,
        began_at: ask.now,
    })
}

pub(super) fn by_names(
    options: &ListOptions,
    ask: &ListAsk<'_>,
    policy: ListPolicyName,
    offer: &Arc<Offer>,
) -> Arc<ListEpoch> {
    let (patterns, is_shown) = match policy {
        ListPolicyName::Allowlist => (&options.allow, true),
        _ => (&options.deny, false),
    };
    let tools = offer.tools().iter();
    let tools = tools.filter(|tool| super::marks::fits_any(patterns, tool) == is_shown);
    let mut tools: Vec<ToolRef> = tools.map(|tool| tool.tool.clone()).collect();
    tools.sort_unstable();
    Arc::new(ListEpoch {
        tools: ToolSet::new(tools),
        mode: SelectionMode::Names,
        ..(*whole(ask, policy)).clone()
    })
}

/// Returns whether the same was chosen for two epochs.
fn is_same_choice(one: &ListEpoch, other: &ListEpoch) -> bool {
    one.tools.id() == other.tools.id()
        && one.mode == other.mode
        && one.reason == other.reason
        && one.search_first == other.search_first
}

/// Returns whether something else chose the list than was to.
pub(super) fn is_fallback(epoch: &ListEpoch) -> bool {
    match epoch.mode {
        SelectionMode::Prediction
        | SelectionMode::Names
        | SelectionMode::Context
        | SelectionMode::General => false,
        SelectionMode::Frequency | SelectionMode::Pool => true,
        SelectionMode::All => epoch.reason == Some(SelectionReason::PredictorFailed),
    }
}
