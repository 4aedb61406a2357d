//! The state that all sessions of a proxy share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use riglm_domain::catalog::naming::NamespacePolicy;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{Event, EventOrigin, Observer, ResourceLimit};
use riglm_ports::tracer::Tracer;

use super::aggregator::merged_lists::MergedListCache;
use super::client_context::ClientContext;
use super::own_tools::{CatalogCache, OwnTools};
use super::page_cache::PageCache;
use super::request_permits::{
    PermitLimits, PermitRefusal, PrincipalPermit, PrincipalPermits, RequestPermit, ReservedMemory,
};
use super::requests::{Handler, InFlightRequest, NotAdded};
use super::upstream_set::UpstreamSet;
use crate::limits::Limits;
use crate::long_work::LongTextWork;
use crate::safeguards::{LimitSubject, Safeguards};
use crate::selection::{ListFilter, ListRequest};
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;
use riglm_discovery::intent::{IntentSource, Intents};
use riglm_discovery::learning::NextTools;
use riglm_discovery::recommend::{Exclusions, Recommender};
use riglm_discovery::search::Catalog;

#[derive(Debug)]
pub(crate) struct SharedState {
    pub(super) upstreams: ArcSwap<UpstreamSet>,
    pub(super) naming: NamespacePolicy,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) filter: ListFilter,
    /// The current limits, which a reload replaces.
    pub(super) limits: ArcSwap<Limits>,
    /// The own tools of the proxy; `None` if the search tool is disabled.
    pub(super) search_tool: Option<Arc<OwnTools>>,
    /// Recommends tools, if enabled.
    pub(super) recommender: Option<Arc<Recommender>>,
    /// Refuse calls or add hints for models, if enabled.
    pub(super) safeguards: Option<Arc<Safeguards>>,
    /// The intents of sessions, if they are used.
    pub(super) intents: Option<Arc<Intents>>,
    /// Predicts next tools from the calls, if learning is enabled.
    pub(super) next_tools: Option<Arc<NextTools>>,
    /// Derives the work session of each request, if enabled.
    pub(super) work_sessions: Option<Arc<WorkSessions>>,
    /// Records spans, if traces are enabled.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) lists: PageCache,
    pub(super) long_work: LongTextWork,
    /// The catalogs of sessions. Sessions with the same list share one catalog.
    pub(super) offers: CatalogCache,
    pub(super) directories: MergedListCache,
    pub(crate) observer: std::sync::Arc<dyn Observer>,
    /// The permits of requests in flight.
    pub(super) places: RequestPermits,
    /// Whether several principals are expected, so that each is limited to its share.
    pub(super) has_several_principals: AtomicBool,
    /// Whether the proxy is shutting down. Requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

impl SharedState {
    /// Returns whether catalogs of sessions are needed: for searches, recommendations or the
    /// selection of lists.
    pub(super) fn needs_catalogs(&self) -> bool {
        self.search_tool.is_some() || self.recommender.is_some() || self.filter.lists().is_some()
    }

    /// Reports an event of a session or principal to the observer.
    pub(crate) fn observe_from(&self, event: &Event<'_>, origin: &EventOrigin<'_>) {
        self.observer.observe_from(event, origin);
    }

    /// Returns the intent that a client stated, if intents are stored.
    pub(crate) fn stated_intent(
        &self,
        row: SessionId,
        session: SessionKey,
        now: Timestamp,
    ) -> Option<StatedIntent> {
        let intents = self.intents.as_ref()?;
        Some(intents.stated_intent(session, row, now))
    }

    /// Stores a text that describes the work of a session. Reports an event if the context changed.
    pub(crate) fn note_intent(
        &self,
        session: SessionKey,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) {
        let intents = self.intents.as_ref();
        if let Some(shift) = intents.and_then(|all| all.note(session, source, text, now)) {
            self.observe_from(&Event::ContextShifted(shift), &session.into());
        }
    }

    /// Passes a tool list that a client was shown to the safeguards. `result` is JSON text.
    pub(super) fn note_shown(
        &self,
        caller: &ClientContext,
        session_key: SessionKey,
        hints: &RequestHints,
        result: &str,
    ) {
        if let Some(safeguards) = &self.safeguards {
            let said = (caller.profile_name(), hints.token_budget);
            safeguards.record_list(session_key, said, result);
        }
    }

    /// Returns the tools of a catalog that the requester cannot use now: tools that the operator
    /// hides, tools of unavailable upstreams, and tools whose call limit is reached.
    pub(crate) fn exclusions(&self, ask: &ListRequest<'_>, offer: &Catalog) -> Exclusions {
        let set = self.upstreams.load();
        let states = set.entries.iter().map(|entry| entry.state());
        let unavailable = states
            .filter(|state| !state.is_available)
            .map(|state| state.name);
        let excluded = self
            .filter
            .lists()
            .map(|lists| lists.excluded_tools(ask, offer));
        let whose = LimitSubject {
            session_key: ask.session,
            principal: ask.principal,
        };
        let limited = (self.safeguards.as_ref())
            .map(|safeguards| safeguards.rate_limited_tools(offer, whose, Instant::now()));
        Exclusions {
            unavailable: unavailable.collect(),
            excluded: excluded.unwrap_or_default(),
            limited: limited.unwrap_or_default(),
        }
    }

    /// Returns the limits for `total` permits.
    pub(super) fn bounds(&self, total: usize) -> PermitLimits {
        let is_shared = self.has_several_principals.load(Ordering::Relaxed);
        PermitLimits {
            total,
            of_one: if is_shared {
                self.limits().share_of(total)
            } else {
                total
            },
        }
    }

    /// Applies the share of one principal to searches and long work.
    pub(super) fn share_work(&self) {
        let of_one = |total| self.bounds(total).of_one;
        if let Some(tool) = &self.search_tool {
            tool.share(of_one);
        }
        if let Some(recommender) = &self.recommender {
            recommender.search().limit_per_principal(of_one);
        }
        self.long_work.share(of_one);
        self.recorder.share(of_one);
    }

    /// Registers a request of a client as in flight.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal: the proxy is shutting down, the id is in flight, or a limit
    /// is reached.
    pub(super) fn admit(
        &self,
        caller: &ClientContext,
        request: &NewRequest<'_>,
        handler: Handler,
    ) -> Result<(), RpcError> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let limit = self.limits().in_flight_per_session;
        let added = caller.requests.add(request.id, |n_counted| {
            let n_counted = n_counted + request.n_unanswered;
            if !is_handshake_method(request.method) && n_counted >= limit {
                return Err(self.session_is_full(&caller.origin()));
            }
            Ok(InFlightRequest {
                handler,
                permit: self.take_permit(&caller.principal, request.method, request.n_bytes)?,
                is_stream: request.method == "subscriptions/listen",
            })
        });
        added.map_err(|refused| match refused {
            NotAdded::Duplicate => RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is already in flight",
            ),
            NotAdded::NoPermit(error) => error,
        })
    }

    /// Takes a permit for a request in flight and reserves `n_bytes` of memory for its message.
    /// Handshakes have separate permits, so that new clients are admitted under any load of calls.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which names the limit that was reached.
    fn take_permit(
        &self,
        principal: &Principal,
        method: &str,
        n_bytes: usize,
    ) -> Result<RequestPermit, RpcError> {
        let bounds = self.bounds(self.limits().in_flight);
        let (places, memory) = if is_handshake_method(method) {
            (&self.places.greetings, &self.places.greeting_bytes)
        } else {
            (&self.places.calls, &self.places.call_bytes)
        };
        let origin = EventOrigin::of_principal(principal);
        let place = places.take(principal, bounds).map_err(|lack| {
            let of_one = bounds.of_one;
            self.too_many(&origin, match lack {
                PermitRefusal::Total => TOO_MANY.into(),
                PermitRefusal::Share => format!(
                    "too many requests of this principal are in flight: the limit is {of_one} at \
                     once (limits.principal_share); try again when some have ended"
                ),
            })
        })?;
        let bounds = self.bounds_of_bytes();
        let room = memory
            .take_many(principal, n_bytes, bounds)
            .map_err(|lack| {
                let of_one = bounds.of_one;
                self.too_many(&origin, match lack {
                PermitRefusal::Total => "requests in flight use too much memory \
                                         (limits.in_flight_bytes); try again when some have ended"
                    .into(),
                PermitRefusal::Share => format!(
                    "requests in flight of this principal use too much memory: the limit is \
                     {of_one} bytes (limits.in_flight_bytes, limits.principal_share); try \
                     again when some have ended"
                ),
            })
            })?;
        Ok(RequestPermit::new(place, ReservedMemory::new(room)))
    }

    /// Returns the limits in bytes for requests in flight. Each principal may at least send one
    /// request of the maximum size.
    fn bounds_of_bytes(&self) -> PermitLimits {
        let limits = self.limits();
        let largest = limits.request_body_bytes;
        let bounds = self.bounds(limits.in_flight_bytes.max(largest));
        PermitLimits {
            of_one: bounds.of_one.max(largest),
            ..bounds
        }
    }

    /// Returns the error of a session that reached its limit of requests in flight.
    fn session_is_full(&self, origin: &EventOrigin<'_>) -> RpcError {
        self.too_many(origin, TOO_MANY.into())
    }

    fn too_many(&self, origin: &EventOrigin<'_>, text: String) -> RpcError {
        self.observe_from(&Event::LimitReached(ResourceLimit::InFlight), origin);
        RpcError::new(RpcErrorCode::LimitReached, text)
    }

    /// Takes a permit for a request whose client is gone. Returns `None` if none is free. The
    /// request then keeps its present permit.
    pub(super) fn background_permit(&self, principal: &Principal) -> Option<PrincipalPermit> {
        let bounds = self.bounds(self.limits().in_flight);
        self.places.background.take(principal, bounds).ok()
    }

    /// Reserves memory for a message of `n_bytes` that waits for a client.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which names the limit that was reached.
    pub(super) fn reserve_memory(
        &self,
        principal: &Principal,
        n_bytes: usize,
    ) -> Result<ReservedMemory, RpcError> {
        let bounds = self.bounds(self.limits().waiting_bytes);
        let taken = self.places.waiting.take_many(principal, n_bytes, bounds);
        taken.map(ReservedMemory::new).map_err(|lack| {
            let whose = match lack {
                PermitRefusal::Total => "clients",
                PermitRefusal::Share => "the clients of this principal",
            };
            let text =
                format!("answer dropped: too many unread bytes of {whose} (limits.waiting_bytes)");
            RpcError::new(RpcErrorCode::LimitReached, text)
        })
    }

    /// Returns the current limits. Do not hold the guard over an await.
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }
}

/// A request of the client that is to be registered as in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRequest<'a> {
    pub(super) id: &'a RequestId,
    pub(super) method: &'a str,
    /// The size of its message in bytes.
    pub(super) n_bytes: usize,
    /// The number of cancelled requests of the session whose late answer may still arrive. They
    /// count towards the limit of the session.
    pub(super) n_unanswered: usize,
}

/// The permits of requests in flight. Each kind has as many permits as the limits allow requests.
#[derive(Debug, Default)]
pub(super) struct RequestPermits {
    calls: Arc<PrincipalPermits>,
    /// Requests that start a session or check whether the server responds.
    greetings: Arc<PrincipalPermits>,
    /// Requests whose client is gone.
    background: Arc<PrincipalPermits>,
    /// The bytes of requests in flight, including those in the background.
    call_bytes: Arc<PrincipalPermits>,
    /// The bytes of requests that count as `greetings`.
    greeting_bytes: Arc<PrincipalPermits>,
    /// The bytes of messages that wait for their clients.
    waiting: Arc<PrincipalPermits>,
}

impl RequestPermits {
    /// Returns the number of requests whose client waits for the answer.
    pub(super) fn n_awaited(&self) -> usize {
        self.calls.n_taken() + self.greetings.n_taken()
    }
}

/// The error text for too many requests in flight.
const TOO_MANY: &str = "too many requests are in flight; try again when some have ended";

/// Returns whether a request starts a session or checks whether the server responds.
fn is_handshake_method(method: &str) -> bool {
    matches!(method, "initialize" | "server/discover" | "ping")
}

/// Returns the error for requests after the shutdown began.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
