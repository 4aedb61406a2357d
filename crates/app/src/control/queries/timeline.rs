//! Timeline of a session.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::invocation::{InvocationSummary, ToolSource};
use riglm_ports::analytics::{InvocationFilter, StoreError};

use super::{Queries, SessionView};

/// The stored last activity of a work session may be too early by at most this much.
const ACTIVITY_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// An event of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum TimelineEntry {
    /// A call of a tool.
    Call {
        /// The call.
        call: Box<InvocationSummary>,
        /// Whether this is the first call of the tool in its work session, and the client's list did
        /// not have it.
        is_miss: bool,
    },
    /// A list shown to the client.
    List(Box<ListShown>),
    /// A search of tools.
    Search(Box<Search>),
}

impl TimelineEntry {
    /// Returns the time of the event.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Call { call, .. } => call.invocation.started_at,
            Self::List(list) => list.shown_at,
            Self::Search(search) => search.searched_at,
        }
    }
}

/// The events of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The events, oldest first. Those of a work session begin with the list that each of its sessions
    /// had when the work session began.
    pub entries: Vec<TimelineEntry>,
    /// Whether older events were left out.
    pub is_cut: bool,
}

impl Timeline {
    /// Returns the newest list among the events.
    fn newest_list(&self) -> Option<&ListShown> {
        self.entries.iter().rev().find_map(|entry| match entry {
            TimelineEntry::List(list) => Some(&**list),
            TimelineEntry::Call { .. } | TimelineEntry::Search(_) => None,
        })
    }

    /// Returns the tools of the default pool that the newest list among the events left out, at most
    /// `limit`, in the order of the pool. Empty without such a list, and if the pool is not recorded.
    #[must_use]
    pub fn hidden_tools(&self, limit: usize) -> Vec<ToolRef> {
        let left_out = self.newest_list().and_then(ListShown::removed_from_pool);
        let left_out = left_out.unwrap_or_default().into_iter();
        left_out.take(limit).cloned().collect()
    }
}

impl Queries {
    /// Returns the newest calls, lists and searches of a session, at most `limit` of each. Lists
    /// and searches are recorded per session. A work session gets the lists and searches of its
    /// sessions during its time, and the lists that were current at its beginning.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn timeline(
        &self,
        session: &SessionView,
        limit: u32,
    ) -> Result<Timeline, StoreError> {
        let (calls, connections, lasted) = match session {
            SessionView::Connection(summary) => {
                let id = summary.session.id;
                let filter = InvocationFilter {
                    session: Some(id),
                    ..InvocationFilter::default()
                };
                let calls = self.store.invocations(&filter, limit).await?;
                (calls, BTreeSet::from([id]), None)
            }
            SessionView::Work(work) => {
                let calls = self.store.calls_of_work(work.id, limit).await?;
                let connections = calls.iter().map(|call| call.invocation.session).collect();
                let last_call = calls.iter().map(|call| call.invocation.started_at).max();
                let last = (work.last_active_at).max(last_call.unwrap_or(work.started_at));
                // The last activity is stored only twice a minute.
                let end = last.checked_add(ACTIVITY_DELAY).unwrap_or(last);
                (calls, connections, Some((work.started_at, end)))
            }
        };
        let mut timeline = Timeline {
            entries: Vec::new(),
            is_cut: calls.len() >= limit as usize,
        };
        for connection in connections {
            self.add_lists_and_searches(connection, lasted, limit, &mut timeline)
                .await?;
        }
        let mut used: BTreeSet<(Option<WorkSessionId>, ToolRef)> = BTreeSet::new();
        for call in calls {
            let tool = ToolRef {
                upstream: call.invocation.upstream.clone(),
                tool: call.invocation.tool.clone(),
            };
            let is_first = used.insert((call.invocation.work_session, tool));
            let is_miss = is_first
                && matches!(
                    call.invocation.source,
                    ToolSource::Found | ToolSource::Hidden
                );
            let call = Box::new(call);
            let entry = TimelineEntry::Call { call, is_miss };
            timeline.entries.push(entry);
        }
        timeline.entries.sort_by_key(TimelineEntry::at);
        Ok(timeline)
    }

    /// Adds the lists and searches of a session, restricted to a period if one is given.
    async fn add_lists_and_searches(
        &self,
        connection: SessionId,
        lasted: Option<(Timestamp, Timestamp)>,
        limit: u32,
        timeline: &mut Timeline,
    ) -> Result<(), StoreError> {
        let lists = self.store.lists_shown(connection, limit).await?;
        let searches = self.store.searches(Some(connection), limit).await?;
        timeline.is_cut |= lists.len().max(searches.len()) >= limit as usize;
        let is_within =
            |at: Timestamp| lasted.is_none_or(|(first, last)| first <= at && at <= last);
        let is_before = |at: Timestamp| lasted.is_some_and(|(first, _)| at < first);
        // The store returns lists oldest first.
        let n_before = lists.iter().filter(|list| is_before(list.shown_at)).count();
        let current_first = lists.into_iter().skip(n_before.saturating_sub(1));
        let lists =
            current_first.filter(|list| is_before(list.shown_at) || is_within(list.shown_at));
        let entries = &mut timeline.entries;
        entries.extend(lists.map(|list| TimelineEntry::List(Box::new(list))));
        let searches = searches
            .into_iter()
            .filter(|search| is_within(search.searched_at));
        entries.extend(searches.map(|search| TimelineEntry::Search(Box::new(search))));
        Ok(())
    }
}
