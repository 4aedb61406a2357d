//! Usage histories of principals, read from the store on demand.

mod earlier;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::{ToolKey, ToolRef};
use riglm_domain::id::{ContextId, SessionId};
use riglm_domain::intent::context::ContextSource;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{
    Query, QueryVariant, RankingHistory, RankingRules, SearchHit, ToolIndex, UsageHistory,
};
use riglm_domain::usage::invocation::InvocationSummary;
use riglm_ports::analytics::{
    DiscoveryRepository, EmbeddingRepository, InvocationRepository, StoreError, UsageRepository,
};

use self::earlier::{EarlierSearches, StoredSearch};
use super::encoders::EncoderTier;
use super::learning::{
    CallEvidence, PastSearch, SearchSessions, StoredCounts, UseAfterText, build_history,
};
use super::request::FinishedCall;

/// Calls older than this are not counted.
const COUNT_WINDOW: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Maximum number of texts read per principal, newest first.
const MAX_TEXTS: u32 = 2_000;
/// Histories in memory. An evicted one is read from the store again.
const MAX_PRINCIPALS: usize = 256;
/// A history is read again after this time, because other processes also record calls and because
/// deleted data must disappear.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of calls that are buffered during a read of the store.
const MAX_BUFFERED: usize = 1_000;

/// Repositories of recorded data.
#[derive(Clone, Debug)]
pub struct SearchStores {
    /// Vectors of tools.
    pub embeddings: Arc<dyn EmbeddingRepository>,
    /// Counts of calls.
    pub usage: Arc<dyn UsageRepository>,
    /// Queries.
    pub contexts: Arc<dyn DiscoveryRepository>,
    /// Calls that followed the queries.
    pub invocations: Arc<dyn InvocationRepository>,
}

/// The history of one principal.
#[derive(Debug, Default)]
struct PrincipalMemory(Mutex<MemoryState>);

#[derive(Debug, Default)]
struct MemoryState {
    /// `None` until the first read of the store.
    history: Option<Arc<UsageHistory>>,
    read_at: Option<Timestamp>,
    is_reading: bool,
    /// Queries that led to successful calls.
    earlier: EarlierSearches,
    /// Evidence that arrived during a read of the store.
    meanwhile: Vec<CallEvidence>,
}

impl PrincipalMemory {}

/// Histories of all principals, each with its own lock, so that work on one does not block another.
#[derive(Debug)]
pub(super) struct UsageMemories {
    principals: Mutex<LruCache<Principal, Arc<PrincipalMemory>>>,
    sessions: SearchSessions,
    stores: Option<SearchStores>,
}

impl UsageMemories {
    pub(super) fn new(stores: Option<SearchStores>) -> Self {
        let n = NonZeroUsize::new(MAX_PRINCIPALS).unwrap_or(NonZeroUsize::MIN);
        Self {
            principals: Mutex::new(LruCache::new(n)),
            sessions: SearchSessions::default(),
            stores,
        }
    }

    /// Returns whether the history of a principal was read. The history may be empty.
    pub(super) fn has_history(&self, principal: &Principal) -> bool {
        let known = self.memory_of(principal);
        known.is_some_and(|known| known.0.lock().history.is_some())
    }

    /// Returns whether the store must be read for a principal: it was never read, or too long ago.
    /// The caller that gets `true` has to read it.
    pub(super) fn begin_reading(&self, principal: &Principal, now: Timestamp) -> bool {
        let known = {
            let mut principals = self.principals.lock();
            Arc::clone(principals.get_or_insert(principal.clone(), Arc::default))
        };
        let mut state = known.0.lock();
        let is_fresh = state.read_at.is_some_and(|read_at| {
            self.stores.is_none() || now.duration_since(read_at) < REFRESH_INTERVAL
        });
        if is_fresh || state.is_reading {
            return false;
        }
        state.is_reading = true;
        true
    }

    /// Reads the history of a principal from the store. After an error, the next search tries
    /// again.
    pub(super) async fn read(&self, principal: &Principal, tiers: &[EncoderTier], now: Timestamp) {
        let read = self.load_history(principal, tiers, now).await;
        let is_stored = self.stores.is_some();
        let Some(known) = self.memory_of(principal) else {
            return;
        };
        let mut state = known.0.lock();
        state.is_reading = false;
        let meanwhile = std::mem::take(&mut state.meanwhile);
        match read {
            Ok((mut history, kept)) => {
                if is_stored {
                    state.earlier.synchronize(kept, now, REFRESH_INTERVAL);
                }
                // The result of the read may lack calls that ended during the read.
                for lesson in meanwhile {
                    lesson.add_to(&mut history);
                }
                state.history = Some(Arc::new(history));
                state.read_at = Some(now);
            }
            Err(error) => {
                tracing::debug!("failed to read earlier calls: {error}");
            }
        }
    }

    /// Returns the history of a principal, if it was read.
    pub(super) fn history_of(&self, principal: &Principal) -> Option<Arc<UsageHistory>> {
        let known = self.memory_of(principal)?;
        known.0.lock().history.clone()
    }

    /// Ranks all tools of a catalog with the history of the principal and the tools that the session
    /// has used. The ranking is not truncated, because many tools may be duplicates.
    pub(super) fn rank(
        &self,
        principal: &Principal,
        session: SessionId,
        query: &Query,
        index: &ToolIndex,
        rules: &RankingRules,
        now: Timestamp,
    ) -> Vec<SearchHit> {
        let session_tools = self.sessions.tools(principal, session);
        let history = self.history_of(principal);
        let past = history.as_deref().map(|history| RankingHistory {
            history,
            session_tools: &session_tools,
            now,
            without: None,
        });
        index.rank(query, rules, past, index.tools().len())
    }

    /// Records a search of a session.
    pub(super) fn record_search(
        &self,
        principal: &Principal,
        session: SessionId,
        search: PastSearch,
    ) {
        self.sessions.record_search(principal, session, search);
    }

    /// Returns at most `n` earlier queries of a principal that led to successful calls and are
    /// similar to this vector, the most similar first.
    pub(super) fn earlier_queries(
        &self,
        principal: &Principal,
        text: &Embedding,
        n: usize,
    ) -> Vec<QueryVariant> {
        let known = self.memory_of(principal);
        known.map_or_else(Vec::new, |known| known.0.lock().earlier.nearest(text, n))
    }

    /// Learns from a finished call.
    pub(super) fn record_call(&self, event: &FinishedCall, now: Timestamp) {
        let lesson = self.sessions.record_call(event, now);
        // If the history was not read yet, the later read of the store includes this call.
        let Some(known) = self.memory_of(&event.principal) else {
            return;
        };
        let mut state = known.0.lock();
        if let Some(search) = lesson.success() {
            state.earlier.add(search.clone());
        }
        if let Some(history) = &mut state.history {
            lesson.add_to(Arc::make_mut(history));
        }
        if state.is_reading && state.meanwhile.len() < MAX_BUFFERED {
            state.meanwhile.push(lesson);
        }
    }

    async fn load_history(
        &self,
        principal: &Principal,
        tiers: &[EncoderTier],
        now: Timestamp,
    ) -> Result<(UsageHistory, Vec<StoredSearch>), StoreError> {
        let Some(stores) = &self.stores else {
            let none = UsageHistory::new(UsageHistory::MAX_MEMORIES);
            return Ok((none, Vec::new()));
        };
        let counted = load_counts(stores, principal, now).await?;
        let uses = load_uses(stores, principal, tiers).await?;
        let kept = uses.iter().map(StoredSearch::of).collect();
        // Building the history compares thousands of texts with each other, too long for an async
        // worker.
        let made = tokio::task::spawn_blocking(move || build_history(&counted, &uses));
        // A join error means that the runtime is shutting down.
        let history = made.await.unwrap_or_else(|_| UsageHistory::new(0));
        Ok((history, kept))
    }

    fn memory_of(&self, principal: &Principal) -> Option<Arc<PrincipalMemory>> {
        self.principals.lock().get(principal).cloned()
    }
}

async fn load_counts(
    stores: &SearchStores,
    principal: &Principal,
    now: Timestamp,
) -> Result<StoredCounts, StoreError> {
    let scope = Some(principal);
    let since = now
        .checked_sub(COUNT_WINDOW)
        .unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(StoredCounts {
        frequencies: stores.usage.frequencies(scope, since).await?,
        sessions: stores.usage.sessions_using(scope, None).await?,
        pairs: stores.usage.cooccurrences(scope, None).await?,
    })
}

/// Returns the queries and the context texts of clients, with the calls that followed them, oldest
/// first.
async fn load_uses(
    stores: &SearchStores,
    principal: &Principal,
    tiers: &[EncoderTier],
) -> Result<Vec<UseAfterText>, StoreError> {
    let mut contexts = stores.contexts.contexts_of(principal, MAX_TEXTS).await?;
    let is_told = |source| matches!(source, ContextSource::Search | ContextSource::SetContext);
    contexts.retain(|context| is_told(context.source));
    let mut texts: BTreeMap<ContextId, (Embedding, Timestamp, Option<String>)> = BTreeMap::new();
    for context in contexts {
        let Some(embedding) = context.embedding else {
            continue;
        };
        let Some(tier) = tiers.iter().find(|tier| tier.model() == embedding.model()) else {
            continue;
        };
        if let Some(centred) = tier.subtract_mean_when_ready(&embedding).await {
            texts.insert(context.id, (centred, context.given_at, context.text));
        }
    }
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<ContextId> = texts.keys().copied().collect();
    let calls = stores.invocations.calls_after(&ids).await?;
    let mut by_text: BTreeMap<ContextId, Vec<(ToolKey, bool)>> = BTreeMap::new();
    for InvocationSummary {
        invocation: call,
        end,
        ..
    } in calls
    {
        let (Some(context), Some(end)) = (call.context, end) else {
            continue;
        };
        if !end.outcome.reflects_tool() {
            continue;
        }
        let tool = ToolRef {
            upstream: call.upstream,
            tool: call.tool,
        };
        let used = (tool.key(), end.outcome.is_success());
        by_text.entry(context).or_default().push(used);
    }
    let followed = |(id, (text, given_at, words))| {
        let calls = by_text.remove(&id)?;
        Some(UseAfterText {
            text,
            given_at,
            words,
            calls,
        })
    };
    Ok(texts.into_iter().filter_map(followed).collect())
}
