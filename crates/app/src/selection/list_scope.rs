//! State of a list, shared by all sessions in its scope.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::WorkSessionId;
use riglm_domain::selection::AdaptiveList;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::ToolSet;
use riglm_ports::analytics::{ChangeFeed, ListRepository, Topic};
use tokio_util::sync::CancellationToken;

use super::rendering::ShownList;

/// The most scopes in memory. The least recently used are dropped; they are read again from the
/// store when needed.
const MAX_SCOPES: usize = 10_000;
/// The most used tools that are kept for each scope.
const MAX_USED: usize = 256;
/// Timeout for reading earlier calls. After a timeout the list is selected without them; the next
/// list asks the store again.
const RECALL_DEADLINE: Duration = Duration::from_millis(500);
/// Interval for polling the epochs of other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Identifies the sessions that share a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScopeKey {
    /// The key of a list that several sessions share.
    Shared(String),
    /// The key of the list of one work session.
    Work(String),
}

impl ScopeKey {
    pub(super) fn as_str(&self) -> &str {
        let (Self::Shared(text) | Self::Work(text)) = self;
        text
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

#[derive(Debug)]
pub(super) struct Scope {
    pub(super) key: ScopeKey,
    /// Held during selection, so that one task at a time selects the list.
    pub(super) deciding: tokio::sync::Mutex<()>,
    pub(super) state: Mutex<ListState>,
}

#[derive(Debug, Default)]
pub(super) struct ListState {
    /// The current epoch, if known. Its `known` tools are moved to the field `known`.
    pub(super) epoch: Option<Arc<ListEpoch>>,
    /// The catalog of the current epoch; many scopes share one.
    pub(super) known: Option<Arc<ToolSet>>,
    /// The version number of the options of the current epoch.
    pub(super) chosen_by: Option<u64>,
    /// The context for which the current epoch was selected, or found to fit.
    pub(super) chosen_for: Option<Arc<str>>,
    /// Whether the current epoch was read from the store.
    pub(super) is_read: bool,
    /// Whether earlier calls were read from the store.
    pub(super) is_recalled: bool,
    /// Time of the last epoch that began because of new tools.
    pub(super) catalog_changed_at: Option<Timestamp>,
    /// Time at which new tools are considered that came too soon after others.
    pub(super) waits_until: Option<Timestamp>,
    /// The used tools with the time of their last call, the latest last.
    pub(super) used: Vec<(ToolRef, Timestamp)>,
    pub(super) n_calls: u64,
    /// Hidden tools that the last search found, until the next call.
    pub(super) sought: Vec<ToolRef>,
    /// Tools to append to the list at the next request.
    pub(super) added: Vec<ToolRef>,
    /// The list of the policy `conformal`, with the id of the catalog of its positions.
    pub(super) steered: Option<([u8; 32], AdaptiveList)>,
    /// Counts the lists of the policy `conformal`.
    pub(super) n_steered: u64,
    /// The last list that was shown.
    pub(super) shown: Option<Arc<ShownList>>,
}

impl ListState {
    /// Stores the current epoch. `offered` is the current catalog; an equal one is shared instead
    /// of copied.
    pub(super) fn set_epoch(
        &mut self,
        mut epoch: ListEpoch,
        offered: Arc<ToolSet>,
    ) -> Arc<ListEpoch> {
        let known = std::mem::replace(&mut epoch.known, ToolSet::new(Vec::new()));
        self.known = Some(if known.id() == offered.id() {
            offered
        } else {
            Arc::new(known)
        });
        let epoch = Arc::new(epoch);
        self.epoch = Some(Arc::clone(&epoch));
        epoch
    }

    /// Returns whether the current epoch fits this context; always true without a context.
    pub(super) fn is_for(&self, context: Option<&Arc<str>>) -> bool {
        context.is_none() || self.chosen_for.as_ref() == context
    }

    /// Adds earlier calls in order of time, before the calls that this process has seen.
    pub(super) fn recall(&mut self, before: impl Iterator<Item = (ToolRef, Timestamp)>) {
        let since = std::mem::take(&mut self.used);
        let n_calls = self.n_calls;
        for (tool, at) in before {
            self.note_use(&tool, at);
        }
        // The store may already have some calls of this process, so they must not count twice.
        self.n_calls = n_calls.max(self.n_calls - n_calls);
        let is_since = |tool: &ToolRef| since.iter().any(|(known, _)| known == tool);
        self.used.retain(|(tool, _)| !is_since(tool));
        let n_over = (self.used.len() + since.len()).saturating_sub(MAX_USED);
        self.used.drain(..n_over.min(self.used.len()));
        self.used.extend(since);
    }

    pub(super) fn note_use(&mut self, tool: &ToolRef, at: Timestamp) {
        self.n_calls += 1;
        self.used.retain(|(known, _)| known != tool);
        if self.used.len() >= MAX_USED {
            self.used.remove(0);
        }
        self.used.push((tool.clone(), at));
    }
}

impl Scope {
    fn new(key: ScopeKey) -> Self {
        Self {
            key,
            deciding: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
        }
    }

    /// Reads the tools that the work session used earlier, in another process or before a restart:
    /// such tools stay in the list. Shared lists are skipped, because they belong to no single work
    /// session.
    pub(super) async fn recall(
        &self,
        activities: &dyn ListRepository,
        work_session: WorkSessionId,
    ) {
        if self.key.is_shared() || self.state.lock().is_recalled {
            return;
        }
        let limit = u32::try_from(MAX_USED).unwrap_or(u32::MAX);
        let asked = activities.list_activity_of(work_session, limit);
        match tokio::time::timeout(RECALL_DEADLINE, asked).await {
            Ok(Ok(activity)) => {
                let mut state = self.state.lock();
                state.is_recalled = true;
                let before = activity.calls.iter();
                state.recall(before.map(|call| (call.tool.clone(), call.at)));
            }
            Ok(Err(error)) => tracing::debug!("failed to read calls of a work session: {error}"),
            Err(_) => tracing::debug!("timeout while reading calls of a work session"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Scopes(Mutex<HashMap<ScopeKey, (Arc<Scope>, Instant)>>);

impl Scopes {
    /// Returns the scope of a key; creates it if it is missing.
    pub(super) fn get(&self, key: ScopeKey) -> Arc<Scope> {
        let mut all = self.0.lock();
        let now = Instant::now();
        if let Some((scope, used_at)) = all.get_mut(&key) {
            *used_at = now;
            return Arc::clone(scope);
        }
        if all.len() >= MAX_SCOPES {
            let mut moments: Vec<Instant> = all.values().map(|(_, used_at)| *used_at).collect();
            // Removing a tenth at once keeps the average cost of a new scope low.
            let tenth = moments.len() / 10;
            let (_, oldest, _) = moments.select_nth_unstable(tenth);
            let oldest = *oldest;
            all.retain(|_, (_, used_at)| *used_at > oldest);
        }
        let scope = Arc::new(Scope::new(key.clone()));
        all.insert(key, (Arc::clone(&scope), now));
        scope
    }

    /// Makes all scopes read their epoch from the store again.
    pub(super) fn read_again(&self) {
        let all = self.0.lock();
        for (scope, _) in all.values() {
            scope.state.lock().is_read = false;
        }
    }

    /// Polls for epochs of other processes until `stop` is cancelled.
    pub(super) async fn keep_watch(&self, changes: &dyn ChangeFeed, stop: &CancellationToken) {
        let mut known = None;
        loop {
            // After an error the next poll reads again.
            if let Ok(revisions) = changes.revisions().await {
                let epochs = Some(Topic::ListEpochs.revision(&revisions));
                if epochs != known {
                    self.read_again();
                    known = epochs;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }
}
