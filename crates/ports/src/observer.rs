//! Events of the running proxy, for metrics and for live observation.

mod work;

use std::fmt;
use std::time::Duration;

use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::intent::ContextShift;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::safeguards::limiter::LimitScope;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::usage::invocation::{Outcome, SessionKey, ToolSource};
use strum::{EnumCount, IntoStaticStr, VariantArray};

pub use self::work::{BudgetEvent, DiminishingReturnsEvent, SearchScope};
use crate::model_call::ModelUsage;

/// An event of the running proxy.
///
/// Names in an event come from clients and servers. An observer that stores them must bound their
/// number.
#[derive(Clone, Copy, Debug, PartialEq, EnumCount, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Event<'a> {
    /// A client opened a session.
    SessionOpened {
        /// The transport of the session.
        transport: Transport,
    },
    /// The client of a session has identified itself, and the session has a row from now on.
    SessionIntroduced {
        /// The transport of the session.
        transport: Transport,
    },
    /// A session ended.
    SessionClosed {
        /// The transport of the session.
        transport: Transport,
    },
    /// A request of a client ended.
    RequestEnded(RequestEndedEvent<'a>),
    /// A client called a tool, which was shown in its list or hidden.
    ToolCalled(ToolCalledEvent<'a>),
    /// An upstream listed tools that are new in this run.
    ToolsSeen {
        /// The name of the upstream.
        upstream: &'a UpstreamName,
        /// The names of the new tools.
        tools: &'a [ToolName],
    },
    /// A session was shown a list of tools that differs from the one before.
    ListShown(ListShownEvent<'a>),
    /// A client was sent a `list_changed` notification for its tools.
    ListChangeTold,
    /// A search for tools was answered.
    Searched {
        /// The quality of the answer.
        quality: SearchQuality,
        /// The number of tools in the answer.
        n_matches: usize,
        /// Whether the answer repeats an earlier answer to the same search of the same session.
        is_repeated: bool,
        /// The duration of the search.
        took: Duration,
    },
    /// A search ended early, because tools that operators pinned or described matched it.
    SearchCurated,
    /// A search with few matches was retried with other words.
    SearchExpanded {
        /// The number of variants of the query.
        n_variants: usize,
        /// Whether the variants improved the grade of the answer.
        has_helped: bool,
    },
    /// A language model got a request about a search, or was skipped.
    ModelAsked(ModelRequestEvent),
    /// Tools were recommended for an intent.
    Recommended {
        /// The quality of the recommendation.
        quality: SearchQuality,
        /// The number of recommended tools.
        n_tools: usize,
        /// Whether the ranking came from the cache.
        is_cached: bool,
        /// The duration of the request.
        took: Duration,
    },
    /// The first tool of a recommendation was called with success, shortly after the
    /// recommendation.
    RecommendationFollowed {
        /// The rank of the tool in the recommendation, from 0.
        place: usize,
        /// The time from the recommendation to the end of the call.
        took: Duration,
    },
    /// A tool was called shortly after it was recommended.
    RecommendedCalled {
        /// The outcome of the call.
        outcome: Outcome,
    },
    /// A user or an agent rated a tool.
    ToolRated {
        /// The rating, from 1 to 5.
        stars: u8,
    },
    /// Feedback on a tool was rejected, because the tool was not offered to its author.
    FeedbackRefused,
    /// A list is shorter than its target size, because of its token budget.
    BudgetShort,
    /// The token budget of a work session changed state or refused a call.
    Budget(BudgetEvent),
    /// An event of the detection of diminishing returns in a work session.
    DiminishingReturns(DiminishingReturnsEvent),
    /// A request was refused because of a resource limit.
    LimitReached(ResourceLimit),
    /// A call was refused because of a limit that the operator set for tools.
    CallLimited {
        /// The kind of the limit.
        limit: CallLimit,
        /// The scope that shares the limit.
        scope: LimitScope,
    },
    /// An upstream became available or unavailable.
    UpstreamChanged {
        /// The name of the upstream.
        upstream: &'a UpstreamName,
        /// Whether the upstream can be reached now.
        is_available: bool,
    },
    /// The context of a session changed.
    ContextShifted(ContextShift),
    /// An operator changed an override.
    OverrideChanged,
    /// An upstream listed a new tool, or a definition other than the approved one, and the change
    /// is held back until it is approved.
    ChangeHeld {
        /// The name of the upstream.
        upstream: &'a UpstreamName,
        /// The name of the tool.
        tool: &'a ToolName,
    },
    /// The proxy was paused or resumed.
    PauseChanged {
        /// Whether it is paused now.
        is_paused: bool,
    },
    /// A changed configuration is in use.
    ConfigChanged {
        /// The number of the configuration in this run.
        version: u64,
    },
}

impl Event<'_> {
    /// Returns the name of the event.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Budget(event) => event.into(),
            Self::DiminishingReturns(event) => event.into(),
            other => other.into(),
        }
    }
}

/// The origin of an event, as far as it is known to the observed part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOrigin<'a> {
    /// The principal.
    pub principal: Option<&'a Principal>,
    /// The connection.
    pub connection: Option<SessionId>,
    /// The work session.
    pub work_session: Option<WorkSessionId>,
}

impl<'a> EventOrigin<'a> {
    /// Returns the origin of an event of a principal that belongs to no session.
    #[must_use]
    pub fn of_principal(principal: &'a Principal) -> Self {
        Self {
            principal: Some(principal),
            ..Self::default()
        }
    }

    /// Returns the origin of an event in a session of a principal.
    #[must_use]
    pub fn of_session(principal: &'a Principal, session: SessionKey) -> Self {
        Self {
            principal: Some(principal),
            ..session.into()
        }
    }

    /// Returns this origin with the connection that the event came over.
    #[must_use]
    pub fn with_connection(self, connection: SessionId) -> Self {
        Self {
            connection: Some(connection),
            ..self
        }
    }
}

impl From<SessionKey> for EventOrigin<'_> {
    fn from(session: SessionKey) -> Self {
        match session {
            SessionKey::Connection(id) => Self::default().with_connection(id),
            SessionKey::Work(id) => Self {
                work_session: Some(id),
                ..Self::default()
            },
        }
    }
}

/// A completed request of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestEndedEvent<'a> {
    /// The method, if it is part of the protocol; otherwise `other`.
    pub method: &'static str,
    /// The upstream of the request; `None` if the proxy or several upstreams answered.
    pub upstream: Option<&'a UpstreamName>,
    /// The tool of a call.
    pub tool: Option<&'a ToolName>,
    /// The outcome of the request.
    pub outcome: Outcome,
    /// The time from receipt of the request until its answer was passed to the connection of the
    /// client.
    pub took: Duration,
    /// The part of `took` during which the request was with the upstream; `None` if it is not
    /// known, because the proxy sent requests of its own instead.
    pub with_upstream: Option<Duration>,
    /// The time that the upstream took, from the moment at which it had the request. Earlier steps,
    /// such as connecting to it, are not included. Zero if the request never reached the upstream.
    pub duration: Duration,
}

/// A call, with the list that the client saw when it made the call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolCalledEvent<'a> {
    /// The upstream.
    pub upstream: &'a UpstreamName,
    /// The tool.
    pub tool: &'a ToolName,
    /// The source from which the client knows the tool: the list, or another one.
    pub source: ToolSource,
    /// Whether this is the first call of the tool in the scope of the list, as far as that is
    /// remembered. False for lists that are not selected by learned state.
    pub is_first_use: bool,
    /// The total probability of the listed tools in the prediction that selected the list; `None`
    /// if a prediction did not select exactly these tools.
    pub predicted_mass: Option<f64>,
}

impl ToolCalledEvent<'_> {
    /// Returns whether the list contained the tool.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.source == ToolSource::Shown
    }
}

/// A list that was sent to a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListShownEvent<'a> {
    /// The name of the list policy.
    pub policy: &'a str,
    /// The selection mode of the list.
    pub mode: SelectionMode,
    /// The number of tools in the list.
    pub n_shown: usize,
    /// The number of tools in the catalog.
    pub n_available: usize,
    /// The number of tokens in the definitions of the list.
    pub shown_tokens: u64,
    /// The number of tokens in all definitions of the catalog.
    pub available_tokens: u64,
}

/// A request to a language model, or a request that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRequestEvent {
    /// The purpose of the request.
    pub purpose: ModelPurpose,
    /// The owner of the model.
    pub kind: ModelKind,
    /// The outcome of the request.
    pub outcome: ModelOutcome,
    /// The tokens used, as far as they are known.
    pub usage: ModelUsage,
    /// The duration of the request.
    pub took: Duration,
}

/// The purpose of a request to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ModelPurpose {
    /// Query expansion: other words for a query.
    Expansion,
    /// Re-ranking: another order of the matches.
    Reranking,
}

impl ModelPurpose {
    /// All purposes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the purpose.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The owner of a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ModelKind {
    /// A model of the operator, behind an HTTP endpoint.
    Endpoint,
    /// A model of the client.
    Client,
}

impl ModelKind {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The outcome of a request to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ModelOutcome {
    /// The answer of the model changed the result, or is being tried.
    Used,
    /// The answer of the model changed nothing.
    Unchanged,
    /// The model exceeded the timeout.
    Late,
    /// The model cannot be reached, or fails.
    Unavailable,
    /// The model, or the person who controls it, refuses the request.
    Refused,
    /// The model answered in an unexpected form.
    Nonsense,
    /// The request was skipped, because the model failed a short while ago (back-off).
    Resting,
    /// The request was skipped, because the budget of requests is used up.
    OverBudget,
}

impl ModelOutcome {
    /// All outcomes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the outcome.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A resource with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ResourceLimit {
    /// Sessions, in total or of a principal.
    Sessions,
    /// Requests in flight, in total or of a session.
    InFlight,
    /// Connections to an upstream.
    Connections,
    /// Requests of a principal per second.
    Requests,
}

impl ResourceLimit {
    /// All limits.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the limit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The kinds of limits on tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CallLimit {
    /// The number of calls in a period.
    Rate,
    /// The number of concurrent calls.
    Concurrent,
    /// The number of calls before the client must declare its context again.
    Context,
}

impl CallLimit {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the scopes that can share a limit of this kind.
    #[must_use]
    pub fn scopes(self) -> &'static [LimitScope] {
        match self {
            Self::Rate | Self::Concurrent => LimitScope::ALL,
            Self::Context => &[LimitScope::Session],
        }
    }
}

/// Receives the events of the proxy, while requests are processed.
///
/// # Promises
///
/// - Every event is taken, with any name and number, with or without an origin.
/// - Events may come from any number of threads at the same time.
/// - An event takes microseconds: an observer does not block.
/// - The names in events take bounded room.
///
/// `contract::observer` has a clause for each.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Records an event.
    fn observe(&self, event: &Event<'_>);

    /// Records an event with its origin. The default implementation ignores the origin.
    fn observe_from(&self, event: &Event<'_>, _origin: &EventOrigin<'_>) {
        self.observe(event);
    }
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _event: &Event<'_>) {}
}
