//! The last content of each list that the client was shown. The client is notified only of changes
//! of this content, and only once.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::usage::invocation::SessionKey;

use super::list::{FetchSelection, GatheredList};
use super::list_kind::{ChangeKind, ListKind};
use super::merged_lists::AggregateList;
use super::template::ListTemplate;
use crate::filtering::ShownList;
use crate::proxy::listing::Listing;
use crate::proxy::session::ClientSession;

/// A list in the form that the client was shown.
#[derive(Clone, Debug)]
pub(super) struct SeenList {
    /// The template of the requests that fetched it.
    template: ListTemplate,
    list: Arc<AggregateList>,
    /// The selection from the list, if lists are selected.
    chosen: Option<Arc<ShownList>>,
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
    pub(super) fn new(
        template: &ListTemplate,
        list: Arc<AggregateList>,
        chosen: Option<Arc<ShownList>>,
    ) -> Self {
        Self {
            template: template.without_trace(),
            list,
            chosen,
            is_told: false,
        }
    }
}

impl ClientSession {
    /// Returns the number of registered changes of a list; see [`Self::note_seen`].
    pub(super) fn n_changes(&self, kind: ListKind) -> u64 {
        let state = self.aggregator.state.lock();
        state
            .n_changes
            .get(&kind.change())
            .copied()
            .unwrap_or_default()
    }

    /// Stores the list that the client is shown. `n_changes` is the number of registered changes at
    /// the time of the request. The list may lack changes that were registered later, so it is
    /// checked again.
    pub(super) fn note_seen(self: &Arc<Self>, kind: ListKind, seen: SeenList, n_changes: u64) {
        {
            let mut state = self.aggregator.state.lock();
            let before = state.seen.insert(kind, seen);
            let is_changing = state.is_changing(kind.change());
            if before.is_some() && is_changing && !self.caller.is_initialized() {
                // Another client of the session may have seen the previous content.
                state.told_anyhow.insert(kind.change());
            }
        }
        if self.n_changes(kind) != n_changes {
            let members = self.members();
            let all: Vec<u64> = members.iter().map(|member| member.number).collect();
            self.note_list_change(kind.change(), &all);
        }
    }

    /// Enables the next notification of changes again. The client opened a notification stream, so
    /// it may have missed the last one.
    pub(super) fn reset_notified(&self, kinds: &BTreeSet<ChangeKind>) {
        let mut state = self.aggregator.state.lock();
        for (kind, seen) in &mut state.seen {
            if kinds.contains(&kind.change()) {
                seen.is_told = false;
            }
        }
    }

    /// Returns whether a list differs from the content that the client saw last, and marks the
    /// client as notified. Lists that the client never requested are skipped, and so are lists with
    /// a pending notification. The lists of `members` are fetched again.
    pub(super) async fn check_changed_lists(
        self: &Arc<Self>,
        kind: ChangeKind,
        members: &BTreeSet<u64>,
    ) -> ChangeCheck {
        let mut look = ChangeCheck::None;
        for list in kind.lists() {
            let seen = self.aggregator.state.lock().seen.get(list).cloned();
            let Some(seen) = seen.filter(|seen| !seen.is_told) else {
                continue;
            };
            let gathered = match self
                .gather(&seen.template, &FetchSelection::Only(members))
                .await
            {
                Ok(gathered) => gathered,
                Err(error) => {
                    tracing::debug!("failed to fetch a changed list: {}", error.message);
                    continue;
                }
            };
            if self.is_same(&seen, &gathered).await {
                look = look.max(ChangeCheck::Same);
                continue;
            }
            let mut state = self.aggregator.state.lock();
            // The client may have requested the list in the meantime and seen the change.
            let newest = state.seen.get_mut(list);
            if let Some(newest) = newest.filter(|newest| Arc::ptr_eq(&newest.list, &seen.list)) {
                newest.is_told = true;
                look = ChangeCheck::Other;
            } else if !self.caller.is_initialized() {
                // Without a handshake, the newer request may come from another client of the
                // session.
                look = ChangeCheck::Other;
            }
        }
        look
    }

    /// Returns whether the client would be shown the same content again.
    async fn is_same(self: &Arc<Self>, seen: &SeenList, gathered: &GatheredList) -> bool {
        let lists = self.shared.filter.lists();
        if let (Some(chosen), Some(lists), Some(offer)) = (&seen.chosen, lists, &gathered.offer) {
            let listing = Listing {
                caller: &self.caller,
                shared: &self.shared,
                is_modern: seen.template.is_modern,
            };
            let row = self.caller.row(&self.shared).await;
            let session: SessionKey = self.caller.session_key(row);
            let now = listing.select_list(lists, (row, session), offer).await;
            return now.looks_like(chosen);
        }
        gathered.list.version() == seen.list.version()
            || gathered.list.page(0, usize::MAX) == seen.list.page(0, usize::MAX)
    }
}
