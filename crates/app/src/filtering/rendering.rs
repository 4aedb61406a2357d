//! From an epoch to what a client sees.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use riglm_domain::edit::with_meta;
use riglm_domain::id::OverrideId;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::listing::ListPolicyName;
use riglm_domain::tool::ToolRef;

use super::marks::Mark;
use crate::search::Offer;

/// Tells a client that loads tools on demand to load a tool at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// The text of a list of more tools is not kept.
const MAX_KEPT: usize = 64;

/// The tools of the proxy itself that a client has use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnToolsUse {
    /// None: nothing is hidden, nor will be.
    None,
    /// That for searching.
    Search,
    /// Also those that call any tool and that say what is done: something is hidden, or may be.
    All,
}

/// A list as a client sees it.
#[derive(Debug)]
pub struct ShownList {
    /// The policy that it comes of.
    pub policy: ListPolicyName,
    /// The number of its epoch.
    pub epoch: u64,
    /// What chose the tools.
    pub mode: SelectionMode,
    /// Whether something else was to choose them.
    pub is_fallback: bool,
    /// Why something else chose them, or why all are shown.
    pub reason: Option<SelectionReason>,
    /// Whether the tool for searching stands before all others.
    pub search_first: bool,
    /// When another list is planned; `None` for one that stays until something happens.
    pub until: Option<Timestamp>,
    /// The probability that the prediction gave to its tools together when it chose them; `None` where
    /// something else did.
    pub mass: Option<f64>,
    /// How many tokens the definitions have that are shown.
    pub shown_tokens: u64,
    /// How many tokens the definitions of the offer have.
    pub available_tokens: u64,
    /// The tools that it started from.
    pub pool: Arc<ToolSet>,
    pub(super) offer: Arc<Offer>,
    pub(super) revision: u64,
    /// The overrides of the client and of the session that it was made with.
    pub(super) narrow: Vec<OverrideId>,
    positions: Vec<usize>,
    /// A hash of them.
    order: u64,
    /// The same, ascending.
    ascending: Vec<usize>,
    loaded_at_once: HashSet<usize>,
    text: OnceLock<Arc<str>>,
}

impl ShownList {
    /// Returns the positions of the tools in the offer, in the order of the list.
    #[must_use]
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Returns how often the operator had decided something when the list was chosen.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a hash of the positions in their order, the same in every process.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Returns the offer that it shows tools of.
    #[must_use]
    pub fn offer(&self) -> &Arc<Offer> {
        &self.offer
    }

    /// Returns whether the list has the tool.
    #[must_use]
    pub fn shows(&self, tool: &ToolRef) -> bool {
        let position = self.offer.position_of(tool);
        position.is_some_and(|at| self.has(at))
    }

    /// Returns whether a client that sees the one sees the other.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.epoch == other.epoch
                && self.offer.id() == other.offer.id()
                && self.positions == other.positions
                && self.search_first == other.search_first)
    }

    /// Returns whether a client is sent the same texts for both, whichever epoch they are of.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        let texts = |list: &Self| -> Vec<(Arc<str>, bool)> {
            let positions = list.positions.iter();
            positions
                .map(|at| {
                    let definition = Arc::clone(&list.offer.tools()[*at].definition);
                    (definition, list.loaded_at_once.contains(at))
                })
                .collect()
        };
        std::ptr::eq(self, other)
            || (self.search_first == other.search_first
                && self.own_tools() == other.own_tools()
                && texts(self) == texts(other))
    }

    /// Returns whether the tool is offered and the list leaves it out.
    #[must_use]
    pub fn hides(&self, tool: &ToolRef) -> bool {
        let position = self.offer.position_of(tool);
        position.is_some_and(|at| !self.has(at))
    }

    /// Returns whether it leaves out none of the tools.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.positions.len() == self.offer.tools().len()
    }

    /// Returns the tools of the proxy itself that the client has use for.
    #[must_use]
    pub fn own_tools(&self) -> OwnToolsUse {
        let is_whole = self.is_whole() && !self.offer.is_partial();
        match self.reason {
            _ if !is_whole => OwnToolsUse::All,
            Some(SelectionReason::SmallCatalog) => OwnToolsUse::None,
            // The next list may leave something out.
            Some(
                SelectionReason::ColdStart
                | SelectionReason::NothingLearned
                | SelectionReason::NotPaying,
            ) if self.policy != ListPolicyName::Hints => OwnToolsUse::All,
            _ => OwnToolsUse::Search,
        }
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tool_set(&self) -> ToolSet {
        let tools = self.offer.tools();
        ToolSet::new(
            self.positions
                .iter()
                .map(|at| tools[*at].tool.clone())
                .collect(),
        )
    }

    /// Returns for how many milliseconds from `now` a client may take the list for the one that it
    /// is, if `ttl_ms` is what its servers say.
    #[must_use]
    pub fn ttl_ms(&self, ttl_ms: u64, now: Timestamp) -> u64 {
        let left = self
            .until
            .map(|until| until.duration_since(now).as_millis());
        left.map_or(ttl_ms, |left| ttl_ms.min(u64::try_from(left).unwrap_or(0)))
    }

    /// Returns the definitions from `start` on, at most `n` of them, separated by commas.
    pub fn page(&self, start: usize, n: usize) -> Arc<str> {
        if start > 0 || n < self.positions.len() {
            return self.joined(start, n);
        }
        // Many sessions may have the same whole list, of megabytes.
        if self.loaded_at_once.is_empty() && self.positions == self.offer.canonical() {
            return self.offer.canonical_text();
        }
        if self.positions.len() > MAX_KEPT {
            return self.joined(0, n);
        }
        Arc::clone(self.text.get_or_init(|| self.joined(0, n)))
    }

    fn has(&self, position: usize) -> bool {
        self.ascending.binary_search(&position).is_ok()
    }

    fn joined(&self, start: usize, n: usize) -> Arc<str> {
        let tools = self.offer.tools();
        let mut text = String::new();
        for at in self.positions.iter().skip(start).take(n) {
            if !text.is_empty() {
                text.push(',');
            }
            let definition = &tools[*at].definition;
            if self.loaded_at_once.contains(at) {
                text.push_str(&with_meta(definition, &[(ALWAYS_LOAD, "true")]));
            } else {
                text.push_str(definition);
            }
        }
        text.into()
    }
}

fn hash_of(positions: &[usize]) -> u64 {
    let mut hasher = DefaultHasher::new();
    positions.hash(&mut hasher);
    hasher.finish()
}

/// What a list is made of besides its epoch.
#[derive(Debug)]
pub(super) struct Rendering<'a> {
    pub(super) policy: ListPolicyName,
    pub(super) marks: &'a [Mark],
    pub(super) offer: &'a Arc<Offer>,
    pub(super) pool: Arc<ToolSet>,
    pub(super) is_fallback: bool,
    pub(super) until: Option<Timestamp>,
    pub(super) mass: Option<f64>,
    /// The number of what the operator decided.
    pub(super) revision: u64,
    /// The overrides of the client and of the session.
    pub(super) narrow: Vec<OverrideId>,
    pub(super) available_tokens: u64,
}

/// Makes a list of an epoch: its tools as far as they are offered, in their order; all in their
/// canonical order where all are shown. What is pinned stands first, what is excluded nowhere.
/// The order in which upstreams list plays no part.
pub(super) fn render(
    epoch: &ListEpoch,
    rendering: Rendering<'_>,
    tokens: impl Fn(usize) -> u64,
) -> ShownList {
    let Rendering {
        policy,
        marks,
        offer,
        pool,
        is_fallback,
        until,
        mass,
        revision,
        narrow,
        available_tokens,
    } = rendering;
    let tools = offer.tools();
    let canonical = offer.canonical();
    let chosen: Vec<usize> = (epoch.tools.tools().iter())
        .filter_map(|tool| offer.position_of(tool))
        .collect();
    let is_whole = epoch.mode == SelectionMode::All || !policy.may_hide();
    let listed = if is_whole {
        canonical.to_vec()
    } else {
        chosen.clone()
    };
    let mark = |at: usize| marks.get(at).copied().unwrap_or_default();
    let mut positions: Vec<usize> = canonical.to_vec();
    positions.retain(|at| mark(*at) == Mark::Pin);
    let mut is_there: HashSet<usize> = positions.iter().copied().collect();
    let mut add = |at: usize| {
        if is_there.insert(at) {
            positions.push(at);
        }
    };
    listed
        .into_iter()
        .filter(|at| mark(*at) != Mark::Exclude)
        .for_each(&mut add);
    let included = canonical
        .iter()
        .copied()
        .filter(|at| mark(*at) == Mark::Include);
    included.for_each(&mut add);
    // Where a list as short as the marked part would not pay, everything is to be loaded.
    let is_settled = matches!(
        epoch.reason,
        Some(
            SelectionReason::NotPaying
                | SelectionReason::SmallCatalog
                | SelectionReason::ColdStart
                | SelectionReason::NothingLearned
        )
    ) && epoch.mode == SelectionMode::All;
    let loaded_at_once = if policy == ListPolicyName::Hints && is_settled {
        positions.iter().copied().collect()
    } else if policy == ListPolicyName::Hints && epoch.mode != SelectionMode::All {
        let pinned = positions
            .iter()
            .copied()
            .filter(|at| mark(*at) == Mark::Pin);
        chosen.into_iter().chain(pinned).collect()
    } else {
        HashSet::new()
    };
    let is_all = positions.len() == tools.len();
    let mut ascending = positions.clone();
    ascending.sort_unstable();
    ShownList {
        policy,
        epoch: epoch.epoch,
        mode: epoch.mode,
        is_fallback,
        reason: epoch.reason,
        search_first: epoch.search_first,
        until,
        mass,
        shown_tokens: if is_all {
            available_tokens
        } else {
            positions.iter().map(|at| tokens(*at)).sum()
        },
        available_tokens,
        pool,
        offer: Arc::clone(offer),
        revision,
        narrow,
        order: hash_of(&positions),
        ascending,
        positions,
        loaded_at_once,
        text: OnceLock::new(),
    }
}
