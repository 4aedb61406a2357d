//! Fixtures for tests of this crate and of what stands on it: a proxy over fakes.

use std::sync::Arc;

use riglm_discovery::learning::LivePredictions;
use riglm_discovery::search::{SearchParts, ToolSearch};
use riglm_domain::catalog::naming::NamespacePolicy;
use riglm_domain::id::{RunId, ToolName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::analytics::Journal;
use riglm_ports::clock::Clock as _;
use riglm_ports::fake::{MemoryStore, WordCounter};
use riglm_ports::observer::NoObserver;

use crate::clock::SystemClock;
use crate::limits::Limits;
use crate::proxy::{HintUse, OwnToolNames, OwnToolSet, ProxyParts, Upstream};
use crate::selection::ListFilter;
use crate::tracking::{Recorder, RecorderOptions};

/// Returns a recorder that writes to `journal`, with a fixed key and the default options.
#[must_use]
pub fn recorder(journal: Arc<dyn Journal>) -> Arc<Recorder> {
    recorder_with(journal, RecorderOptions::default())
}

/// Returns a recorder that writes to `journal`, with a fixed key.
#[must_use]
pub fn recorder_with(journal: Arc<dyn Journal>, options: RecorderOptions) -> Arc<Recorder> {
    let run = RunId::new(SystemClock.now(), [0; 10]);
    let hasher = KeyedHasher::new(&[7; 32]);
    let clock = Arc::new(SystemClock);
    Arc::new(Recorder::new(journal, hasher, clock, run, options))
}

/// Returns the parts of a proxy over these upstreams, with the default limits and without optional
/// parts. It records to a store of its own.
#[must_use]
pub fn proxy_parts(upstreams: Vec<Upstream>) -> ProxyParts {
    ProxyParts {
        upstreams,
        naming: NamespacePolicy::Prefix,
        recorder: recorder(Arc::new(MemoryStore::default())),
        filter: ListFilter::default(),
        limits: Limits::default(),
        search: None,
        recommender: None,
        safeguards: None,
        intents: None,
        predictions: LivePredictions::default(),
        work_sessions: None,
        observer: Arc::new(NoObserver),
        tracer: None,
        tools: OwnToolNames::default(),
        unlisted_tools: OwnToolSet::default(),
        hints: HintUse::default(),
        server_memory: None,
    }
}

/// Returns a search by words alone.
#[must_use]
pub fn search_by_words() -> Arc<ToolSearch> {
    let parts = SearchParts::words_only(Arc::new(WordCounter), Arc::new(SystemClock));
    Arc::new(ToolSearch::new(parts))
}

/// Returns the names of own tools: the search tool, and, if `has_others`, the tools for calls and
/// contexts.
#[must_use]
pub fn own_tools(search: Option<&str>, has_others: bool) -> OwnToolNames {
    OwnToolNames {
        search: search.map(ToolName::from),
        call_tool: has_others.then(|| "call_tool".into()),
        set_context: has_others.then(|| "set_context".into()),
        ..OwnToolNames::default()
    }
}
