//! The gate for calls that the operator refuses: calls of forbidden tools, and calls of tools that
//! may write, by sessions that stated that they only read.

use std::sync::Arc;

use riglm_domain::catalog::naming::{NamespacePolicy, prefixed_name};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;

use super::Relay;
use super::calls::CallReceived;
use crate::proxy::forbidden_tools::refusal;
use crate::proxy::search_tool::OwnTool;
use crate::safeguards::Refusal;
use riglm_discovery::search::Catalog;

impl Relay {
    /// Returns the refusal of a call if its tool is forbidden to the client.
    pub(super) fn forbidden_refusal(&self, received: &CallReceived) -> Option<Refusal> {
        let (row, session) = (received.session, received.session_key);
        let rules = self.shared.forbidden_in(&self.caller, row, session);
        if rules.is_empty() {
            return None;
        }
        let name = self.shown_name(&received.tool);
        let by = rules.forbids(self.upstream(), &received.tool, Some(&name))?;
        Some(Refusal {
            text: refusal(&name, by),
        })
    }

    /// Returns the name under which the client knows a tool of this upstream.
    pub(super) fn shown_name(&self, own: &ToolName) -> String {
        let tool = ToolRef {
            upstream: self.upstream().clone(),
            tool: own.clone(),
        };
        let offer = self.caller.search.complete_catalog();
        let offered = offer.as_ref().and_then(|offer| {
            let at = offer.position_of(&tool)?;
            offer.tools().get(at)
        });
        if let Some(offered) = offered {
            return offered.name.clone();
        }
        let has_several = self.is_aggregated() && self.shared.upstreams.load().entries.len() > 1;
        if has_several && self.shared.naming == NamespacePolicy::Prefix {
            prefixed_name(self.upstream(), own.as_str())
        } else {
            own.as_str().to_owned()
        }
    }

    /// Returns the refusal of a call if write gating withholds its tool from the session.
    pub(super) async fn gating_refusal(
        self: &Arc<Self>,
        message: &Message,
        received: &CallReceived,
        era: Era,
    ) -> Option<Refusal> {
        let lists = self.shared.filter.lists()?;
        if !lists.enforces(self.caller.profile_name()) {
            return None;
        }
        let client = self.caller.client_name();
        let (row, session, at) = (received.session, received.session_key, received.at);
        let mut ask = self
            .caller
            .list_request(&client, session, era == Era::Modern, at);
        ask.client_hash = Some(self.caller.client_hash(&self.shared.recorder));
        let stated = self.shared.stated_intent(row, session, at);
        ask.stated = stated.as_ref();
        if !lists.may_refuse(&ask) {
            return None;
        }
        let tool = ToolRef {
            upstream: self.upstream().clone(),
            tool: received.tool.clone(),
        };
        let offer = self.described_catalog(message, era).await;
        let offered = offer.as_ref().and_then(|offer| {
            let at = offer.position_of(&tool)?;
            offer.tools().get(at)
        });
        lists.refuses(&ask, &tool, offered).then(|| Refusal {
            text: format!(
                "{} was not called: it may change data, and your declared task only reads. To \
                 change data, {}, and call it again.",
                self.shown_name(&tool.tool),
                self.instructions()
            ),
        })
    }

    /// Returns the catalog of the upstream for the descriptions of its tools. With several
    /// upstreams only the known catalog is used, without fetching.
    async fn described_catalog(
        self: &Arc<Self>,
        message: &Message,
        era: Era,
    ) -> Option<Arc<Catalog>> {
        let known = self.caller.search.complete_catalog();
        if known.is_some() {
            return known;
        }
        if self.is_aggregated() {
            return self.caller.search.last_complete_catalog();
        }
        let tool = self.shared.search_tool.as_deref();
        let limit = self.shared.limits().unite_timeout;
        let fetched = tokio::time::timeout(limit, self.fetch(tool, message, era)).await;
        fetched.ok()?.ok()?
    }

    /// Returns the instructions for stating an intent to write.
    fn instructions(&self) -> String {
        let tools = self.shared.search_tool.as_ref();
        let name = tools.and_then(|tools| tools.name(OwnTool::SetContext));
        let is_taken = !self.is_aggregated() && self.taken_names().has(OwnTool::SetContext);
        match name.filter(|_| !is_taken) {
            Some(name) => {
                format!("call {name} with your task as query and \"write\" as intent")
            }
            None => "send \"write\" in `_meta[\"io.github.riglm/context\"]` of a request".into(),
        }
    }
}
