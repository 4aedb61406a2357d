//! What the sessions of a proxy have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::invocation::CallSession;
use riglm_domain::naming::Naming;
use riglm_domain::request_hints::RequestHints;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::observer::{Event, Observer};
use riglm_ports::tracer::Tracer;

use super::caller::Caller;
use super::relay::list_memory::ListMemory;
use super::search_tool::{Offers, SearchTool};
use super::united::directory::Directories;
use super::upstream_set::UpstreamSet;
use crate::filtering::{ListAsk, ListFilter};
use crate::intent::{IntentSource, Intents};
use crate::learning::NextTools;
use crate::limits::Limits;
use crate::recommend::{Hindrances, Recommender};
use crate::safeguards::{Safeguards, Whose};
use crate::search::Offer;
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) upstreams: ArcSwap<UpstreamSet>,
    pub(super) naming: Naming,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) filter: ListFilter,
    /// The limits that hold; they may change at any time.
    pub(super) limits: ArcSwap<Limits>,
    /// The tool for searching, where there is one.
    pub(super) search_tool: Option<Arc<SearchTool>>,
    /// Recommends tools, where that is wanted.
    pub(super) recommender: Option<Arc<Recommender>>,
    /// Hold calls back, or tell models something, where that is wanted.
    pub(super) safeguards: Option<Arc<Safeguards>>,
    /// What sessions are doing, where that is of use.
    pub(super) intents: Option<Arc<Intents>>,
    /// Told of each call, where calls are learned from.
    pub(super) next_tools: Option<Arc<NextTools>>,
    /// Finds the work session of each request, where they are derived.
    pub(super) work_sessions: Option<Arc<WorkSessions>>,
    /// Records spans, where traces are wanted.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) lists: ListMemory,
    /// What sessions could call, made once for all to which the same is listed.
    pub(super) offers: Offers,
    pub(super) directories: Directories,
    /// Is told what happens.
    pub(crate) observer: std::sync::Arc<dyn Observer>,
    /// Requests in flight in all sessions.
    pub(crate) n_in_flight: AtomicUsize,
    /// The proxy is going to end: requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    /// Tells who looks on that something happened.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// Returns what a client said of what it does, as far as that is noted.
    pub(crate) fn stated(
        &self,
        row: SessionId,
        session: CallSession,
        now: Timestamp,
    ) -> Option<StatedIntent> {
        let intents = self.intents.as_ref()?;
        Some(intents.stated(session, row, now))
    }

    /// Notes a text that says what a session is doing, and tells of it where that is something else
    /// than before.
    pub(crate) fn note_intent(
        &self,
        session: CallSession,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) {
        let intents = self.intents.as_ref();
        if let Some(shift) = intents.and_then(|all| all.note(session, source, text, now)) {
            self.observe(&Event::ContextShifted(shift));
        }
    }

    /// Has the safeguards note a list of tools that a caller was shown, a result as JSON text.
    pub(super) fn note_shown(
        &self,
        caller: &Caller,
        (together, hints): (CallSession, &RequestHints),
        result: &str,
    ) {
        if let Some(safeguards) = &self.safeguards {
            let said = (caller.profile_name(), hints.token_budget);
            safeguards.listed(together, said, result);
        }
    }

    /// Returns what of an offer cannot be used now by who asks: what the operator hides from them, the
    /// tools of upstreams that cannot be reached, and those that they called as often as they may.
    pub(crate) fn hindrances(&self, ask: &ListAsk<'_>, offer: &Offer) -> Hindrances {
        let set = self.upstreams.load();
        let states = set.entries.iter().map(|entry| entry.state());
        let unavailable = states
            .filter(|state| !state.is_available)
            .map(|state| state.name);
        let excluded = self
            .filter
            .lists()
            .map(|lists| lists.excluded_of(ask, offer));
        let whose = Whose {
            together: ask.session,
            principal: ask.principal,
        };
        let limited = (self.safeguards.as_ref())
            .map(|safeguards| safeguards.limited(offer, whose, Instant::now()));
        Hindrances {
            unavailable: unavailable.collect(),
            excluded: excluded.unwrap_or_default(),
            limited: limited.unwrap_or_default(),
        }
    }

    /// Returns the limits that hold now. What is returned is held for a moment only: not over an
    /// await.
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }
}

/// Returns the error for what comes after the proxy began to stop.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
