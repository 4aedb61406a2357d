//! The last content of each list that the client was shown. The client is notified only of changes
//! of this content, and only once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;

use super::merged_list_fetch::{FetchSelection, GatheredList};
use super::merged_lists::AggregateList;
use crate::proxy::aggregator::changes::{check_list_later, note_list_change};
use crate::proxy::aggregator::listen::attach_to_all;
use crate::proxy::aggregator::merged_list_fetch::gather;
use crate::proxy::list_composer::{ListComposer, SessionRef};
use crate::proxy::list_kind::{ListChange, ListKind};
use crate::proxy::list_template::ListTemplate;
use crate::proxy::own_tools::OwnToolSet;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_session::UpstreamSession;
use crate::selection::ShownList;

/// The maximum number of lists of one kind that a client may page through at once.
const MAX_LISTS: usize = 4;
/// The maximum size of the older of these lists in bytes.
const MAX_OLD_BYTES: usize = 8 << 20;

/// The lists that the client was shown.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ShownLists(Mutex<ShownState>);

#[derive(Debug, Default)]
struct ShownState {
    /// The last lists that the client saw, newest first.
    lists: HashMap<ListKind, VecDeque<Arc<AggregateList>>>,
    /// The content of each list when the client last requested it.
    seen: HashMap<ListKind, SeenList>,
    /// The upstreams that are missing in the last answer for each list.
    missing: HashMap<ListKind, Vec<UpstreamName>>,
    /// The time when the tools of all upstreams were last known, and for how many milliseconds.
    gathered: Option<(Instant, u64)>,
}

impl ShownLists {
    /// Returns the last list of a kind that the client saw.
    pub(in crate::proxy) fn last(&self, kind: ListKind) -> Option<Arc<AggregateList>> {
        self.0.lock().lists.get(&kind)?.front().cloned()
    }

    /// Returns a list that the client may page through.
    pub(super) fn with_version(&self, kind: ListKind, version: &str) -> Option<Arc<AggregateList>> {
        let shown = self.0.lock();
        let mut lists = shown.lists.get(&kind)?.iter();
        lists.find(|list| list.version() == version).cloned()
    }

    /// Stores a list that the client is shown. Older lists stay for a client that pages through
    /// them. Lists of one page need not stay. The size is limited, because an upstream may send a
    /// different list each time.
    pub(super) fn note_list(&self, kind: ListKind, list: &Arc<AggregateList>, page_entries: usize) {
        let mut shown = self.0.lock();
        let lists = shown.lists.entry(kind).or_default();
        let mut n_bytes = 0;
        lists.retain(|known| {
            n_bytes += known.n_bytes();
            let has_pages = known.len() > page_entries;
            has_pages && n_bytes <= MAX_OLD_BYTES && !Arc::ptr_eq(known, list)
        });
        lists.push_front(Arc::clone(list));
        lists.truncate(MAX_LISTS);
    }

    /// Stores the content of a list that the client requested. Returns whether it requested such a
    /// list before.
    fn note_seen(&self, kind: ListKind, seen: SeenList) -> bool {
        self.0.lock().seen.insert(kind, seen).is_some()
    }

    /// Returns whether a cursor leads to a known merged list of tools.
    pub(in crate::proxy) fn has_cursor(&self, cursor: &str) -> bool {
        let version = cursor.split_once('.').map(|(version, _)| version);
        version.is_some_and(|version| self.with_version(ListKind::Tools, version).is_some())
    }

    /// Returns whether the client ever requested one of these lists.
    pub(super) fn has_seen(&self, kinds: &[ListKind]) -> bool {
        let shown = self.0.lock();
        kinds.iter().any(|kind| shown.seen.contains_key(kind))
    }

    fn last_seen(&self, kind: ListKind) -> Option<SeenList> {
        self.0.lock().seen.get(&kind).cloned()
    }

    /// Marks the client as notified that a list differs from the content that it saw. Returns
    /// whether that content is still the last one.
    fn mark_notified(&self, kind: ListKind, of: &SeenList) -> bool {
        let mut shown = self.0.lock();
        let newest = shown.seen.get_mut(&kind);
        match newest.filter(|newest| Arc::ptr_eq(&newest.list, &of.list)) {
            Some(newest) => {
                newest.is_told = true;
                true
            }
            None => false,
        }
    }

    /// Enables the next notification of changes again. The client opened a notification stream, so
    /// it may have missed the last one.
    pub(super) fn reset_notified(&self, kinds: &BTreeSet<ListChange>) {
        let mut shown = self.0.lock();
        for (kind, seen) in &mut shown.seen {
            if kinds.contains(&kind.change()) {
                seen.is_told = false;
            }
        }
    }

    /// Stores the upstreams that are missing in a list. Returns whether they are others than before.
    pub(super) fn note_missing(&self, kind: ListKind, missing: Vec<UpstreamName>) -> bool {
        let mut shown = self.0.lock();
        let known = shown.missing.entry(kind).or_default();
        let is_news = *known != missing;
        *known = missing;
        is_news
    }

    /// Returns the upstreams that were missing in the last list.
    pub(super) fn missing(&self, kind: ListKind) -> Vec<UpstreamName> {
        let shown = self.0.lock();
        shown.missing.get(&kind).cloned().unwrap_or_default()
    }

    /// Returns the time when all upstreams last listed their tools, and the time to live of their
    /// lists in milliseconds.
    pub(super) fn last_gathered(&self) -> Option<(Instant, u64)> {
        self.0.lock().gathered
    }

    /// Stores that all upstreams have listed their tools now.
    pub(super) fn note_gathered(&self, ttl_ms: u64) {
        self.0.lock().gathered = Some((Instant::now(), ttl_ms));
    }

    /// Marks the known tools as possibly incomplete.
    pub(super) fn forget_gathered(&self) {
        self.0.lock().gathered = None;
    }
}

/// A list in the form that the client was shown.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct SeenList {
    /// The template of the requests that fetched it.
    template: ListTemplate,
    list: Arc<AggregateList>,
    /// The selection from the list, if lists are selected.
    chosen: Option<Arc<ShownList>>,
    /// The own tools of the proxy in the list.
    own_tools: OwnToolSet,
    /// Whether the client was notified that the list has changed since.
    is_told: bool,
}

/// The outcome of checking lists that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeCheck {
    /// There were no lists to check.
    None,
    /// The lists are unchanged.
    Same,
    /// A list has changed, so the client must be notified.
    Other,
}

impl SeenList {
    pub(in crate::proxy) fn new(
        template: &ListTemplate,
        list: Arc<AggregateList>,
        chosen: Option<Arc<ShownList>>,
    ) -> Self {
        Self {
            template: template.without_trace(),
            list,
            chosen,
            own_tools: OwnToolSet::default(),
            is_told: false,
        }
    }
}

/// Stores the list that the client is shown. `n_changes` is the number of registered changes at
/// the time of the request. The list may lack changes that were registered later, so it is
/// checked again.
pub(in crate::proxy) fn note_seen(
    session: &Arc<ClientSession>,
    kind: ListKind,
    mut seen: SeenList,
    n_changes: u64,
) {
    if kind == ListKind::Tools {
        seen.own_tools = session.shared.listed_own_tools();
    }
    let was_seen = session.aggregator.lists.note_seen(kind, seen);
    let changes = &session.aggregator.changes;
    if was_seen && !session.client_context.is_initialized() {
        // Another client of the session may have seen the previous content.
        changes.notify_if_changing(kind.change());
    }
    if changes.n_changes(kind.change()) != n_changes {
        let members = session.members();
        let all: Vec<u64> = members.iter().map(|member| member.number).collect();
        note_list_change(session, kind.change(), &all);
    }
}

/// Registers that an upstream session was connected. Lists that were shown from what was known of
/// the upstream are checked, because it may list something else for this client.
pub(in crate::proxy) fn on_connected(session: &Arc<ClientSession>, member: &Arc<UpstreamSession>) {
    attach_to_all(session, member);
    for kind in ListKind::ALL {
        let Some(seen) = session.aggregator.lists.last_seen(kind) else {
            continue;
        };
        let key = member.scope.list_key(&seen.template);
        if !member.scope.entry.catalog.is_confirmed(&key) {
            check_list_later(session, kind.change(), &[member.number]);
        }
    }
}

/// Returns whether a list differs from the content that the client saw last, and marks the
/// client as notified. Lists that the client never requested are skipped, and so are lists with
/// a pending notification. The lists of `members` are fetched again.
pub(super) async fn check_changed_lists(
    session: &Arc<ClientSession>,
    kind: ListChange,
    members: &BTreeSet<u64>,
) -> ChangeCheck {
    let mut look = ChangeCheck::None;
    for list in kind.lists() {
        let seen = session.aggregator.lists.last_seen(*list);
        let Some(seen) = seen.filter(|seen| !seen.is_told) else {
            continue;
        };
        let gathered = match gather(session, &seen.template, &FetchSelection::Only(members)).await {
            Ok(gathered) => gathered,
            Err(error) => {
                tracing::debug!("failed to fetch a changed list: {}", error.message);
                continue;
            }
        };
        if is_same(session, &seen, &gathered).await {
            look = look.max(ChangeCheck::Same);
            continue;
        }
        // The client may have requested the list in the meantime and seen the change.
        if session.aggregator.lists.mark_notified(*list, &seen) {
            look = ChangeCheck::Other;
        } else if !session.client_context.is_initialized() {
            // Without a handshake, the newer request may come from another client of the
            // session.
            look = ChangeCheck::Other;
        }
    }
    look
}

/// Returns whether the client would be shown the same content again.
async fn is_same(session: &Arc<ClientSession>, seen: &SeenList, gathered: &GatheredList) -> bool {
    let lists = session.shared.selection.lists();
    if seen.template.kind == ListKind::Tools
        && (seen.chosen.is_some() != lists.is_some()
            || seen.own_tools != session.shared.listed_own_tools())
    {
        // The strategy changed, or the proxy was paused or resumed.
        return false;
    }
    if let (Some(chosen), Some(lists), Some(catalog)) = (&seen.chosen, lists, &gathered.catalog) {
        let listing = ListComposer {
            client_context: &session.client_context,
            shared: &session.shared,
            era: seen.template.era,
        };
        let row = session.client_context.session_id(&session.shared).await;
        let at = SessionRef {
            row,
            key: session.client_context.session_key(row),
        };
        let now = listing.select_list(lists, at, catalog).await;
        return now.looks_like(chosen);
    }
    gathered.list.version() == seen.list.version()
        || gathered.list.page(0, usize::MAX) == seen.list.page(0, usize::MAX)
}
