//! A feed of events for people and programs. A slow follower misses the oldest events, and frequent
//! events are limited in number.

mod rate_limit;

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::clock::Clock;
use riglm_ports::observer::{
    BudgetEvent, DiminishingReturnsEvent, Event, EventOrigin, ListShownEvent, ModelRequestEvent,
    Observer, RequestEndedEvent, ResourceLimit, ToolCalledEvent,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use self::rate_limit::{EventDecision, EventFrequency, EventRateLimit};
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
            Ok(published) => Some(Ok(published)),
            Err(RecvError::Lagged(n)) => Some(Err(MissedEvents(n))),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Follower {
    /// Returns the next event in the buffer; `None` if it is empty.
    pub fn waiting(&mut self) -> Option<Result<Arc<PublishedEvent>, MissedEvents>> {
        match self.0.try_recv() {
            Ok(published) => Some(Ok(published)),
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
            let published = PublishedEvent {
                kind,
                at,
                origin,
                data,
            };
            let _ = self.sender.send(Arc::new(published));
        };
        let n_skipped = match self.pace.step(at, frequency(event)) {
            EventDecision::Skip => return,
            EventDecision::Go { n_skipped } => n_skipped,
        };
        if n_skipped > 0 {
            let of_nobody = PublishedOrigin::default();
            send(SKIPPED, of_nobody, json!({ "skipped": n_skipped }));
        }
        send(event.as_str(), self.origin(origin), details(event));
    }
}

fn frequency(event: &Event<'_>) -> EventFrequency {
    match event {
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
        | Event::LimitReached(ResourceLimit::Requests) => EventFrequency::EachRequest,
        _ => EventFrequency::Rare,
    }
}

/// Returns the details of an event. Its type is the name of the event.
fn details(event: &Event<'_>) -> Value {
    match event {
        Event::SessionOpened { transport }
        | Event::SessionIntroduced { transport }
        | Event::SessionClosed { transport } => json!({ "transport": transport.as_str() }),
        Event::RequestEnded(request) => of_request(request),
        Event::ToolCalled(call) => of_call(call),
        Event::ToolsSeen { upstream, tools } => {
            json!({ "upstream": upstream, "n_tools": tools.len() })
        }
        Event::ListShown(list) => of_list(list),
        Event::Searched {
            quality,
            n_matches,
            is_repeated,
            took,
        } => json!({
            "quality": quality.as_str(),
            "n_matches": n_matches,
            "is_repeated": is_repeated,
            "took_us": micros(*took),
        }),
        Event::SearchExpanded {
            n_variants,
            has_helped,
        } => json!({ "n_variants": n_variants, "has_helped": has_helped }),
        Event::ModelAsked(asked) => of_model(asked),
        Event::Recommended {
            quality,
            n_tools,
            is_cached,
            took,
        } => json!({
            "quality": quality.as_str(),
            "n_tools": n_tools,
            "is_cached": is_cached,
            "took_us": micros(*took),
        }),
        Event::RecommendationFollowed { place, took } => {
            json!({ "place": place, "took_us": micros(*took) })
        }
        Event::RecommendedCalled { outcome } => json!({ "outcome": outcome.as_str() }),
        Event::ToolRated { stars } => json!({ "stars": stars }),
        Event::Budget(event) => of_budget(*event),
        Event::DiminishingReturns(event) => of_searches(event),
        Event::LimitReached(limit) => json!({ "limit": limit.as_str() }),
        Event::CallLimited { limit, scope } => {
            json!({ "limit": limit.as_str(), "scope": scope.as_str() })
        }
        Event::UpstreamChanged {
            upstream,
            is_available,
        } => json!({ "upstream": upstream, "is_available": is_available }),
        Event::ContextShifted(shift) => json!({ "cause": shift.as_str() }),
        Event::ChangeHeld { upstream, tool } => {
            json!({ "upstream": upstream, "tool": cut(tool.as_str()) })
        }
        Event::PauseChanged { is_paused } => json!({ "is_paused": is_paused }),
        Event::ConfigChanged { version } => json!({ "version": version }),
        Event::ListChangeTold
        | Event::SearchCurated
        | Event::FeedbackRefused
        | Event::BudgetShort
        | Event::OverrideChanged => json!({}),
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

fn of_budget(event: BudgetEvent) -> Value {
    match event {
        BudgetEvent::Entered { state } => json!({ "state": state.as_str() }),
        BudgetEvent::Refused => json!({}),
    }
}

fn of_searches(event: &DiminishingReturnsEvent) -> Value {
    match event {
        DiminishingReturnsEvent::Searched(scope) | DiminishingReturnsEvent::Followed(scope) => {
            json!({ "searched": scope.as_str() })
        }
        DiminishingReturnsEvent::Warned { advice, sign } => {
            json!({ "advice": advice.as_str(), "sign": sign })
        }
        DiminishingReturnsEvent::Answered { has_stopped } => json!({ "has_stopped": has_stopped }),
        DiminishingReturnsEvent::SessionOver { n_searches } => json!({ "n_searches": n_searches }),
    }
}

fn cut(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use riglm_domain::id::{RunId, ToolName, UpstreamName};
    use riglm_domain::intent::ContextShift;
    use riglm_domain::mcp::protocol::{Revision, Transport};
    use riglm_domain::retrieval::search::SearchQuality;
    use riglm_domain::safeguards::budget::BudgetState;
    use riglm_domain::safeguards::diminishing_returns::DiminishingAdvice;
    use riglm_domain::safeguards::limiter::LimitScope;
    use riglm_domain::selection::shown::SelectionMode;
    use riglm_domain::usage::invocation::{Outcome, SessionKey, ToolSource};
    use riglm_domain::usage::session::{ClientInfo, Session};
    use riglm_ports::contract::observer::ObserverScene;
    use riglm_ports::fake::ManualClock;
    use riglm_ports::model_call::ModelUsage;
    use riglm_ports::observer::{CallLimit, ModelKind, ModelOutcome, ModelPurpose, SearchScope};

    use super::*;

    fn feed() -> EventFeed {
        EventFeed::new(Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)))
    }

    fn check_published(events: &[(Event<'_>, &str)]) {
        for (event, expected) in events {
            let published = format!("{} {}", event.as_str(), details(event));
            assert_eq!(published, *expected);
        }
    }

    #[test]
    fn published_forms_of_events_of_requests_are_stable() {
        let upstream = &UpstreamName::parse("files").unwrap();
        let tool = &ToolName::from("read");
        let elapsed = Duration::from_micros(1_500);
        check_published(&[
            (
                Event::RequestEnded(RequestEndedEvent {
                    method: "tools/call",
                    upstream: Some(upstream),
                    tool: Some(tool),
                    outcome: Outcome::Ok,
                    took: elapsed,
                    with_upstream: None,
                    duration: elapsed,
                }),
                r#"request_ended {"method":"tools/call","upstream":"files","tool":"read","outcome":"ok","took_us":1500,"with_upstream_us":null,"duration_us":1500}"#,
            ),
            (
                Event::ToolCalled(ToolCalledEvent {
                    upstream,
                    tool,
                    source: ToolSource::Shown,
                    is_first_use: true,
                    predicted_mass: Some(0.5),
                }),
                r#"tool_called {"upstream":"files","tool":"read","source":"shown","is_first_use":true}"#,
            ),
            (
                Event::ToolsSeen {
                    upstream,
                    tools: std::slice::from_ref(tool),
                },
                r#"tools_seen {"upstream":"files","n_tools":1}"#,
            ),
            (
                Event::ListShown(ListShownEvent {
                    policy: "epoch",
                    mode: SelectionMode::Pool,
                    n_shown: 1,
                    n_available: 2,
                    shown_tokens: 3,
                    available_tokens: 4,
                }),
                r#"list_shown {"policy":"epoch","mode":"pool","n_shown":1,"n_available":2,"shown_tokens":3,"available_tokens":4}"#,
            ),
            (Event::ListChangeTold, "list_change_told {}"),
            (Event::BudgetShort, "budget_short {}"),
            (
                Event::LimitReached(ResourceLimit::InFlight),
                r#"limit_reached {"limit":"in_flight"}"#,
            ),
            (
                Event::CallLimited {
                    limit: CallLimit::Rate,
                    scope: LimitScope::Session,
                },
                r#"call_limited {"limit":"rate","scope":"session"}"#,
            ),
        ]);
    }

    #[test]
    fn published_forms_of_events_of_searches_are_stable() {
        let took = Duration::from_micros(1_500);
        let quality = SearchQuality::High;
        check_published(&[
            (
                Event::Searched {
                    quality,
                    n_matches: 3,
                    is_repeated: false,
                    took,
                },
                r#"searched {"quality":"high","n_matches":3,"is_repeated":false,"took_us":1500}"#,
            ),
            (Event::SearchCurated, "search_curated {}"),
            (
                Event::SearchExpanded {
                    n_variants: 2,
                    has_helped: true,
                },
                r#"search_expanded {"n_variants":2,"has_helped":true}"#,
            ),
            (
                Event::ModelAsked(ModelRequestEvent {
                    purpose: ModelPurpose::Expansion,
                    kind: ModelKind::Endpoint,
                    outcome: ModelOutcome::Used,
                    usage: ModelUsage {
                        n_input_tokens: 5,
                        n_output_tokens: 6,
                    },
                    took,
                }),
                r#"model_asked {"purpose":"expansion","model":"endpoint","outcome":"used","input_tokens":5,"output_tokens":6,"took_us":1500}"#,
            ),
            (
                Event::Recommended {
                    quality,
                    n_tools: 4,
                    is_cached: true,
                    took,
                },
                r#"recommended {"quality":"high","n_tools":4,"is_cached":true,"took_us":1500}"#,
            ),
            (
                Event::RecommendationFollowed { place: 0, took },
                r#"recommendation_followed {"place":0,"took_us":1500}"#,
            ),
            (
                Event::RecommendedCalled {
                    outcome: Outcome::Ok,
                },
                r#"recommended_called {"outcome":"ok"}"#,
            ),
            (Event::ToolRated { stars: 5 }, r#"tool_rated {"stars":5}"#),
            (Event::FeedbackRefused, "feedback_refused {}"),
        ]);
    }

    #[test]
    fn published_forms_of_events_of_sessions_and_operators_are_stable() {
        let upstream = &UpstreamName::parse("files").unwrap();
        let tool = &ToolName::from("read");
        let transport = Transport::Stdio;
        let circles = Event::DiminishingReturns;
        check_published(&[
            (
                Event::SessionOpened { transport },
                r#"session_opened {"transport":"stdio"}"#,
            ),
            (
                Event::SessionIntroduced { transport },
                r#"session_introduced {"transport":"stdio"}"#,
            ),
            (
                Event::SessionClosed { transport },
                r#"session_closed {"transport":"stdio"}"#,
            ),
            (
                Event::Budget(BudgetEvent::Entered {
                    state: BudgetState::Suggest,
                }),
                r#"token_budget_entered {"state":"suggest"}"#,
            ),
            (
                Event::Budget(BudgetEvent::Refused),
                "token_budget_refused {}",
            ),
            (
                circles(DiminishingReturnsEvent::Searched(SearchScope::Tools)),
                r#"search_noted {"searched":"tools"}"#,
            ),
            (
                circles(DiminishingReturnsEvent::Followed(SearchScope::Upstream)),
                r#"search_followed {"searched":"upstream"}"#,
            ),
            (
                circles(DiminishingReturnsEvent::Warned {
                    advice: DiminishingAdvice::AskUser,
                    sign: "repeated",
                }),
                r#"circles_warned {"advice":"ask_user","sign":"repeated"}"#,
            ),
            (
                circles(DiminishingReturnsEvent::Answered { has_stopped: true }),
                r#"circles_answered {"has_stopped":true}"#,
            ),
            (
                circles(DiminishingReturnsEvent::SessionOver { n_searches: 7 }),
                r#"searches_over {"n_searches":7}"#,
            ),
            (
                Event::UpstreamChanged {
                    upstream,
                    is_available: false,
                },
                r#"upstream_changed {"upstream":"files","is_available":false}"#,
            ),
            (
                Event::ContextShifted(ContextShift::Declared),
                r#"context_shifted {"cause":"declared"}"#,
            ),
            (Event::OverrideChanged, "override_changed {}"),
            (
                Event::ChangeHeld { upstream, tool },
                r#"change_held {"upstream":"files","tool":"read"}"#,
            ),
            (
                Event::PauseChanged { is_paused: true },
                r#"pause_changed {"is_paused":true}"#,
            ),
            (
                Event::ConfigChanged { version: 8 },
                r#"config_changed {"version":8}"#,
            ),
        ]);
    }

    /// A feed with a follower that does not read.
    #[derive(Debug)]
    struct Followed {
        feed: EventFeed,
        follower: parking_lot::Mutex<Follower>,
    }

    impl Followed {
        fn new() -> Self {
            let feed = feed();
            let follower = parking_lot::Mutex::new(feed.follow());
            Self { feed, follower }
        }
    }

    impl ObserverScene for Followed {
        fn observer(&self) -> &dyn Observer {
            &self.feed
        }

        fn size(&self) -> usize {
            let mut events = 0;
            let mut bytes = 0;
            let mut follower = self.follower.lock();
            while let Some(waiting) = follower.waiting() {
                events += 1;
                bytes += waiting.map_or(0, |event| event.data.to_string().len());
            }
            assert!(events <= MAX_HELD + 1, "{events} events");
            bytes
        }
    }

    riglm_ports::observer_contract!(contract, ready(Box::new(Followed::new())));

    #[tokio::test]
    async fn followers_receive_only_later_events() {
        let feed = feed();
        feed.observe(&Event::OverrideChanged);
        let mut follower = feed.follow();
        feed.observe(&Event::LimitReached(ResourceLimit::Sessions));
        let published = follower.next().await.unwrap().unwrap();
        let json = serde_json::to_value(&*published).unwrap();
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
            let published = follower.next().await.unwrap().unwrap();
            serde_json::to_value(&published.origin).unwrap()
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
            outcome: Outcome::Ok,
        };
        let n_told = EventRateLimit::MAX_PER_SECOND;
        for _ in 0..n_told + 7 {
            feed.observe(&call);
        }
        feed.observe(&Event::OverrideChanged);
        clock.advance(Duration::from_secs(1));
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
