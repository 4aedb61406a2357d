//! A call as the safeguards see it.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::intent::StatedIntent;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

use crate::search::{Offer, OfferedTool};

/// What a tool of the proxy itself is to the safeguards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnKind {
    /// It finds tools.
    Search,
    /// It says what is being done from now on.
    Context,
    /// Anything else.
    Other,
}

/// Who calls, as far as it has to be looked up; asked only of calls that are held back.
pub(crate) trait Asker: std::fmt::Debug + Send + Sync {
    /// Returns the keyed hash of the client, as in its session.
    fn client_hash(&self) -> KeyedHash;

    /// Returns the connection over which it calls.
    fn connection(&self) -> SessionId;

    /// Returns what the client itself said of what is being done.
    fn stated(&self) -> Option<StatedIntent>;
}

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedCall<'a> {
    /// What it belongs to.
    pub(crate) together: CallSession,
    /// Who calls.
    pub(crate) principal: &'a Principal,
    /// The same, where what may be called depends on it.
    pub(crate) asker: Option<&'a dyn Asker>,
    /// The profile under which the client is connected.
    pub(crate) profile: Option<&'a str>,
    /// The upstream of the tool; `None` for a tool of the proxy itself.
    pub(crate) upstream: Option<&'a UpstreamName>,
    /// Equal as long as the upstream is reached in the same way, with the same credentials.
    pub(crate) fingerprint: &'a str,
    /// The tool, by the name that its upstream knows.
    pub(crate) tool: &'a ToolName,
    /// What it is, where it is a tool of the proxy itself.
    pub(crate) own: Option<OwnKind>,
    /// The JSON text of its arguments.
    pub(crate) arguments: Option<&'a str>,
    /// The client wants a task for an answer, whose result it asks for later.
    pub(crate) is_task: bool,
    /// The most tokens that the client wants its work to have, as the request says.
    pub(crate) token_budget: Option<u64>,
    /// What the session could call, as far as that is known.
    pub(crate) offer: Option<&'a Arc<Offer>>,
    /// The moment.
    pub(crate) now: Timestamp,
    /// The same, where only the time between two moments counts.
    pub(crate) at: Instant,
}

impl GuardedCall<'_> {
    /// Returns the moment at which it is answered, which is now: its work session was not silent while
    /// it was under way.
    pub(super) fn ended_at(&self) -> Instant {
        Instant::now().max(self.at)
    }

    /// Returns the tool as the session was offered it.
    pub(crate) fn offered(&self) -> Option<&OfferedTool> {
        let (offer, upstream) = (self.offer?, self.upstream?);
        let tool = ToolRef {
            upstream: upstream.clone(),
            tool: self.tool.clone(),
        };
        offer.tools().get(offer.position_of(&tool)?)
    }
}
