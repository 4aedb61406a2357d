//! What happens while the proxy works, for who counts it or looks on.

use std::fmt;
use std::time::Duration;

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::{Outcome, ToolSource};
use riglm_domain::list_shown::SelectionMode;
use riglm_domain::protocol::Transport;
use riglm_domain::search::SearchQuality;

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
    /// A list could not be as long as it was to be, because of its budget of tokens.
    BudgetShort,
    /// Something was refused because there is enough of it already.
    LimitReached(Limit),
    /// An upstream became available or unavailable.
    UpstreamChanged {
        /// The upstream.
        upstream: &'a UpstreamName,
        /// Whether it can be reached now.
        is_available: bool,
    },
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

/// What there may be only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Sessions, in all or of a principal.
    Sessions,
    /// Requests in flight, in all or of a session.
    InFlight,
    /// Connections to an upstream.
    Connections,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 3] = [Self::Sessions, Self::InFlight, Self::Connections];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::InFlight => "in_flight",
            Self::Connections => "connections",
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
}

/// Takes note of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _event: &Event<'_>) {}
}
