//! What is remembered of principals, read from the store when it is needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::context::ContextSource;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::ContextId;
use riglm_domain::invocation::{InvocationSummary, Outcome};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::{
    ContextRepository, EmbeddingRepository, InvocationRepository, StoreError, UsageRepository,
};

use super::encoders::Tier;
use super::learning::{Counted, Learning, UseAfterText};

/// How far back calls are counted.
const COUNTED: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How many of the newest texts of a principal are read.
const MAX_TEXTS: u32 = 2_000;

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

/// The memories of all principals.
#[derive(Debug)]
pub(super) struct Memories {
    learning: Mutex<Learning>,
    stores: Option<SearchStores>,
}

impl Memories {
    pub(super) fn new(stores: Option<SearchStores>) -> Self {
        Self {
            learning: Mutex::default(),
            stores,
        }
    }

    pub(super) fn learning(&self) -> MutexGuard<'_, Learning> {
        self.learning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn knows(&self, principal: &Principal) -> bool {
        self.learning().knows(principal)
    }

    /// Reads what the store has of a principal: counts first, then texts, which need the encoders
    /// that made their vectors. A store that fails is asked again at the next search.
    pub(super) async fn load(&self, principal: &Principal, tiers: &[Tier], now: Timestamp) {
        let read = async {
            let Some(stores) = &self.stores else {
                self.learning().load(principal, &Counted::default());
                return Ok(());
            };
            let counted = counted(stores, principal, now).await?;
            self.learning().load(principal, &counted);
            let uses = uses(stores, principal, tiers).await?;
            self.learning().remember(principal, &uses);
            Ok::<_, StoreError>(())
        };
        if let Err(error) = read.await {
            tracing::debug!("what was used before could not be read: {error}");
        }
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

/// Returns the calls that followed searches, oldest first.
async fn uses(
    stores: &SearchStores,
    principal: &Principal,
    tiers: &[Tier],
) -> Result<Vec<UseAfterText>, StoreError> {
    let mut contexts = stores.contexts.contexts_of(principal, MAX_TEXTS).await?;
    contexts.retain(|context| context.source == ContextSource::Search);
    let mut texts: BTreeMap<ContextId, (Embedding, Timestamp)> = BTreeMap::new();
    for context in contexts {
        let Some(embedding) = context.embedding else {
            continue;
        };
        let Some(tier) = tiers.iter().find(|tier| tier.model() == embedding.model()) else {
            continue;
        };
        if let Some(centred) = tier.centred_when_ready(&embedding).await {
            texts.insert(context.id, (centred, context.given_at));
        }
    }
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<ContextId> = texts.keys().copied().collect();
    let calls = stores.invocations.calls_after(&ids).await?;
    let followed = |call: InvocationSummary| {
        let (text, given_at) = texts.get(&call.invocation.context?)?.clone();
        let tool = ToolRef {
            upstream: call.invocation.upstream,
            tool: call.invocation.tool,
        };
        Some(UseAfterText {
            text,
            given_at,
            tool: tool.key(),
            is_ok: call.end?.outcome == Outcome::Ok,
        })
    };
    Ok(calls.into_iter().filter_map(followed).collect())
}
