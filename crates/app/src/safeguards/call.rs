//! A call as the safeguards see it.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::edit::member;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::EventOrigin;

use riglm_discovery::search::{Catalog, CatalogTool};

/// The kind of an own tool of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnKind {
    /// A search for tools.
    Search,
    /// A declaration of the context.
    Context,
    /// A view of the session, whose structured result is for an app.
    View,
    Other,
}

/// Identity and intent of a client that must be looked up; requested only for refused calls.
pub(crate) trait Requester: std::fmt::Debug + Send + Sync {
    /// Returns the keyed hash of the client, as in its session.
    fn client_hash(&self) -> KeyedHash;

    fn connection(&self) -> SessionId;

    /// Returns the declarations and queries of the client about its task.
    fn stated_intent(&self) -> Option<StatedIntent>;
}

/// A call before or after its tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedCall<'a> {
    pub(crate) session_key: SessionKey,
    pub(crate) principal: &'a Principal,
    /// Looks up the client, if a decision depends on it.
    pub(crate) asker: Option<&'a dyn Requester>,
    /// The profile under which the client is connected.
    pub(crate) profile: Option<&'a str>,
    /// The upstream of the tool; `None` for an own tool of the proxy.
    pub(crate) upstream: Option<&'a UpstreamName>,
    /// Identifies the configuration and credentials with which the upstream is reached.
    pub(crate) fingerprint: &'a str,
    /// The tool, by the name that its upstream knows.
    pub(crate) tool: &'a ToolName,
    /// The kind of the tool, if it is an own tool of the proxy.
    pub(crate) own: Option<OwnKind>,
    /// The JSON text of its arguments.
    pub(crate) arguments: Option<&'a str>,
    /// Whether the client wants a task as the answer and requests its result later.
    pub(crate) is_task: bool,
    /// The token budget for the work session in the request.
    pub(crate) token_budget: Option<u64>,
    /// The catalog of the session, if known.
    pub(crate) catalog: Option<&'a Arc<Catalog>>,
    /// The time of receipt.
    pub(crate) now: Timestamp,
    /// The time of receipt, for measuring durations.
    pub(crate) at: Instant,
}

impl GuardedCall<'_> {
    /// Returns the time of the answer, which is now. The work session counts as active while a call
    /// runs.
    pub(super) fn ended_at(&self) -> Instant {
        Instant::now().max(self.at)
    }

    /// Returns the origin of an event about the call.
    pub(super) fn origin(&self) -> EventOrigin<'_> {
        EventOrigin::of_session(self.principal, self.session_key)
    }

    /// Returns the part of a result that the model reads, as JSON text.
    pub(super) fn read_by_model<'r>(&self, result: &'r str) -> &'r str {
        match self.own {
            Some(OwnKind::View) => member(result, "content").unwrap_or_default(),
            _ => result,
        }
    }

    /// Returns the tool as the catalog of the session has it.
    pub(crate) fn catalog_tool(&self) -> Option<&CatalogTool> {
        let (catalog, upstream) = (self.catalog?, self.upstream?);
        let tool = ToolRef {
            upstream: upstream.clone(),
            tool: self.tool.clone(),
        };
        catalog.tools().get(catalog.position_of(&tool)?)
    }
}
