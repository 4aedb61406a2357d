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
                    tool: None,
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
        let mut is_cut = calls.len() >= limit as usize;
        let is_within =
            |at: Timestamp| lasted.is_none_or(|(first, last)| first <= at && at <= last);
        let mut entries = Vec::new();
        for connection in connections {
            is_cut |= self
                .add_of(connection, &is_within, limit, &mut entries)
                .await?;
        }
        let mut used: BTreeSet<ToolRef> = BTreeSet::new();
        for call in calls {
            let tool = ToolRef {
                upstream: call.invocation.upstream.clone(),
                tool: call.invocation.tool.clone(),
            };
            let is_first = used.insert(tool);
            let is_miss = is_first && call.invocation.source != ToolSource::Shown;
            let call = Box::new(call);
            entries.push(TimelineEntry::Call { call, is_miss });
        }
        entries.sort_by_key(TimelineEntry::at);
        Ok(Timeline { entries, is_cut })
    }

    /// Adds the lists and searches of a connection; returns whether there may be more.
    async fn add_of(
        &self,
        connection: SessionId,
        is_within: &(impl Fn(Timestamp) -> bool + Sync),
        limit: u32,
        entries: &mut Vec<TimelineEntry>,
    ) -> Result<bool, StoreError> {
        let lists = self.store.lists_shown(connection, limit).await?;
        let searches = self.store.searches(Some(connection), limit).await?;
        let is_cut = lists.len().max(searches.len()) >= limit as usize;
        let lists = lists.into_iter().filter(|list| is_within(list.shown_at));
        entries.extend(lists.map(|list| TimelineEntry::List(Box::new(list))));
        let searches = searches
            .into_iter()
            .filter(|search| is_within(search.searched_at));
        entries.extend(searches.map(|search| TimelineEntry::Search(Box::new(search))));
        Ok(is_cut)
    }
}
