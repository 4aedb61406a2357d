//! The clauses of [`Observer`].

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::intent::ContextShift;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::safeguards::budget::BudgetState;
use riglm_domain::safeguards::diminishing_returns::DiminishingAdvice;
use riglm_domain::safeguards::limiter::LimitScope;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::usage::invocation::{Outcome, ToolSource};
use strum::EnumCount as _;

use super::scene::moment;
use crate::model_call::ModelUsage;
use crate::observer::{
    BudgetEvent, CallLimit, DiminishingReturnsEvent, Event, EventOrigin, ListShownEvent, ModelKind,
    ModelOutcome, ModelPurpose, ModelRequestEvent, Observer, RequestEndedEvent, ResourceLimit,
    SearchScope, ToolCalledEvent,
};

/// An observer, and what it stores.
pub trait ObserverScene: Send + Sync + fmt::Debug {
    /// Returns the observer.
    fn observer(&self) -> &dyn Observer;

    /// Returns the size of everything that the observer stores, in units of its own, such as bytes
    /// of text. An observer that stores nothing returns 0.
    fn size(&self) -> usize;

    /// Returns the number of events that the observer has recorded, if it records all of them.
    fn n_recorded(&self) -> Option<usize> {
        None
    }
}

/// Expands to a module with one `tokio::test` for each clause of an observer.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to an
/// [`ObserverScene`](crate::contract::observer::ObserverScene).
#[macro_export]
macro_rules! observer_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(observer [$(#[$attribute])*] $fresh;
                every_event_is_taken_with_and_without_its_origin,
                events_come_from_any_number_of_threads,
                an_event_takes_microseconds,
                names_of_events_take_bounded_room,
            );
        }
    };
}

/// Passes one event of each kind to `take`. Numbers and names are as large as they can be.
fn each_event(name: &str, take: &mut dyn FnMut(&Event<'_>)) {
    let upstream = &UpstreamName::parse("files").unwrap();
    let tool = &ToolName::from(name);
    let mut events = events_of_requests(upstream, tool).to_vec();
    events.extend(other_events(upstream, tool));
    let kinds: HashSet<_> = events.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), Event::COUNT, "an event is missing here");
    for event in &events {
        take(event);
    }
}

fn events_of_requests<'a>(upstream: &'a UpstreamName, tool: &'a ToolName) -> [Event<'a>; 16] {
    let quality = SearchQuality::Low;
    let longest = Duration::MAX;
    let transport = Transport::StreamableHttp;
    [
        Event::SessionOpened { transport },
        Event::SessionIntroduced { transport },
        Event::SessionClosed { transport },
        Event::RequestEnded(RequestEndedEvent {
            method: "tools/call",
            upstream: Some(upstream),
            tool: Some(tool),
            outcome: Outcome::Unknown,
            took: longest,
            with_upstream: Some(longest),
            duration: longest,
        }),
        Event::ToolCalled(ToolCalledEvent {
            upstream,
            tool,
            source: ToolSource::Hidden,
            is_first_use: true,
            predicted_mass: Some(f64::NAN),
        }),
        Event::ToolsSeen {
            upstream,
            tools: std::slice::from_ref(tool),
        },
        Event::ListShown(ListShownEvent {
            policy: "epoch",
            mode: SelectionMode::Pool,
            n_shown: usize::MAX,
            n_available: 0,
            shown_tokens: u64::MAX,
            available_tokens: 0,
        }),
        Event::ListChangeTold,
        Event::Searched {
            quality,
            n_matches: usize::MAX,
            is_repeated: true,
            took: longest,
        },
        Event::SearchCurated,
        Event::SearchExpanded {
            n_variants: usize::MAX,
            has_helped: true,
        },
        Event::ModelAsked(ModelRequestEvent {
            purpose: ModelPurpose::Expansion,
            kind: ModelKind::Client,
            outcome: ModelOutcome::Nonsense,
            usage: ModelUsage {
                n_input_tokens: u64::MAX,
                n_output_tokens: u64::MAX,
            },
            took: longest,
        }),
        Event::Recommended {
            quality,
            n_tools: usize::MAX,
            is_cached: true,
            took: longest,
        },
        Event::RecommendationFollowed {
            place: usize::MAX,
            took: longest,
        },
        Event::RecommendedCalled {
            outcome: Outcome::Unknown,
        },
        Event::ToolRated { stars: u8::MAX },
    ]
}

fn other_events<'a>(upstream: &'a UpstreamName, tool: &'a ToolName) -> [Event<'a>; 17] {
    [
        Event::FeedbackRefused,
        Event::BudgetShort,
        Event::Budget(BudgetEvent::Entered {
            state: BudgetState::Suggest,
        }),
        Event::Budget(BudgetEvent::Refused),
        Event::DiminishingReturns(DiminishingReturnsEvent::Searched(SearchScope::Tools)),
        Event::DiminishingReturns(DiminishingReturnsEvent::Followed(SearchScope::Upstream)),
        Event::DiminishingReturns(DiminishingReturnsEvent::Warned {
            advice: DiminishingAdvice::AskUser,
            sign: "repeated",
        }),
        Event::DiminishingReturns(DiminishingReturnsEvent::Answered { has_stopped: true }),
        Event::DiminishingReturns(DiminishingReturnsEvent::SessionOver {
            n_searches: u64::MAX,
        }),
        Event::LimitReached(ResourceLimit::InFlight),
        Event::CallLimited {
            limit: CallLimit::Rate,
            scope: LimitScope::Session,
        },
        Event::UpstreamChanged {
            upstream,
            is_available: false,
        },
        Event::ContextShifted(ContextShift::Declared),
        Event::OverrideChanged,
        Event::PauseChanged { is_paused: true },
        Event::ChangeHeld { upstream, tool },
        Event::ConfigChanged { version: u64::MAX },
    ]
}

fn n_each() -> usize {
    let mut n = 0;
    each_event("read", &mut |_| n += 1);
    n
}

/// An observer takes every event, with any name and number, with or without an origin.
pub async fn every_event_is_taken_with_and_without_its_origin(scene: &impl ObserverScene) {
    let principal = Principal::from_name("alice");
    let connection = SessionId::new(moment(1), [1; 10]);
    let work = WorkSessionId::new(moment(1), [2; 10]);
    let observer = scene.observer();
    let long = "é".repeat(100_000);
    let names = ["read", "", "a\u{0}\"\n{}", &long];
    for name in names {
        each_event(name, &mut |event| {
            observer.observe(event);
            observer.observe_from(event, &EventOrigin::default());
            observer.observe_from(event, &EventOrigin::of_principal(&principal));
            let whole = EventOrigin {
                principal: Some(&principal),
                connection: Some(connection),
                work_session: Some(work),
            };
            observer.observe_from(event, &whole);
        });
    }
    if let Some(n_recorded) = scene.n_recorded() {
        assert_eq!(n_recorded, names.len() * n_each() * 4);
    }
}

/// Events may come from any number of threads at the same time.
pub async fn events_come_from_any_number_of_threads(scene: &impl ObserverScene) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20;
    let observer = scene.observer();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    each_event("read", &mut |event| observer.observe(event));
                }
            });
        }
    });
    if let Some(n_recorded) = scene.n_recorded() {
        assert_eq!(n_recorded, THREADS * ROUNDS * n_each());
    }
}

/// An event takes microseconds: an observer neither blocks nor does much work. The limit is
/// generous, for a busy machine and a build without optimization.
pub async fn an_event_takes_microseconds(scene: &impl ObserverScene) {
    const ROUNDS: usize = 100;
    let observer = scene.observer();
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        each_event("read", &mut |event| observer.observe(event));
    }
    let n_events = u32::try_from(ROUNDS * n_each()).unwrap();
    let each = started.elapsed() / n_events;
    assert!(each < Duration::from_millis(1), "{each:?} for each event");
}

/// The names in events take bounded room: after 5,000 of them, 5,000 more take almost none.
pub async fn names_of_events_take_bounded_room(scene: &impl ObserverScene) {
    let observer = scene.observer();
    let fill = |from: usize| {
        for n in from..from + 5_000 {
            let name = format!("tool_{n:08}");
            each_event(&name, &mut |event| observer.observe(event));
        }
        scene.size()
    };
    let first = fill(0);
    let second = fill(5_000);
    assert!(second <= first + first / 10, "{first} and then {second}");
}
