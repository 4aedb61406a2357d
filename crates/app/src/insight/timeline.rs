//! What happened in a session, in order.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::SessionId;
use riglm_domain::invocation::{InvocationSummary, ToolSource};
use riglm_domain::list_shown::ListShown;
use riglm_domain::search::Search;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::{InvocationFilter, StoreError};

use super::{Insight, SessionView};

/// How long after the last activity that is stored of a work session there may have been more.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq)]
pub enum TimelineEntry {
    /// A tool was called.
    Call {
        /// The call.
        call: Box<InvocationSummary>,
        /// The list that the client saw did not have the tool, which was called for the first time.
        is_miss: bool,
    },
    /// A list was shown.
    List(Box<ListShown>),
    /// Tools were searched.
    Search(Box<Search>),
}

impl TimelineEntry {
    /// Returns when it happened.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Call { call, .. } => call.invocation.started_at,
            Self::List(list) => list.shown_at,
            Self::Search(search) => search.searched_at,
        }
    }
}

/// What happened in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What happened, the oldest first.
    pub entries: Vec<TimelineEntry>,
    /// The lists that the connections of a work session had been shown when it began, of each the
    /// last one.
    pub held: Vec<ListShown>,
    /// There is more than this, which is older.
    pub is_cut: bool,
}

impl Insight {
    /// Returns what happened in a session: its newest calls, lists and searches, `limit` of each at
    /// most. Lists and searches are recorded by connection: those of a work session are what its
    /// connections had while it lasted.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
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
                let last = work
                    .last_active_at
                    .max(last_call.unwrap_or(work.started_at));
                // The store is told of activity twice a minute.
                let end = last.checked_add(TOLD_WITHIN).unwrap_or(last);
                (calls, connections, Some((work.started_at, end)))
            }
        };
        let mut timeline = Timeline {
            entries: Vec::new(),
            held: Vec::new(),
            is_cut: calls.len() >= limit as usize,
        };
        for connection in connections {
            self.add_of(connection, lasted, limit, &mut timeline)
                .await?;
        }
        let mut used: BTreeSet<ToolRef> = BTreeSet::new();
        for call in calls {
            let tool = ToolRef {
                upstream: call.invocation.upstream.clone(),
                tool: call.invocation.tool.clone(),
            };
            let is_first = used.insert(tool);
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

    /// Adds the lists and searches of a connection, those of a time where one is given.
    async fn add_of(
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
        // They come oldest first.
        let held = lists.iter().rev().find(|list| is_before(list.shown_at));
        timeline.held.extend(held.cloned());
        let entries = &mut timeline.entries;
        let lists = lists.into_iter().filter(|list| is_within(list.shown_at));
        entries.extend(lists.map(|list| TimelineEntry::List(Box::new(list))));
        let searches = searches
            .into_iter()
            .filter(|search| is_within(search.searched_at));
        entries.extend(searches.map(|search| TimelineEntry::Search(Box::new(search))));
        Ok(())
    }
}
