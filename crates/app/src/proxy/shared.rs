//! What the sessions of a proxy have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::invocation::CallSession;
use riglm_domain::naming::Naming;
use riglm_domain::principal::Principal;
use riglm_domain::request_hints::RequestHints;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::observer::{Event, EventOrigin, Limit, Observer};
use riglm_ports::tracer::Tracer;

use super::caller::Caller;
use super::places::{Bounds, Lack, Place, Places, Room, Standing};
use super::relay::list_memory::ListMemory;
use super::search_tool::{Offers, SearchTool};
use super::united::directory::Directories;
use super::upstream_set::UpstreamSet;
use crate::filtering::{ListAsk, ListFilter};
use crate::intent::{IntentSource, Intents};
use crate::learning::NextTools;
use crate::limits::Limits;
use crate::long_work::LongWork;
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
    pub(super) long_work: LongWork,
    /// What sessions could call, made once for all to which the same is listed.
    pub(super) offers: Offers,
    pub(super) directories: Directories,
    /// Is told what happens.
    pub(crate) observer: std::sync::Arc<dyn Observer>,
    /// The places of requests in flight.
    pub(super) places: RequestPlaces,
    /// Several principals may come, so that none of them may have everything.
    pub(super) has_several_principals: AtomicBool,
    /// The proxy is going to end: requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    /// Returns whether somebody asks what a session could call: searches, recommendations, or what
    /// chooses its lists.
    pub(super) fn needs_offers(&self) -> bool {
        self.search_tool.is_some() || self.recommender.is_some() || self.filter.lists().is_some()
    }

    /// Tells who looks on that something happened in a session, or to a principal.
    pub(crate) fn observe_from(&self, event: &Event<'_>, origin: &EventOrigin<'_>) {
        self.observer.observe_from(event, origin);
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
            self.observe_from(&Event::ContextShifted(shift), &session.into());
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

    /// Returns how many of so many places may be taken.
    pub(super) fn bounds(&self, total: usize) -> Bounds {
        let is_shared = self.has_several_principals.load(Ordering::Relaxed);
        Bounds {
            total,
            of_one: if is_shared {
                self.limits().share_of(total)
            } else {
                total
            },
        }
    }

    /// Has searches and long work shared among principals as the limits say.
    pub(super) fn share_work(&self) {
        let of_one = |total| self.bounds(total).of_one;
        if let Some(tool) = &self.search_tool {
            tool.share(of_one);
        }
        if let Some(recommender) = &self.recommender {
            recommender.search().share(of_one);
        }
        self.long_work.share(of_one);
        self.recorder.share(of_one);
    }

    /// Takes a place among the requests in flight, and room for a message of so many bytes. Handshakes
    /// have places of their own, so that who comes is let in however much is called.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which says whose places are taken.
    pub(super) fn take_place(
        &self,
        principal: &Principal,
        method: &str,
        n_bytes: usize,
    ) -> Result<Standing, RpcError> {
        let bounds = self.bounds(self.limits().in_flight);
        let (places, memory) = if is_greeting(method) {
            (&self.places.greetings, &self.places.greeting_bytes)
        } else {
            (&self.places.calls, &self.places.call_bytes)
        };
        let origin = EventOrigin::of_principal(principal);
        let place = places.take(principal, bounds).map_err(|lack| {
            let of_one = bounds.of_one;
            self.too_many(&origin, match lack {
                Lack::Total => TOO_MANY.into(),
                Lack::Share => format!(
                    "too many requests of this principal are in flight: it may have {of_one} at \
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
                Lack::Total => "requests in flight take too much memory (limits.in_flight_bytes); \
                                try again when some have ended"
                    .into(),
                Lack::Share => format!(
                    "requests in flight of this principal take too much memory: they may have \
                     {of_one} bytes at once (limits.in_flight_bytes, limits.principal_share); try \
                     again when some have ended"
                ),
            })
            })?;
        Ok(Standing::new(place, Room::new(room)))
    }

    /// Returns the most bytes of requests in flight: each principal has at least as many as its
    /// largest request.
    fn bounds_of_bytes(&self) -> Bounds {
        let limits = self.limits();
        let largest = limits.request_body_bytes;
        let bounds = self.bounds(limits.in_flight_bytes.max(largest));
        Bounds {
            of_one: bounds.of_one.max(largest),
            ..bounds
        }
    }

    /// Returns the error of a session that has as many requests in flight as one may have.
    pub(super) fn session_is_full(&self, origin: &EventOrigin<'_>) -> RpcError {
        self.too_many(origin, TOO_MANY.into())
    }

    fn too_many(&self, origin: &EventOrigin<'_>, text: String) -> RpcError {
        self.observe_from(&Event::LimitReached(Limit::InFlight), origin);
        RpcError::new(RpcErrorCode::LimitReached, text)
    }

    /// Takes a place for a request whose client is gone; `None` where there is none, so that it
    /// keeps the one it has.
    pub(super) fn background_place(&self, principal: &Principal) -> Option<Place> {
        let bounds = self.bounds(self.limits().in_flight);
        self.places.background.take(principal, bounds).ok()
    }

    /// Takes room for a message of so many bytes that waits for a client.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which says why there is none.
    pub(super) fn room_for(&self, principal: &Principal, n_bytes: usize) -> Result<Room, RpcError> {
        let bounds = self.bounds(self.limits().waiting_bytes);
        let taken = self.places.waiting.take_many(principal, n_bytes, bounds);
        taken.map(Room::new).map_err(|lack| {
            let whose = match lack {
                Lack::Total => "clients",
                Lack::Share => "the clients of this principal",
            };
            let text = format!(
                "the answer was dropped: {whose} leave too much unread (limits.waiting_bytes)"
            );
            RpcError::new(RpcErrorCode::LimitReached, text)
        })
    }

    /// Returns the limits that hold now. What is returned is held for a moment only: not over an
    /// await.
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }
}

/// The places of requests in flight. Of each kind there are as many as the limits allow requests.
#[derive(Debug, Default)]
pub(super) struct RequestPlaces {
    calls: Arc<Places>,
    /// By which clients begin, or see whether anybody is there.
    greetings: Arc<Places>,
    /// Whose client is gone.
    background: Arc<Places>,
    /// Bytes of the messages of requests in flight, those in the background too.
    call_bytes: Arc<Places>,
    /// Bytes of those by which clients begin.
    greeting_bytes: Arc<Places>,
    /// Bytes of messages that wait for their clients.
    waiting: Arc<Places>,
}

impl RequestPlaces {
    /// Returns how many requests have a client that waits for them.
    pub(super) fn n_awaited(&self) -> usize {
        self.calls.n_taken() + self.greetings.n_taken()
    }
}

/// What is said where more requests are in flight than may be.
const TOO_MANY: &str = "too many requests are in flight; try again when some have ended";

/// Returns whether clients begin by a request, or see by it whether anybody is there.
pub(super) fn is_greeting(method: &str) -> bool {
    matches!(method, "initialize" | "server/discover" | "ping")
}

/// Returns the error for what comes after the proxy began to stop.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
