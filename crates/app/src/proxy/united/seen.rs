//! What the client was shown of each list, so that it is told of changes of that alone, and once.

use std::collections::BTreeSet;
use std::sync::Arc;

use riglm_domain::invocation::CallSession;

use super::directory::UnitedList;
use super::list::{Asked, Gathered};
use super::list_kind::{ChangeKind, ListKind};
use super::template::Template;
use crate::filtering::ShownList;
use crate::proxy::listing::Listing;
use crate::proxy::session::ClientSession;

/// A list as the client saw it.
#[derive(Clone, Debug)]
pub(super) struct SeenList {
    /// The requests by which it was asked for.
    template: Template,
    list: Arc<UnitedList>,
    /// What was chosen of it, where lists are chosen for a client.
    chosen: Option<Arc<ShownList>>,
    /// The client was told that the list is another one since.
    is_told: bool,
}

/// The outcome of looking at lists that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// There was nothing to look at.
    None,
    /// They are what the client saw.
    Same,
    /// One of them is another, of which the client has to be told.
    Other,
}

impl SeenList {
    pub(super) fn new(
        template: &Template,
        list: Arc<UnitedList>,
        chosen: Option<Arc<ShownList>>,
    ) -> Self {
        Self {
            template: template.untraced(),
            list,
            chosen,
            is_told: false,
        }
    }
}

impl ClientSession {
    /// Returns how often a change of a list was noted; see [`Self::note_seen`].
    pub(super) fn n_changes(&self, kind: ListKind) -> u64 {
        let state = self.united.state();
        state
            .n_changes
            .get(&kind.change())
            .copied()
            .unwrap_or_default()
    }

    /// Notes what the client is shown of a list. `n_changes` is how many changes had been noted when
    /// the list was asked for: one that was noted since may not be in it.
    pub(super) fn note_seen(self: &Arc<Self>, kind: ListKind, seen: SeenList, n_changes: u64) {
        {
            let mut state = self.united.state();
            let before = state.seen.insert(kind, seen);
            let is_changing = state.is_changing(kind.change());
            if before.is_some() && is_changing && !self.caller.is_initialized() {
                // Another client of the session may have seen what was there before.
                state.told_anyhow.insert(kind.change());
            }
        }
        if self.n_changes(kind) != n_changes {
            let members = self.members();
            let all: Vec<u64> = members.iter().map(|member| member.number).collect();
            self.changed(kind.change(), &all);
        }
    }

    /// Has the client told of the next change again, since it may have missed the last one: it
    /// opened a stream of notifications.
    pub(super) fn tell_again(&self, kinds: &BTreeSet<ChangeKind>) {
        let mut state = self.united.state();
        for (kind, seen) in &mut state.seen {
            if kinds.contains(&kind.change()) {
                seen.is_told = false;
            }
        }
    }

    /// Returns whether a list is another one than the client saw when it asked last, and notes that
    /// the client is told so; lists that it never asked for are not looked at, nor those of which it
    /// was told already. `members` are asked for their lists again.
    pub(super) async fn look_at_changed(
        self: &Arc<Self>,
        kind: ChangeKind,
        members: &BTreeSet<u64>,
    ) -> Look {
        let mut look = Look::None;
        for list in kind.lists() {
            let seen = self.united.state().seen.get(list).cloned();
            let Some(seen) = seen.filter(|seen| !seen.is_told) else {
                continue;
            };
            let gathered = match self.gather(&seen.template, &Asked::Only(members)).await {
                Ok(gathered) => gathered,
                Err(error) => {
                    tracing::debug!("a changed list cannot be looked at: {}", error.message);
                    continue;
                }
            };
            if self.is_same(&seen, &gathered).await {
                look = look.max(Look::Same);
                continue;
            }
            let mut state = self.united.state();
            // The client may have asked again meanwhile, and seen the change.
            let newest = state.seen.get_mut(list);
            if let Some(newest) = newest.filter(|newest| Arc::ptr_eq(&newest.list, &seen.list)) {
                newest.is_told = true;
                look = Look::Other;
            } else if !self.caller.is_initialized() {
                // Then it was another client of the session that asked.
                look = Look::Other;
            }
        }
        look
    }

    /// Returns whether the client would be shown the same again.
    async fn is_same(self: &Arc<Self>, seen: &SeenList, gathered: &Gathered) -> bool {
        let lists = self.shared.filter.lists();
        if let (Some(chosen), Some(lists), Some(offer)) = (&seen.chosen, lists, &gathered.offer) {
            let listing = Listing {
                caller: &self.caller,
                shared: &self.shared,
                is_modern: seen.template.is_modern,
            };
            let row = self.caller.row(&self.shared).await;
            let session: CallSession = self.caller.together(row);
            let now = listing.chosen(lists, (row, session), offer).await;
            return now.looks_like(chosen);
        }
        gathered.list.version() == seen.list.version()
            || gathered.list.page(0, usize::MAX) == seen.list.page(0, usize::MAX)
    }
}
