//! Rendering of an epoch: the list that a client sees, with its texts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{OverrideId, UpstreamName};
use riglm_domain::mcp::edit::with_meta;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::selection::{ExpectedCoverage, ListPolicyName, SizeChoice};

use super::tool_marks::ToolMark;
use riglm_discovery::search::{Catalog, ListedTools};

/// `_meta` key that makes a client with on-demand loading load a tool at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// Longer lists are rendered for each request, to bound the memory of many sessions.
const MAX_KEPT: usize = 64;

/// The own tools of the proxy that a client needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnToolsUse {
    /// None: no tool is hidden or will be.
    None,
    /// The search tool.
    Search,
    /// Also the tools that call any tool and that recommend tools for a task: a tool is hidden or
    /// may become hidden.
    All,
}

/// A list as a client sees it.
#[derive(Debug)]
pub struct ShownList {
    /// The policy of the list.
    pub policy: ListPolicyName,
    /// The number of its epoch.
    pub epoch: u64,
    /// The mode in which the tools were selected.
    pub mode: SelectionMode,
    /// Whether a fallback selected the tools.
    pub is_fallback: bool,
    /// The reason for a fallback or for a whole list.
    pub reason: Option<SelectionReason>,
    /// The decision about the size of the list, if sizes are explored.
    pub size_choice: Option<SizeChoice>,
    /// Whether the search tool stands before all others.
    pub search_first: bool,
    /// Time at which another list is planned; `None` for a list without an end.
    pub until: Option<Timestamp>,
    /// The predicted probability of its tools together, when they were selected; `None` if a
    /// prediction did not select exactly these tools.
    pub expected_coverage: Option<ExpectedCoverage>,
    /// The number of tokens of the definitions in the list.
    pub shown_tokens: u64,
    /// The number of tokens of all definitions of the catalog.
    pub available_tokens: u64,
    /// The pool from which the tools were selected.
    pub pool: Arc<ToolSet>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) revision: u64,
    /// The client and session overrides that applied to the selection.
    pub(super) narrow: Vec<OverrideId>,
    positions: Vec<usize>,
    /// A hash of the positions.
    order: u64,
    /// The positions, ascending.
    ascending: Vec<usize>,
    loaded_at_once: HashSet<usize>,
    servers: Vec<(UpstreamName, usize)>,
    text: OnceLock<Arc<str>>,
}

impl ShownList {
    /// Returns the positions of the tools in the catalog, in the order of the list.
    #[must_use]
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Returns the revision of overrides and options with which the list was selected.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a hash of the positions in their order, the same in every process.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Returns the names of the tools that are marked as to be loaded at once; `None` if the policy
    /// of the list marks none.
    pub(crate) fn names_loaded_at_once(&self) -> Option<impl Iterator<Item = &str>> {
        let has_choice = self.policy == ListPolicyName::Hints && self.mode != SelectionMode::All;
        if !has_choice && self.loaded_at_once.is_empty() {
            return None;
        }
        let tools = self.catalog.tools();
        let loaded = self.loaded_at_once.iter();
        Some(loaded.map(|at| tools[*at].name.as_str()))
    }

    /// Returns the catalog of the list.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns whether the list has the tool.
    #[must_use]
    pub fn shows(&self, tool: &ToolRef) -> bool {
        let position = self.catalog.position_of(tool);
        position.is_some_and(|at| self.has(at))
    }

    /// Returns whether both are the same list for a client: epoch, catalog and order are equal.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.epoch == other.epoch
                && self.catalog.id() == other.catalog.id()
                && self.positions == other.positions
                && self.search_first == other.search_first)
    }

    /// Returns whether a client receives the same texts for both, even if the epochs differ.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.search_first == other.search_first
                && self.own_tools() == other.own_tools()
                && self.servers == other.servers
                && self.texts().eq(other.texts()))
    }

    /// Returns whether the tool is in the catalog but not in the list.
    #[must_use]
    pub fn hides(&self, tool: &ToolRef) -> bool {
        let position = self.catalog.position_of(tool);
        position.is_some_and(|at| !self.has(at))
    }

    /// Returns whether the list has all tools of the catalog.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.positions.len() == self.catalog.tools().len()
    }

    /// Returns the own tools of the proxy that the client needs.
    #[must_use]
    pub fn own_tools(&self) -> OwnToolsUse {
        let is_whole = self.is_whole() && !self.catalog.is_truncated();
        match self.reason {
            _ if !is_whole => OwnToolsUse::All,
            Some(SelectionReason::SmallCatalog) => OwnToolsUse::None,
            // The next list may hide tools.
            Some(
                SelectionReason::ColdStart
                | SelectionReason::NothingLearned
                | SelectionReason::NotPaying
                | SelectionReason::Exploration,
            ) if self.policy != ListPolicyName::Hints => OwnToolsUse::All,
            _ => OwnToolsUse::Search,
        }
    }

    /// Returns the servers whose tools could be selected, with their numbers of tools, the largest
    /// first. They are the same throughout an epoch, except that servers without a visible tool go.
    /// Empty if the list hides nothing, or if there is one server.
    pub(crate) fn servers(&self) -> &[(UpstreamName, usize)] {
        &self.servers
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tool_set(&self) -> ToolSet {
        let tools = self.catalog.tools();
        let listed = self.positions.iter().map(|at| tools[*at].tool.clone());
        ToolSet::new(listed.collect())
    }

    /// Returns the time to live in milliseconds from `now`: the smaller of `ttl_ms`, given by the
    /// servers, and the time until the next planned list.
    #[must_use]
    pub fn ttl_ms(&self, ttl_ms: u64, now: Timestamp) -> u64 {
        let left = (self.until).map(|until| until.duration_since(now).as_millis());
        left.map_or(ttl_ms, |left| ttl_ms.min(u64::try_from(left).unwrap_or(0)))
    }

    /// Returns at most `n` definitions from position `start` on, separated by commas.
    pub fn page(&self, start: usize, n: usize) -> Arc<str> {
        if start > 0 || n < self.positions.len() {
            return self.join_definitions(start, n);
        }
        // Many sessions may have the same whole list of megabytes, so they share its text.
        if self.loaded_at_once.is_empty() && self.positions == self.catalog.canonical_order() {
            return self.catalog.canonical_text();
        }
        if self.positions.len() > MAX_KEPT {
            return self.join_definitions(0, n);
        }
        Arc::clone(self.text.get_or_init(|| self.join_definitions(0, n)))
    }

    fn has(&self, position: usize) -> bool {
        self.ascending.binary_search(&position).is_ok()
    }

    /// Returns the definitions in the order of the list, each with whether it is loaded at once.
    fn texts(&self) -> impl Iterator<Item = (&str, bool)> {
        let tools = self.catalog.tools();
        let positions = self.positions.iter();
        positions.map(move |at| (&*tools[*at].definition, self.loaded_at_once.contains(at)))
    }

    fn join_definitions(&self, start: usize, n: usize) -> Arc<str> {
        let mut text = String::new();
        for (definition, is_loaded_at_once) in self.texts().skip(start).take(n) {
            if !text.is_empty() {
                text.push(',');
            }
            if is_loaded_at_once {
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

/// The input of a list besides its epoch.
#[derive(Debug)]
pub(super) struct Rendering<'a> {
    pub(super) policy: ListPolicyName,
    pub(super) marks: &'a [ToolMark],
    pub(super) catalog: &'a Arc<Catalog>,
    pub(super) pool: Arc<ToolSet>,
    /// The tools that were available when the epoch began.
    pub(super) known: &'a ToolSet,
    pub(super) is_fallback: bool,
    pub(super) until: Option<Timestamp>,
    /// The revision of overrides and options.
    pub(super) revision: u64,
    pub(super) narrow: Vec<OverrideId>,
    pub(super) available_tokens: u64,
}

/// Renders an epoch as a list: its tools as far as the catalog has them, in their order. If all are
/// shown, they are in canonical order. Pinned tools come first; excluded tools are left out. The
/// order in which upstreams list their tools has no effect.
pub(super) fn render(
    epoch: &ListEpoch,
    rendering: Rendering<'_>,
    tokens: impl Fn(usize) -> u64,
) -> ShownList {
    let (policy, marks, catalog) = (rendering.policy, rendering.marks, rendering.catalog);
    let tools = catalog.tools();
    let canonical = catalog.canonical_order();
    let chosen: Vec<usize> = (epoch.tools.tools().iter())
        .filter_map(|tool| catalog.position_of(tool))
        .collect();
    let is_whole = epoch.mode == SelectionMode::All || !policy.may_hide();
    let listed: &[usize] = if is_whole { canonical } else { &chosen };
    let mark = |at: usize| marks.get(at).copied().unwrap_or_default();
    let marked = |wanted: ToolMark| -> Vec<usize> {
        (canonical.iter().copied())
            .filter(|at| mark(*at) == wanted)
            .collect()
    };
    let pinned = marked(ToolMark::Pin);
    let mut positions = pinned.clone();
    let mut is_there: HashSet<usize> = positions.iter().copied().collect();
    let shown = (listed.iter().copied()).filter(|at| mark(*at) != ToolMark::Exclude);
    for at in shown.chain(marked(ToolMark::Include)) {
        if is_there.insert(at) {
            positions.push(at);
        }
    }
    // Overrides or a missing upstream may have made another list of the selected tools. A list that
    // hides nothing has every call, whatever was predicted.
    let n_selected = epoch.tools.tools().len();
    let is_as_selected = !is_whole
        && positions.len() < tools.len()
        && [positions.len(), chosen.len()] == [n_selected; 2]
        && chosen.iter().all(|at| is_there.contains(at));
    let loaded_at_once = if policy == ListPolicyName::Hints {
        loaded_at_once(epoch, &positions, chosen.into_iter().chain(pinned))
    } else {
        HashSet::new()
    };
    let is_all = positions.len() == tools.len();
    let mut ascending = positions.clone();
    ascending.sort_unstable();
    let servers = if is_all {
        Vec::new()
    } else {
        let visible = (canonical.iter()).filter(|at| mark(**at) != ToolMark::Exclude);
        let visible: HashSet<&UpstreamName> = visible.map(|at| &tools[*at].tool.upstream).collect();
        servers_of(rendering.known, |server| {
            catalog.lacks_upstreams() || visible.contains(server)
        })
    };
    ShownList {
        policy,
        epoch: epoch.epoch,
        mode: epoch.mode,
        is_fallback: rendering.is_fallback,
        reason: epoch.reason,
        size_choice: epoch.size_choice.clone(),
        search_first: epoch.search_first,
        until: rendering.until,
        expected_coverage: epoch.expected_coverage.filter(|_| is_as_selected),
        shown_tokens: if is_all {
            rendering.available_tokens
        } else {
            positions.iter().map(|at| tokens(*at)).sum()
        },
        available_tokens: rendering.available_tokens,
        pool: rendering.pool,
        catalog: Arc::clone(catalog),
        revision: rendering.revision,
        narrow: rendering.narrow,
        order: hash_of(&positions),
        ascending,
        positions,
        loaded_at_once,
        servers,
        text: OnceLock::new(),
    }
}

/// Returns the positions that a client with a search of its own loads at once, out of those of its
/// list. `likely` are the selected tools and the pinned ones.
fn loaded_at_once(
    epoch: &ListEpoch,
    positions: &[usize],
    likely: impl Iterator<Item = usize>,
) -> HashSet<usize> {
    use SelectionReason::{ColdStart, NotPaying, NothingLearned, SmallCatalog};
    if epoch.mode != SelectionMode::All {
        return likely.collect();
    }
    // If marking a few tools saves nothing, all tools are loaded at once.
    match epoch.reason {
        Some(NotPaying | SmallCatalog | ColdStart | NothingLearned) => {
            positions.iter().copied().collect()
        }
        _ => HashSet::new(),
    }
}

/// Returns the servers of these tools with their numbers of tools, the largest first. Empty if there
/// is one.
fn servers_of(
    known: &ToolSet,
    is_named: impl Fn(&UpstreamName) -> bool,
) -> Vec<(UpstreamName, usize)> {
    let mut n_tools: BTreeMap<&UpstreamName, usize> = BTreeMap::new();
    for tool in known.tools() {
        *n_tools.entry(&tool.upstream).or_default() += 1;
    }
    let named = n_tools.into_iter().filter(|(server, _)| is_named(server));
    let mut servers: Vec<(UpstreamName, usize)> =
        named.map(|(server, n)| (server.clone(), n)).collect();
    servers.sort_by_key(|(_, n)| Reverse(*n));
    if servers.len() < 2 {
        servers.clear();
    }
    servers
}
impl ListedTools for ShownList {
    fn shows(&self, tool: &ToolRef) -> bool {
        Self::shows(self, tool)
    }
}
