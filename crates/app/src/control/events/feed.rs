//! A feed of events for people and programs. A slow follower misses the oldest events, and frequent
//! events are limited in number.

mod rate_limit;
mod session_events;

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::safeguards::limiter::LimitScope;
use riglm_ports::clock::Clock;
use riglm_ports::observer::{
    Event, EventOrigin, ListShownEvent, ModelRequestEvent, Observer, RequestEndedEvent,
    ResourceLimit, ToolCalledEvent,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use self::rate_limit::{EventDecision, EventRateLimit};
use crate::tracking::{OpenSessions, micros};

/// The size of the buffer of a follower.
const MAX_HELD: usize = 4_096;
/// The longest tool name in the feed, in characters.
const MAX_NAME_CHARS: usize = 200;

/// An event in its published form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedEvent {
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The time of the event.
    pub at: Timestamp,
    /// The session and client of the event, as far as it has one.
    #[serde(flatten)]
    pub origin: PublishedOrigin,
    /// The details: an object whose members depend on the type.
    pub data: Value,
}

/// The session and client of an event. Unknown members are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PublishedOrigin {
    /// The connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The work session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// The name that the client declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Keyed hash of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<KeyedHash>,
    /// The principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
}

/// The type of the event that has the number of skipped events.
const SKIPPED: &str = "skipped";

/// The number of events that a slow follower missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedEvents(pub u64);

/// The event feed.
#[derive(Debug)]
pub struct EventFeed {
    sender: broadcast::Sender<Arc<PublishedEvent>>,
    clock: Arc<dyn Clock>,
    pace: EventRateLimit,
    sessions: OnceLock<Arc<OpenSessions>>,
}

impl EventFeed {
    /// Creates a feed without followers.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (sender, _) = broadcast::channel(MAX_HELD);
        Self {
            sender,
            clock,
            pace: EventRateLimit::default(),
            sessions: OnceLock::new(),
        }
    }

    /// Sets the source of identities for sessions. The first call wins.
    pub fn know_sessions(&self, sessions: Arc<OpenSessions>) {
        // An error means that a source is already set, and the first one stays.
        let _ = self.sessions.set(sessions);
    }

    /// Returns the published form of the origin of an event.
    fn origin(&self, origin: &EventOrigin<'_>) -> PublishedOrigin {
        let (connection, work) = (origin.connection, origin.work_session);
        let sessions = self.sessions.get();
        let known = sessions.and_then(|sessions| sessions.find(connection, work));
        let known = known.as_deref();
        let principal = (origin.principal).or(known.map(|known| &known.principal));
        let name = known.map(|known| cut(&known.client_name));
        PublishedOrigin {
            session: connection.or(known.map(|known| known.connection)),
            work_session: work,
            client: name.filter(|name| !name.is_empty()),
            client_id: known.map(|known| known.client),
            principal: principal.cloned(),
        }
    }

    /// Returns a follower of all events from now on.
    #[must_use]
    pub fn follow(&self) -> Follower {
        Follower(self.sender.subscribe())
    }

    /// Returns the number of followers.
    #[must_use]
    pub fn n_followers(&self) -> usize {
        self.sender.receiver_count()
    }
}

/// A follower of the feed.
#[derive(Debug)]
pub struct Follower(broadcast::Receiver<Arc<PublishedEvent>>);

impl Follower {
    /// Waits for the next event; `None` after the end of the proxy.
    ///
    /// Cancellation safe.
    pub async fn next(&mut self) -> Option<Result<Arc<PublishedEvent>, MissedEvents>> {
        match self.0.recv().await {
            Ok(happening) => Some(Ok(happening)),
            Err(RecvError::Lagged(n)) => Some(Err(MissedEvents(n))),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Follower {
    /// Returns the next event in the buffer; `None` if it is empty.
    pub fn waiting(&mut self) -> Option<Result<Arc<PublishedEvent>, MissedEvents>> {
        match self.0.try_recv() {
            Ok(happening) => Some(Ok(happening)),
            Err(TryRecvError::Lagged(n)) => Some(Err(MissedEvents(n))),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Observer for EventFeed {
    fn observe(&self, event: &Event<'_>) {
        self.observe_from(event, &EventOrigin::default());
    }

    fn observe_from(&self, event: &Event<'_>, origin: &EventOrigin<'_>) {
        // Describing an event takes time, which is wasted without followers.
        if self.n_followers() == 0 {
            return;
        }
        let at = self.clock.now();
        // Sending fails only if the last follower has just left.
        let send = |kind, origin, data| {
            let happening = PublishedEvent {
                kind,
                at,
                origin,
                data,
            };
            let _ = self.sender.send(Arc::new(happening));
        };
        let n_skipped = match self.pace.step(at, is_frequent(event)) {
            EventDecision::Skip => return,
            EventDecision::Go { n_skipped } => n_skipped,
        };
        if n_skipped > 0 {
            let of_nobody = PublishedOrigin::default();
            send(SKIPPED, of_nobody, json!({ "skipped": n_skipped }));
        }
        let (kind, data) = describe(event);
        send(kind, self.origin(origin), data);
    }
}

/// Returns whether an event occurs with each request, so that there may be thousands in a second.
fn is_frequent(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::RequestEnded(_)
            | Event::ToolCalled(_)
            | Event::ListShown(_)
            | Event::Searched { .. }
            | Event::SearchCurated
            | Event::SearchExpanded { .. }
            | Event::ModelAsked(_)
            | Event::Recommended { .. }
            | Event::RecommendedCalled { .. }
            | Event::ContextShifted(_)
            | Event::Budget(_)
            | Event::DiminishingReturns(_)
            | Event::CallLimited { .. }
            | Event::LimitReached(ResourceLimit::Requests)
    )
}

/// Returns the type of an event, and its details.
fn describe(event: &Event<'_>) -> (&'static str, Value) {
    match event {
        Event::SessionOpened { transport } => {
            ("session_opened", json!({ "transport": transport.as_str() }))
        }
        Event::SessionIntroduced { transport } => (
            "session_introduced",
            json!({ "transport": transport.as_str() }),
        ),
        Event::SessionClosed { transport } => {
            ("session_closed", json!({ "transport": transport.as_str() }))
        }
        Event::RequestEnded(request) => ("request_ended", of_request(request)),
        Event::ToolCalled(call) => ("tool_called", of_call(call)),
        Event::ToolsSeen { upstream, tools } => (
            "tools_seen",
            json!({ "upstream": upstream, "n_tools": tools.len() }),
        ),
        Event::ListShown(list) => ("list_shown", of_list(list)),
        Event::ListChangeTold => ("list_change_told", json!({})),
        Event::Searched {
            quality,
            n_matches,
            is_repeated,
            took,
        } => (
            "searched",
            json!({
                "quality": quality.as_str(),
                "n_matches": n_matches,
                "is_repeated": is_repeated,
                "took_us": micros(*took),
            }),
        ),
        Event::SearchCurated => ("search_curated", json!({})),
        Event::SearchExpanded {
            n_variants,
            has_helped,
        } => (
            "search_expanded",
            json!({ "n_variants": n_variants, "has_helped": has_helped }),
        ),
        Event::ModelAsked(asked) => ("model_asked", of_model(asked)),
        Event::Recommended {
            quality,
            n_tools,
            is_cached,
            took,
        } => (
            "recommended",
            json!({
                "quality": quality.as_str(),
                "n_tools": n_tools,
                "is_cached": is_cached,
                "took_us": micros(*took),
            }),
        ),
        Event::RecommendationFollowed { place, took } => (
            "recommendation_followed",
            json!({ "place": place, "took_us": micros(*took) }),
        ),
        Event::RecommendedCalled { outcome } => {
            ("recommended_called", json!({ "outcome": outcome.as_str() }))
        }
        Event::ToolRated { stars } => ("tool_rated", json!({ "stars": stars })),
        Event::FeedbackRefused => ("feedback_refused", json!({})),
        Event::BudgetShort => ("budget_short", json!({})),
        Event::Budget(event) => session_events::of_budget(*event),
        Event::DiminishingReturns(event) => session_events::of_searches(event),
        Event::LimitReached(limit) => ("limit_reached", of_limit(limit.as_str(), None)),
        Event::CallLimited { limit, scope } => {
            ("call_limited", of_limit(limit.as_str(), Some(*scope)))
        }
        Event::UpstreamChanged {
            upstream,
            is_available,
        } => (
            "upstream_changed",
            json!({ "upstream": upstream, "is_available": is_available }),
        ),
        Event::ContextShifted(shift) => ("context_shifted", json!({ "cause": shift.as_str() })),
        Event::OverrideChanged => ("override_changed", json!({})),
        Event::ChangeHeld { upstream, tool } => (
            "change_held",
            json!({ "upstream": upstream, "tool": cut(tool.as_str()) }),
        ),
        Event::ConfigChanged { version } => ("config_changed", json!({ "version": version })),
    }
}

fn of_request(request: &RequestEndedEvent<'_>) -> Value {
    json!({
        "method": request.method,
        "upstream": request.upstream,
        "tool": request.tool.map(|tool| cut(tool.as_str())),
        "outcome": request.outcome.as_str(),
        "took_us": micros(request.took),
        "with_upstream_us": request.with_upstream.map(micros),
        "duration_us": micros(request.duration),
    })
}

fn of_call(call: &ToolCalledEvent<'_>) -> Value {
    json!({
        "upstream": call.upstream,
        "tool": cut(call.tool.as_str()),
        "source": call.source.as_str(),
        "is_first_use": call.is_first_use,
    })
}

fn of_list(list: &ListShownEvent<'_>) -> Value {
    json!({
        "policy": list.policy,
        "mode": list.mode.as_str(),
        "n_shown": list.n_shown,
        "n_available": list.n_available,
        "shown_tokens": list.shown_tokens,
        "available_tokens": list.available_tokens,
    })
}

fn of_model(asked: &ModelRequestEvent) -> Value {
    json!({
        "purpose": asked.purpose.as_str(),
        "model": asked.kind.as_str(),
        "outcome": asked.outcome.as_str(),
        "input_tokens": asked.usage.n_input_tokens,
        "output_tokens": asked.usage.n_output_tokens,
        "took_us": micros(asked.took),
    })
}

fn of_limit(limit: &str, scope: Option<LimitScope>) -> Value {
    match scope {
        Some(scope) => json!({ "limit": limit, "scope": scope.as_str() }),
        None => json!({ "limit": limit }),
    }
}

fn cut(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::RunId;
    use riglm_domain::mcp::protocol::{Revision, Transport};
    use riglm_domain::usage::invocation::SessionKey;
    use riglm_domain::usage::session::{ClientInfo, Session};
    use riglm_ports::fake::ManualClock;

    use super::*;

    fn feed() -> EventFeed {
        EventFeed::new(Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)))
    }

    #[tokio::test]
    async fn followers_receive_only_later_events() {
        let feed = feed();
        feed.observe(&Event::OverrideChanged);
        let mut follower = feed.follow();
        feed.observe(&Event::LimitReached(ResourceLimit::Sessions));
        let happening = follower.next().await.unwrap().unwrap();
        let json = serde_json::to_value(&*happening).unwrap();
        let expected = json!({
            "type": "limit_reached",
            "at": "1970-01-01T00:00:00Z",
            "data": { "limit": "sessions" },
        });
        assert_eq!(json, expected);
    }

    #[tokio::test]
    async fn events_carry_the_known_parts_of_their_origin() {
        let session = Session {
            id: SessionId::new(Timestamp::UNIX_EPOCH, [1; 10]),
            run: RunId::new(Timestamp::UNIX_EPOCH, [1; 10]),
            principal: Principal::from_name("alice"),
            client: KeyedHash::from_hex(&"a".repeat(32)).unwrap(),
            client_info: ClientInfo::new("editor", "1.0"),
            protocol: Revision::new(Revision::V2025_11_25),
            transport: Transport::StreamableHttp,
            started_at: Timestamp::UNIX_EPOCH,
            profile: None,
            metadata: std::collections::BTreeMap::new(),
        };
        let work = WorkSessionId::new(Timestamp::UNIX_EPOCH, [2; 10]);
        let sessions = Arc::new(OpenSessions::default());
        let feed = feed();
        feed.know_sessions(Arc::clone(&sessions));
        let mut follower = feed.follow();
        let told = async |follower: &mut Follower, origin: EventOrigin<'_>| {
            feed.observe_from(&Event::ListChangeTold, &origin);
            let happening = follower.next().await.unwrap().unwrap();
            serde_json::to_value(&happening.origin).unwrap()
        };
        sessions.add_session(&session);
        sessions.set_work_session(session.id, work);
        let whole = json!({
            "session": session.id,
            "work_session": work,
            "client": "editor",
            "client_id": session.client,
            "principal": "alice",
        });
        let of_work = EventOrigin::from(SessionKey::Work(work));
        assert_eq!(told(&mut follower, of_work).await, whole);
        assert_eq!(
            told(&mut follower, of_work.with_connection(session.id)).await,
            whole
        );
        let connection = SessionKey::Connection(session.id);
        let mut expected = whole.clone();
        expected.as_object_mut().unwrap().remove("work_session");
        assert_eq!(told(&mut follower, connection.into()).await, expected);
        let bob = Principal::from_name("bob");
        let of_bob = told(&mut follower, EventOrigin::of_principal(&bob)).await;
        assert_eq!(of_bob, json!({ "principal": "bob" }));
        assert_eq!(told(&mut follower, EventOrigin::default()).await, json!({}));
        // After the end of a session only the data of the event itself is known.
        sessions.remove_session(session.id);
        let gone = told(&mut follower, of_work).await;
        assert_eq!(gone, json!({ "work_session": work }));
    }

    #[tokio::test]
    async fn events_over_the_rate_limit_are_skipped_and_counted() {
        let clock = Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH));
        let feed = EventFeed::new(clock.clone());
        let mut follower = feed.follow();
        let call = Event::RecommendedCalled {
            outcome: riglm_domain::usage::invocation::Outcome::Ok,
        };
        let n_told = EventRateLimit::MAX_PER_SECOND;
        for _ in 0..n_told + 7 {
            feed.observe(&call);
        }
        feed.observe(&Event::OverrideChanged);
        clock.advance(std::time::Duration::from_secs(1));
        feed.observe(&call);
        let mut kinds = Vec::new();
        while let Some(next) = follower.waiting() {
            kinds.push(next.unwrap());
        }
        let told = kinds.iter().filter(|one| one.kind == "recommended_called");
        assert_eq!(told.count(), usize::try_from(n_told).unwrap() + 1);
        assert!(kinds.iter().any(|one| one.kind == "override_changed"));
        let skipped: Vec<_> = kinds.iter().filter(|one| one.kind == SKIPPED).collect();
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].data, json!({ "skipped": 7 }));
    }

    #[tokio::test]
    async fn slow_followers_learn_the_number_of_missed_events() {
        let feed = feed();
        let mut follower = feed.follow();
        for _ in 0..MAX_HELD + 10 {
            feed.observe(&Event::ListChangeTold);
        }
        assert_eq!(follower.next().await.unwrap(), Err(MissedEvents(10)));
        assert!(follower.next().await.unwrap().is_ok());
        drop(feed);
        for _ in 1..MAX_HELD {
            assert!(follower.waiting().unwrap().is_ok());
        }
        assert!(follower.waiting().is_none());
        assert!(follower.next().await.is_none());
    }
}
