//! What happens while the proxy works, for who counts it or looks on.

mod work;

use std::fmt;
use std::time::Duration;

use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::intent::ContextShift;
use riglm_domain::invocation::{CallSession, Outcome, ToolSource};
use riglm_domain::list_shown::SelectionMode;
use riglm_domain::principal::Principal;
use riglm_domain::protocol::Transport;
use riglm_domain::safeguard::limiter::LimitScope;
use riglm_domain::search::SearchQuality;

pub use self::work::{BudgetEvent, CirclesEvent, SearchedIn};
use crate::model_call::ModelUsage;

/// Something that happened.
///
/// Names in it come from clients and servers: who keeps them bounds how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A client opened a session.
    SessionOpened {
        /// How it is connected.
        transport: Transport,
    },
    /// The client of a session said who it is, and the session has a row from now on.
    SessionIntroduced {
        /// How it is connected.
        transport: Transport,
    },
    /// A session ended.
    SessionClosed {
        /// How it was connected.
        transport: Transport,
    },
    /// A request of a client came to its end.
    RequestEnded(RequestEnded<'a>),
    /// A tool was called that a list had or left out.
    ToolCalled(ToolCalled<'a>),
    /// An upstream listed tools that were not seen before in this run.
    ToolsSeen {
        /// The upstream.
        upstream: &'a UpstreamName,
        /// Their names.
        tools: &'a [ToolName],
    },
    /// A session was shown another list of tools than before.
    ListShown(ListShownEvent<'a>),
    /// A client was told that its list of tools is another one.
    ListChangeTold,
    /// A search for tools was answered.
    Searched {
        /// How good the answer is.
        quality: SearchQuality,
        /// How many tools it has.
        n_matches: usize,
        /// The same search of the same session was answered before, and that answer given again.
        is_repeated: bool,
        /// How long it took.
        took: Duration,
    },
    /// A search ended early with tools that operators point at.
    SearchCurated,
    /// Other words were tried for a search that little fitted.
    SearchExpanded {
        /// How many wordings.
        n_variants: usize,
        /// The answer was graded better with them.
        has_helped: bool,
    },
    /// A language model was asked about a search, or would have been.
    ModelAsked(ModelAsked),
    /// Tools were recommended for an intent.
    Recommended {
        /// How well they fit.
        quality: SearchQuality,
        /// How many there are.
        n_tools: usize,
        /// The ranking was made before, for the same question.
        is_cached: bool,
        /// How long it took.
        took: Duration,
    },
    /// A tool that was recommended a moment before was called with success, the first one of that
    /// recommendation.
    RecommendationFollowed {
        /// Its place in the recommendation, from 0.
        place: usize,
        /// The time from the recommendation to the end of the call.
        took: Duration,
    },
    /// A tool that was recommended a moment before was called.
    RecommendedCalled {
        /// How the call ended.
        outcome: Outcome,
    },
    /// Somebody rated a tool.
    ToolRated {
        /// From 1 to 5.
        stars: u8,
    },
    /// What somebody said of a tool was not taken, since the tool was not offered to them.
    FeedbackRefused,
    /// A list could not be as long as it was to be, because of its budget of tokens.
    BudgetShort,
    /// Something happened to the token budget of a work session.
    Budget(BudgetEvent),
    /// A work session did something with its searches.
    Circles(CirclesEvent),
    /// Something was refused because there is enough of it already.
    LimitReached(Limit),
    /// A call was not passed on because of a limit that the operator set for tools.
    CallLimited {
        /// The kind of the limit.
        limit: CallLimit,
        /// Who shares it.
        scope: LimitScope,
    },
    /// An upstream became available or unavailable.
    UpstreamChanged {
        /// The upstream.
        upstream: &'a UpstreamName,
        /// Whether it can be reached now.
        is_available: bool,
    },
    /// What a session is doing is something else than before.
    ContextShifted(ContextShift),
    /// An operator decided something about the tools of lists.
    OverrideChanged,
    /// An upstream lists a tool in another way than it was approved, or a new one, and that is held
    /// back.
    ChangeHeld {
        /// The upstream.
        upstream: &'a UpstreamName,
        /// The tool.
        tool: &'a ToolName,
    },
    /// The configuration that holds is another one.
    ConfigChanged {
        /// Counts the configurations of this run.
        version: u64,
    },
}

/// Whose an event is, as far as that is known where it is observed.
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
    /// Returns the origin of an event of a principal, in no session in particular.
    #[must_use]
    pub fn of_principal(principal: &'a Principal) -> Self {
        Self {
            principal: Some(principal),
            ..Self::default()
        }
    }

    /// Returns the origin of an event of a session of a principal.
    #[must_use]
    pub fn of_session(principal: &'a Principal, session: CallSession) -> Self {
        Self {
            principal: Some(principal),
            ..session.into()
        }
    }

    /// Returns the origin with the connection over which it came.
    #[must_use]
    pub fn over(self, connection: SessionId) -> Self {
        Self {
            connection: Some(connection),
            ..self
        }
    }
}

impl From<CallSession> for EventOrigin<'_> {
    fn from(session: CallSession) -> Self {
        let (connection, work_session) = match session {
            CallSession::Connection(id) => (Some(id), None),
            CallSession::Work(id) => (None, Some(id)),
        };
        Self {
            principal: None,
            connection,
            work_session,
        }
    }
}

/// A request of a client at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestEnded<'a> {
    /// The method, as far as it is one of the protocol; else `other`.
    pub method: &'static str,
    /// The upstream that it went to; `None` where the proxy answered, or several upstreams did.
    pub upstream: Option<&'a UpstreamName>,
    /// The tool of a call.
    pub tool: Option<&'a ToolName>,
    /// How it ended.
    pub outcome: Outcome,
    /// From its receipt until its answer was handed to the connection of the client.
    pub took: Duration,
    /// The part of that in which it was with the upstream; `None` where that is not known, because the
    /// proxy asked in its place.
    pub with_upstream: Option<Duration>,
    /// How long the upstream took from the moment at which it had the request: without what came before,
    /// such as connecting to it. Zero where it never had it.
    pub duration: Duration,
}

/// A call, and the list that the client saw when it was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolCalled<'a> {
    /// The upstream.
    pub upstream: &'a UpstreamName,
    /// The tool.
    pub tool: &'a ToolName,
    /// Whether the list had it, or how the client came to know it.
    pub source: ToolSource,
    /// Whether it is the first call of the tool by those who share the list, as far as that is
    /// remembered; false where lists are not chosen by what is learned.
    pub is_first_use: bool,
    /// The probability that the prediction which the list was chosen by gave to its tools together;
    /// `None` where the list was not chosen by one.
    pub predicted_mass: Option<f64>,
}

impl ToolCalled<'_> {
    /// Returns whether the list had the tool.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.source == ToolSource::Shown
    }
}

/// A list as it was shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListShownEvent<'a> {
    /// The name of the policy that chose it.
    pub policy: &'a str,
    /// What it was chosen by.
    pub mode: SelectionMode,
    /// How many tools it has.
    pub n_shown: usize,
    /// How many there are.
    pub n_available: usize,
    /// How many tokens their definitions have.
    pub shown_tokens: u64,
    /// How many the definitions of all have.
    pub available_tokens: u64,
}

/// A question to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelAsked {
    /// What for.
    pub purpose: ModelPurpose,
    /// Whose model it is.
    pub kind: ModelKind,
    /// What came of it.
    pub outcome: ModelOutcome,
    /// What it cost, as far as that is known.
    pub usage: ModelUsage,
    /// How long it took.
    pub took: Duration,
}

/// What a language model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelPurpose {
    /// Other words for a query.
    Expansion,
    /// Another order of what was found.
    Reranking,
}

impl ModelPurpose {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Expansion, Self::Reranking];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expansion => "expansion",
            Self::Reranking => "reranking",
        }
    }
}

/// Whose model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// That of the operator.
    Endpoint,
    /// That of the client.
    Client,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Endpoint, Self::Client];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Client => "client",
        }
    }
}

/// What came of a question to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOutcome {
    /// Its answer changed what was answered, or is tried.
    Used,
    /// Its answer changed nothing.
    Unchanged,
    /// It took too long.
    Late,
    /// It cannot be reached, or fails.
    Unavailable,
    /// It, or who decides over it, does not want to.
    Refused,
    /// It answered with something else than it was asked for.
    Nonsense,
    /// It was not asked, since it failed a short while ago.
    Resting,
    /// It was not asked, since it was asked often enough.
    OverBudget,
}

impl ModelOutcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Used,
        Self::Unchanged,
        Self::Late,
        Self::Unavailable,
        Self::Refused,
        Self::Nonsense,
        Self::Resting,
        Self::OverBudget,
    ];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Unchanged => "unchanged",
            Self::Late => "late",
            Self::Unavailable => "unavailable",
            Self::Refused => "refused",
            Self::Nonsense => "nonsense",
            Self::Resting => "resting",
            Self::OverBudget => "over_budget",
        }
    }
}

/// What there may be only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Sessions, in all or of a principal.
    Sessions,
    /// Requests in flight, in all or of a session.
    InFlight,
    /// Connections to an upstream.
    Connections,
    /// Requests of a principal in a second.
    Requests,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 4] = [
        Self::Sessions,
        Self::InFlight,
        Self::Connections,
        Self::Requests,
    ];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::InFlight => "in_flight",
            Self::Connections => "connections",
            Self::Requests => "requests",
        }
    }
}

/// The kinds of limits that hold calls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallLimit {
    /// How often tools may be called.
    Rate,
    /// How many calls may run at the same time.
    Concurrent,
    /// How many calls may be made before it is said anew what is being done.
    Context,
}

impl CallLimit {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Rate, Self::Concurrent, Self::Context];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Concurrent => "concurrent",
            Self::Context => "context",
        }
    }

    /// Returns who may share a limit of this kind.
    #[must_use]
    pub fn scopes(self) -> &'static [LimitScope] {
        match self {
            Self::Rate | Self::Concurrent => &LimitScope::ALL,
            Self::Context => &[LimitScope::Session],
        }
    }
}

/// Is told what happens.
///
/// It is told on the way of requests: it returns within microseconds, waits for nothing and never
/// fails.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Takes note of something that happened.
    fn observe(&self, event: &Event<'_>);

    /// Takes note of something that happened in a session, or to a principal. Who does not tell these
    /// apart takes note of it as of any other event.
    fn observe_from(&self, event: &Event<'_>, _origin: &EventOrigin<'_>) {
        self.observe(event);
    }
}

/// Takes note of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _event: &Event<'_>) {}
}
