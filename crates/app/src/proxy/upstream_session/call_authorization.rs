//! The gate for calls that the operator refuses: calls of forbidden tools, and calls of tools that
//! may write, by sessions that stated that they only read.

use std::sync::Arc;

use super::call_recording::CallContext;
use super::scope::UpstreamScope;
use super::upstream_tools::UpstreamTools;
use crate::proxy::own_tools::OwnTool;
use crate::proxy::permitted_catalog::refusal;
use crate::safeguards::Refusal;
use crate::selection::{ListRequest, Lists};
use riglm_discovery::search::Catalog;

/// Refuses calls by the rules of the operator.
#[derive(Debug)]
pub(super) struct CallAuthorization {
    scope: Arc<UpstreamScope>,
    tools: Arc<UpstreamTools>,
}

impl CallAuthorization {
    pub(super) fn new(scope: &Arc<UpstreamScope>, tools: &Arc<UpstreamTools>) -> Self {
        Self {
            scope: Arc::clone(scope),
            tools: Arc::clone(tools),
        }
    }

    /// Returns the refusal of a call if its tool is forbidden to the client.
    pub(super) fn forbidden_refusal(&self, call: &CallContext<'_>) -> Option<Refusal> {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        let rules = shared.forbidden_in(client_context, call.session, call.session_key);
        if rules.is_empty() {
            return None;
        }
        let name = self.scope.shown_name(&call.tool);
        let by = rules.forbids(self.scope.upstream(), &call.tool, Some(&name))?;
        Some(Refusal {
            text: refusal(&name, by),
        })
    }

    /// Returns whether write gating may withhold a tool from the session of a call.
    pub(super) fn may_refuse(&self, call: &CallContext<'_>) -> bool {
        let enforcing =
            |lists: &&Arc<Lists>| lists.enforces(self.scope.client_context.profile_name());
        let lists = self.scope.shared.selection.lists().filter(enforcing);
        lists.is_some_and(|lists| self.with_request(call, |ask| lists.may_refuse(ask)))
    }

    /// Returns the refusal of a call if write gating withholds its tool from the session. `catalog` is
    /// the catalog with the description of the tool, if it is known.
    pub(super) fn refusal(
        &self,
        call: &CallContext<'_>,
        catalog: Option<&Catalog>,
    ) -> Option<Refusal> {
        let lists = self.scope.shared.selection.lists()?;
        let tool = self.scope.tool_ref(&call.tool);
        let offered = catalog.and_then(|catalog| {
            let at = catalog.position_of(&tool)?;
            catalog.tools().get(at)
        });
        let is_refused = self.with_request(call, |ask| lists.refuses(ask, &tool, offered));
        is_refused.then(|| Refusal {
            text: format!(
                "{} was not called: it may change data, and your declared task only reads. To \
                 change data, {}, and call it again.",
                self.scope.shown_name(&tool.tool),
                self.instructions()
            ),
        })
    }

    /// Passes the list request of the session of a call, with its stated intent.
    fn with_request<T>(
        &self,
        call: &CallContext<'_>,
        ask_of: impl FnOnce(&ListRequest<'_>) -> T,
    ) -> T {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        let client = client_context.client_name();
        let (session_key, at) = (call.session_key, call.received_at);
        let mut ask = client_context.list_request(&client, session_key, call.era, at);
        ask.client_hash = Some(client_context.client_hash(&shared.recorder));
        let stated = shared.stated_intent(call.session, session_key, at);
        ask.stated = stated.as_ref();
        ask_of(&ask)
    }

    /// Returns the instructions for stating an intent to write.
    fn instructions(&self) -> String {
        let tools = self.scope.shared.own_tools();
        let name = tools.and_then(|tools| tools.name(OwnTool::SetContext));
        let is_taken = !self.scope.is_merged() && self.tools.taken_names().has(OwnTool::SetContext);
        match name.filter(|_| !is_taken) {
            Some(name) => {
                format!("call {name} with your task as query and \"write\" as intent")
            }
            None => "send \"write\" in `_meta[\"io.github.riglm/context\"]` of a request".into(),
        }
    }
}
