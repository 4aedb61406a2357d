//! Epochs of lists: their begin, their successors and their storage.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::selection::{ListPolicyName, SizeDraw};

use super::config::FilteringConfig;
use super::list_request::ListRequest;
use super::list_scope::Scope;
use super::lists::ListStores;
use super::tool_marks::fits_any;
use super::tool_selector::{SelectedTools, SelectionInputs, SizeSource, ToolSelector};
use super::versioned_options::VersionedOptions;
use riglm_discovery::entropy::EntropySource;
use riglm_discovery::search::Catalog;

/// Timeout for reading or storing an epoch. After a timeout the list is selected anyway; other
/// processes may then select a different one.
const STORE_DEADLINE: Duration = Duration::from_millis(500);
/// The least time between two epochs that begin because of new tools.
const CATALOG_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Duration of an epoch that was selected by a fallback.
const COLD_EPOCH: Duration = Duration::from_hours(1);
/// A new epoch of a shared list keeps tools that were used within this time.
const KEEP_USED: SignedDuration = SignedDuration::from_mins(30);
/// The most new tools that are shown at once without any knowledge of them.
const MAX_NEW: usize = 5;

/// The epochs of lists: the current one of each scope, and its successors.
#[derive(Debug)]
pub(super) struct ListEpochs {
    stores: Option<ListStores>,
    selector: Arc<ToolSelector>,
    /// The seed of explored sizes unless the operator gives one; another one in each run.
    seed: u64,
}

impl ListEpochs {
    pub(super) fn new(stores: Option<ListStores>, selector: Arc<ToolSelector>) -> Self {
        let entropy = EntropySource::new().next();
        Self {
            stores,
            selector,
            seed: (entropy.iter().take(8)).fold(0, |seed, byte| seed << 8 | u64::from(*byte)),
        }
    }

    /// Returns the current epoch, begun now if it is due.
    pub(super) async fn current(
        &self,
        scope: &Scope,
        inputs: &SelectionInputs<'_>,
    ) -> Arc<ListEpoch> {
        self.read(scope, inputs.catalog).await;
        let known = scope.state.lock().epoch.clone();
        let next = match &known {
            None => Some(self.select_again(scope, inputs, None).await),
            Some(epoch) => self.next_epoch(scope, inputs, epoch).await,
        };
        {
            let mut state = scope.state.lock();
            // If the options changed meanwhile, the list is selected again.
            state.chosen_by = Some(inputs.versioned_options.number);
            if let Some(context) = inputs.request.context() {
                state.chosen_for = Some(Arc::clone(context));
            }
        }
        match (next, known) {
            (Some(next), _) => self.begin(scope, next, inputs.catalog).await,
            (None, Some(known)) => known,
            // Unreachable in practice: without a known epoch, one was created above.
            (None, None) => whole_epoch(inputs.request, inputs.policy),
        }
    }

    /// Returns the list of a catalog without the tools of some upstreams, which are starting or
    /// down. It is the current epoch, with more tools if the catalog has too few of its own. No new
    /// epoch begins, since it would outlast the outage.
    pub(super) async fn provisional(
        &self,
        scope: &Scope,
        inputs: &SelectionInputs<'_>,
    ) -> Arc<ListEpoch> {
        self.read(scope, inputs.catalog).await;
        let held = scope.state.lock().epoch.clone();
        if let Some(held) = &held
            && has_enough(held, inputs)
        {
            return Arc::clone(held);
        }
        let mut kept = used_tools(scope, inputs.request);
        if let Some(held) = &held {
            kept.extend(held.tools.tools().iter().cloned());
        }
        // Such a list is not stored, so its size is not explored.
        let chosen = self.selector.choose(inputs, &kept, None).await;
        let number = held.map_or(0, |held| held.epoch);
        Arc::new(new_epoch(scope, inputs, number, &chosen))
    }

    /// Reads the current epoch from the store, once.
    async fn read(&self, scope: &Scope, catalog: &Catalog) {
        let Some(kept) = &self.stores else {
            scope.state.lock().is_read = true;
            return;
        };
        if scope.state.lock().is_read {
            return;
        }
        let asked = kept.epochs.list_epoch(scope.key.as_str());
        match tokio::time::timeout(STORE_DEADLINE, asked).await {
            Ok(Ok(stored)) => {
                let mut state = scope.state.lock();
                state.is_read = true;
                let is_newer = |stored: &ListEpoch| {
                    (state.epoch.as_ref()).is_none_or(|known| stored.epoch >= known.epoch)
                };
                if let Some(stored) = stored.filter(is_newer) {
                    state.set_epoch(stored, catalog.tool_set());
                }
            }
            Ok(Err(error)) => tracing::debug!("failed to read the epoch of a list: {error}"),
            Err(_) => tracing::debug!("timeout while reading the epoch of a list"),
        }
    }

    /// Selects the tools of the epoch after `current`.
    async fn select_again(
        &self,
        scope: &Scope,
        inputs: &SelectionInputs<'_>,
        current: Option<&ListEpoch>,
    ) -> ListEpoch {
        let number = current.map_or(1, |current| current.epoch.saturating_add(1));
        let options = inputs.options();
        // The list keeps its size until its planned end, so that its sessions have one size.
        let running = current.filter(|epoch| !is_over(scope, inputs.request, options, epoch));
        let source = SizeSource {
            draw: self.draw(scope, options, number, current),
            earlier: running.and_then(|epoch| epoch.size_choice.as_ref()),
        };
        let kept = used_tools(scope, inputs.request);
        let chosen = self.selector.choose(inputs, &kept, Some(source)).await;
        new_epoch(scope, inputs, number, &chosen)
    }

    /// Returns the draw for the size of a list. All lists of a work session have the same draw, also
    /// after a restart. A list that sessions share gets a new one when its epoch has ended.
    fn draw(
        &self,
        scope: &Scope,
        options: &FilteringConfig,
        number: u64,
        current: Option<&ListEpoch>,
    ) -> SizeDraw {
        let seed = options.exploration.seed.unwrap_or(self.seed);
        let key = scope.key.as_str();
        if scope.key.is_shared() {
            return SizeDraw::of_unit(seed, &format!("{key}\u{1f}{number}"));
        }
        let known = current.and_then(|epoch| epoch.size_choice.as_ref());
        known.map_or_else(|| SizeDraw::of_unit(seed, key), |choice| choice.draw)
    }

    /// Returns the next epoch, if one is due.
    async fn next_epoch(
        &self,
        scope: &Scope,
        inputs: &SelectionInputs<'_>,
        epoch: &ListEpoch,
    ) -> Option<ListEpoch> {
        let (policy, request, catalog) = (inputs.policy, inputs.request, inputs.catalog);
        let number = epoch.epoch.saturating_add(1);
        let is_hints = epoch.policy == ListPolicyName::Hints.as_str();
        let is_other_policy = is_hints != (policy == ListPolicyName::Hints);
        if is_other_policy || is_over(scope, request, inputs.options(), epoch) {
            return Some(self.select_again(scope, inputs, Some(epoch)).await);
        }
        // A client that declares another context gets another list at its next request.
        let is_of_other_context = !scope.state.lock().is_for(request.context());
        if is_of_other_context || is_of_other_options(scope, inputs.versioned_options, epoch) {
            let next = self.select_again(scope, inputs, Some(epoch)).await;
            // Another process may have selected the same already.
            if !is_same_choice(&next, epoch) {
                return Some(next);
            }
        }
        let tools = catalog.tools();
        let mut added = std::mem::take(&mut scope.state.lock().added);
        let listed: HashSet<&ToolRef> = epoch.tools.tools().iter().collect();
        added.retain(|tool| {
            !listed.contains(tool) && tools.iter().any(|offered| offered.tool == *tool)
        });
        // These lists show all tools already.
        if epoch.mode == SelectionMode::All || policy == ListPolicyName::Hints {
            added.clear();
        }
        let all_known = scope.state.lock().known.clone();
        let all_known = all_known.unwrap_or_else(|| catalog.tool_set());
        // Catalogs rarely change, and comparing their ids is cheaper than building a set.
        let is_same = all_known.id() == catalog.tool_set().id();
        let known: HashSet<&ToolRef> = if is_same {
            HashSet::new()
        } else {
            all_known.tools().iter().collect()
        };
        let is_new = |at: &usize| !is_same && !known.contains(&tools[*at].tool);
        let new: Vec<usize> = (0..tools.len()).filter(is_new).collect();
        let changed_at = scope.state.lock().catalog_changed_at;
        let is_due = changed_at.is_none_or(|at| request.now.duration_since(at) >= CATALOG_PAUSE);
        let n_known = all_known.tools().len();
        let mut all_known: BTreeSet<ToolRef> = all_known.tools().iter().cloned().collect();
        let is_late = epoch.mode != SelectionMode::All && !new.is_empty();
        if is_late && !is_due {
            scope.state.lock().waits_until =
                changed_at.and_then(|at| at.checked_add(CATALOG_PAUSE).ok());
        }
        if is_late && is_due {
            {
                let mut state = scope.state.lock();
                state.catalog_changed_at = Some(request.now);
                state.waits_until = None;
            }
            all_known.extend(new.iter().map(|at| tools[*at].tool.clone()));
            added.extend(self.worth_showing(inputs, epoch, &new).await);
        }
        if is_whole_for_size(epoch) && !new.is_empty() {
            // The list was whole because that was cheap; with more tools it may not be. Listed
            // tools stay.
            let mut kept = used_tools(scope, request);
            kept.extend(all_known);
            let chosen = self.selector.choose(inputs, &kept, None).await;
            // A session still has everything that was decided for it. But for sessions that share the
            // list and begin now, no draw decided its size.
            let size_choice = epoch.size_choice.clone();
            return Some(ListEpoch {
                size_choice: size_choice.filter(|_| !scope.key.is_shared()),
                ..new_epoch(scope, inputs, number, &chosen)
            });
        }
        let is_known_changed = all_known.len() != n_known;
        if added.is_empty() && !is_known_changed {
            return None;
        }
        // Nothing is known about the probability of added tools together with the others.
        let expected_coverage = epoch.expected_coverage.filter(|_| added.is_empty());
        let mut seen = HashSet::new();
        let tools = epoch.tools.tools().iter().cloned().chain(added);
        let tools = tools.filter(|tool| seen.insert(tool.clone())).collect();
        Some(ListEpoch {
            epoch: number,
            policy: policy.as_str().into(),
            tools: ToolSet::new(tools),
            known: ToolSet::new(all_known.into_iter().collect()),
            expected_coverage,
            ..epoch.clone()
        })
    }

    /// Returns the new tools to add to the list: the tools of a fresh selection, and the first few,
    /// for which there can be no data yet.
    async fn worth_showing(
        &self,
        inputs: &SelectionInputs<'_>,
        epoch: &ListEpoch,
        new: &[usize],
    ) -> Vec<ToolRef> {
        let listed: HashSet<ToolRef> = epoch.tools.tools().iter().cloned().collect();
        let chosen = self.selector.choose(inputs, &listed, None).await;
        let is_chosen = |at: &usize| {
            chosen.mode == SelectionMode::All || chosen.tools.binary_search(at).is_ok()
        };
        let tools = inputs.catalog.tools();
        let shown = new.iter().enumerate();
        let shown = shown.filter(|(n, at)| *n < MAX_NEW || is_chosen(at));
        shown.map(|(_, at)| tools[*at].tool.clone()).collect()
    }

    /// Begins an epoch; returns the current one, which another process may have begun.
    async fn begin(&self, scope: &Scope, next: ListEpoch, catalog: &Catalog) -> Arc<ListEpoch> {
        let mut begun = next;
        if let Some(stores) = &self.stores {
            let beginning = stores.epochs.begin_epoch(&begun);
            match tokio::time::timeout(STORE_DEADLINE, beginning).await {
                Ok(Ok(stored)) => begun = stored,
                Ok(Err(error)) => tracing::debug!("failed to store the epoch of a list: {error}"),
                Err(_) => tracing::debug!("timeout while storing the epoch of a list"),
            }
        }
        scope.state.lock().set_epoch(begun, catalog.tool_set())
    }
}

/// Returns whether the epoch of a shared list has reached its end.
pub(super) fn is_over(
    scope: &Scope,
    request: &ListRequest<'_>,
    options: &FilteringConfig,
    epoch: &ListEpoch,
) -> bool {
    end_of(scope, options, epoch).is_some_and(|end| request.now >= end)
}

/// Returns the time of the next planned list; `None` for lists by names, and for lists that the
/// operator wants whole.
pub(super) fn next_planned(
    scope: &Scope,
    inputs: &SelectionInputs<'_>,
    epoch: &ListEpoch,
) -> Option<Timestamp> {
    use ListPolicyName::{Append, Epoch, Hints};
    if !matches!(inputs.policy, Epoch | Append | Hints) {
        return None;
    }
    let waits_until = scope.state.lock().waits_until;
    let end = end_of(scope, inputs.options(), epoch);
    end.into_iter().chain(waits_until).min()
}

/// Returns the end of an epoch of a shared list; `None` for a work session.
fn end_of(scope: &Scope, options: &FilteringConfig, epoch: &ListEpoch) -> Option<Timestamp> {
    if !scope.key.is_shared() {
        return None;
    }
    let longest = options.epoch;
    let is_learned = epoch.mode == SelectionMode::Prediction && epoch.reason.is_none();
    let is_explored = epoch.reason == Some(SelectionReason::Exploration);
    let lasts = if is_learned || is_explored {
        longest
    } else {
        longest.min(COLD_EPOCH)
    };
    epoch.began_at.checked_add(lasts).ok()
}

/// Returns whether the catalog still has at least `min_tools` tools of the epoch.
fn has_enough(epoch: &ListEpoch, inputs: &SelectionInputs<'_>) -> bool {
    let catalog = inputs.catalog;
    let least = inputs.options().min_tools.min(catalog.tools().len());
    let mut offered =
        (epoch.tools.tools().iter()).filter(|tool| catalog.position_of(tool).is_some());
    epoch.mode == SelectionMode::All || least == 0 || offered.nth(least - 1).is_some()
}

/// Returns whether the list is whole because of the number of tools or of what was known about them.
fn is_whole_for_size(epoch: &ListEpoch) -> bool {
    use SelectionReason::{ColdStart, Exploration, NotPaying, NothingLearned, SmallCatalog};
    let is_for_size = matches!(
        epoch.reason,
        Some(SmallCatalog | NotPaying | Exploration | NothingLearned | ColdStart)
    );
    epoch.mode == SelectionMode::All && is_for_size
}

/// Returns whether the epoch was selected with other options than the current ones. The options of
/// an epoch from the store are unknown; they are inferred from the time at which it began.
fn is_of_other_options(scope: &Scope, current: &VersionedOptions, epoch: &ListEpoch) -> bool {
    match scope.state.lock().chosen_by {
        Some(number) => number != current.number,
        None => (current.changed_at).is_some_and(|changed_at| epoch.began_at < changed_at),
    }
}

/// Returns the used tools, which stay in the list in any case.
pub(super) fn used_tools(scope: &Scope, request: &ListRequest<'_>) -> HashSet<ToolRef> {
    let state = scope.state.lock();
    let is_recent =
        |at: Timestamp| !scope.key.is_shared() || request.now.duration_since(at) < KEEP_USED;
    let used = state.used.iter().filter(|(_, at)| is_recent(*at));
    used.map(|(tool, _)| tool.clone()).collect()
}

pub(super) fn new_epoch(
    scope: &Scope,
    inputs: &SelectionInputs<'_>,
    epoch: u64,
    chosen: &SelectedTools,
) -> ListEpoch {
    let tools = inputs.catalog.tools();
    let shown = chosen.tools.iter().map(|at| tools[*at].tool.clone());
    let mut shown: Vec<ToolRef> = shown.collect();
    shown.sort_unstable();
    let mut known: Vec<ToolRef> = tools.iter().map(|tool| tool.tool.clone()).collect();
    known.sort_unstable();
    ListEpoch {
        scope: scope.key.as_str().to_owned(),
        epoch,
        policy: inputs.policy.as_str().into(),
        tools: ToolSet::new(shown),
        known: ToolSet::new(known),
        mode: chosen.mode,
        reason: chosen.reason,
        size_choice: chosen.size_choice.clone(),
        // A list that hides nothing covers every call, whatever was selected.
        expected_coverage: (chosen.expected_coverage).filter(|_| inputs.policy.may_hide()),
        search_first: chosen.search_first,
        // A shared list belongs to no single client.
        client: (inputs.request.client_hash).filter(|_| !scope.key.is_shared()),
        began_at: inputs.request.now,
    }
}

pub(super) fn whole_epoch(request: &ListRequest<'_>, policy: ListPolicyName) -> Arc<ListEpoch> {
    Arc::new(ListEpoch {
        scope: String::new(),
        epoch: 1,
        policy: policy.as_str().into(),
        tools: ToolSet::new(Vec::new()),
        known: ToolSet::new(Vec::new()),
        mode: SelectionMode::All,
        reason: Some(SelectionReason::Operator),
        size_choice: None,
        expected_coverage: None,
        search_first: false,
        client: None,
        began_at: request.now,
    })
}

pub(super) fn epoch_by_names(
    options: &FilteringConfig,
    request: &ListRequest<'_>,
    policy: ListPolicyName,
    catalog: &Arc<Catalog>,
) -> Arc<ListEpoch> {
    let (patterns, is_shown) = match policy {
        ListPolicyName::Allowlist => (&options.allow, true),
        _ => (&options.deny, false),
    };
    let tools = catalog.tools().iter();
    let tools = tools.filter(|tool| fits_any(patterns, tool) == is_shown);
    let mut tools: Vec<ToolRef> = tools.map(|tool| tool.tool.clone()).collect();
    tools.sort_unstable();
    Arc::new(ListEpoch {
        tools: ToolSet::new(tools),
        mode: SelectionMode::Names,
        ..(*whole_epoch(request, policy)).clone()
    })
}

fn is_same_choice(one: &ListEpoch, other: &ListEpoch) -> bool {
    one.tools.id() == other.tools.id()
        && one.mode == other.mode
        && one.reason == other.reason
        && one.size_choice == other.size_choice
        && one.search_first == other.search_first
}

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
