//! What is remembered of principals, read from the store when it is needed.

mod earlier;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use riglm_domain::context::ContextSource;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::{ContextId, SessionId};
use riglm_domain::invocation::InvocationSummary;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{UsageHistory, Variant};
use riglm_domain::tool::{ToolKey, ToolRef};
use riglm_ports::analytics::{
    ContextRepository, EmbeddingRepository, InvocationRepository, StoreError, UsageRepository,
};

use self::earlier::{EarlierSearches, KeptSearch};
use super::encoders::Tier;
use super::learning::{Counted, Lesson, PastSearch, Sessions, UseAfterText, history};
use super::request::ToolCalled;

/// How far back calls are counted.
const COUNTED: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How many of the newest texts of a principal are read.
const MAX_TEXTS: u32 = 2_000;
/// How many principals are remembered at a time; one that comes back is read from the store.
const MAX_PRINCIPALS: usize = 256;
/// After this time what is remembered of a principal is read again: other processes learn too, and
/// what was deleted is to be forgotten.
const READ_ANEW_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The most calls that are noted while the store is being read.
const MAX_MEANWHILE: usize = 1_000;

/// Where what was recorded is read.
#[derive(Clone, Debug)]
pub struct SearchStores {
    /// Vectors of tools.
    pub embeddings: Arc<dyn EmbeddingRepository>,
    /// Counts of calls.
    pub usage: Arc<dyn UsageRepository>,
    /// Texts that were searched for.
    pub contexts: Arc<dyn ContextRepository>,
    /// Calls that followed them.
    pub invocations: Arc<dyn InvocationRepository>,
}

/// What is known of one principal.
#[derive(Debug, Default)]
struct Remembered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None` until the store was read.
    history: Option<Arc<UsageHistory>>,
    read_at: Option<Timestamp>,
    is_reading: bool,
    /// What was searched for before calls that went well.
    earlier: EarlierSearches,
    /// What was learned while the store is being read.
    meanwhile: Vec<Lesson>,
}

impl Remembered {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memories of all principals, each behind a lock of its own: nobody waits for what is done
/// with somebody else's.
#[derive(Debug)]
pub(super) struct Memories {
    principals: Mutex<LruCache<Principal, Arc<Remembered>>>,
    sessions: Sessions,
    stores: Option<SearchStores>,
}

impl Memories {
    pub(super) fn new(stores: Option<SearchStores>) -> Self {
        let n = NonZeroUsize::new(MAX_PRINCIPALS).unwrap_or(NonZeroUsize::MIN);
        Self {
            principals: Mutex::new(LruCache::new(n)),
            sessions: Sessions::default(),
            stores,
        }
    }

    /// Returns whether something is known of a principal, be it that there is nothing.
    pub(super) fn knows(&self, principal: &Principal) -> bool {
        let known = self.known(principal);
        known.is_some_and(|known| known.state().history.is_some())
    }

    /// Returns whether the store is to be read for a principal: it was not, or some time ago, as
    /// what it has changes without this process too. Who is told so reads it.
    pub(super) fn begin_reading(&self, principal: &Principal, now: Timestamp) -> bool {
        let known = {
            let mut principals = self.lock();
            Arc::clone(principals.get_or_insert(principal.clone(), Arc::default))
        };
        let mut state = known.state();
        let is_fresh = state.read_at.is_some_and(|read_at| {
            self.stores.is_none() || now.duration_since(read_at) < READ_ANEW_AFTER
        });
        if is_fresh || state.is_reading {
            return false;
        }
        state.is_reading = true;
        true
    }

    /// Reads what the store has of a principal. A store that fails is asked again at the next
    /// search.
    pub(super) async fn read(&self, principal: &Principal, tiers: &[Tier], now: Timestamp) {
        let read = self.history_of(principal, tiers, now).await;
        let is_stored = self.stores.is_some();
        let Some(known) = self.known(principal) else {
            return;
        };
        let mut state = known.state();
        state.is_reading = false;
        let meanwhile = std::mem::take(&mut state.meanwhile);
        match read {
            Ok((mut history, kept)) => {
                if is_stored {
                    state.earlier.read(kept, now, READ_ANEW_AFTER);
                }
                for lesson in meanwhile {
                    lesson.teach(&mut history);
                }
                state.history = Some(Arc::new(history));
                state.read_at = Some(now);
            }
            Err(error) => {
                tracing::debug!("what was used before could not be read: {error}");
            }
        }
    }

    /// Calls `work` with what is known of a principal, and the tools that the session has used.
    pub(super) fn with_history<T>(
        &self,
        principal: &Principal,
        session: SessionId,
        work: impl FnOnce(Option<&UsageHistory>, &[ToolKey]) -> T,
    ) -> T {
        let tools = self.sessions.tools(principal, session);
        let known = self.known(principal);
        let history = known.and_then(|known| known.state().history.clone());
        work(history.as_deref(), &tools)
    }

    /// Notes what a session searched for.
    pub(super) fn searched(&self, principal: &Principal, session: SessionId, search: PastSearch) {
        self.sessions.searched(principal, session, search);
    }

    /// Returns what a principal searched for earlier, before calls that went well, that is near to a
    /// text with this vector: at most `n` texts, the nearest first.
    pub(super) fn earlier(
        &self,
        principal: &Principal,
        text: &Embedding,
        n: usize,
    ) -> Vec<Variant> {
        let known = self.known(principal);
        known.map_or_else(Vec::new, |known| known.state().earlier.near(text, n))
    }

    /// Learns from a call that ended.
    pub(super) fn called(&self, event: &ToolCalled, now: Timestamp) {
        let lesson = self.sessions.called(event, now);
        // What was not read from the store yet will be, with this call among it.
        let Some(known) = self.known(&event.principal) else {
            return;
        };
        let mut state = known.state();
        if let Some(search) = lesson.success() {
            state.earlier.add(search.clone());
        }
        if let Some(history) = &mut state.history {
            lesson.teach(Arc::make_mut(history));
        }
        if state.is_reading && state.meanwhile.len() < MAX_MEANWHILE {
            state.meanwhile.push(lesson);
        }
    }

    async fn history_of(
        &self,
        principal: &Principal,
        tiers: &[Tier],
        now: Timestamp,
    ) -> Result<(UsageHistory, Vec<KeptSearch>), StoreError> {
        let Some(stores) = &self.stores else {
            let none = UsageHistory::new(UsageHistory::MAX_MEMORIES);
            return Ok((none, Vec::new()));
        };
        let counted = counted(stores, principal, now).await?;
        let uses = uses(stores, principal, tiers).await?;
        let kept = uses.iter().map(KeptSearch::of).collect();
        // Thousands of texts are compared with each other.
        let made = tokio::task::spawn_blocking(move || history(&counted, &uses));
        // The runtime is ending.
        let history = made.await.unwrap_or_else(|_| UsageHistory::new(0));
        Ok((history, kept))
    }

    fn known(&self, principal: &Principal) -> Option<Arc<Remembered>> {
        self.lock().get(principal).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Principal, Arc<Remembered>>> {
        self.principals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn counted(
    stores: &SearchStores,
    principal: &Principal,
    now: Timestamp,
) -> Result<Counted, StoreError> {
    let scope = Some(principal);
    let since = now.checked_sub(COUNTED).unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(Counted {
        frequencies: stores.usage.frequencies(scope, since).await?,
        sessions: stores.usage.sessions_using(scope, None).await?,
        pairs: stores.usage.cooccurrences(scope, None).await?,
    })
}

/// Returns the searches, and the texts by which clients said what they do, with the calls that
/// followed them, oldest first.
async fn uses(
    stores: &SearchStores,
    principal: &Principal,
    tiers: &[Tier],
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
        if let Some(centred) = tier.centred_when_ready(&embedding).await {
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
        if !end.outcome.tells_of_tool() {
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
