//! Calls that the operator refuses: of tools that are forbidden, and of tools that may change something,
//! by who says that they only read.

use std::sync::Arc;

use riglm_domain::id::ToolName;
use riglm_domain::message::Message;
use riglm_domain::naming::{Naming, prefixed};
use riglm_domain::tool::ToolRef;

use super::Relay;
use super::calls::CallReceived;
use crate::proxy::permitted::refusal;
use crate::proxy::search_tool::OwnTool;
use crate::safeguards::Refusal;
use crate::search::Offer;

impl Relay {
    /// Returns why a call is not passed on, if its tool is forbidden to who calls.
    pub(super) fn forbidden(&self, received: &CallReceived) -> Option<Refusal> {
        let (row, session) = (received.session, received.together);
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

    /// Returns the name by which the client knows a tool of this upstream.
    pub(super) fn shown_name(&self, own: &ToolName) -> String {
        let tool = ToolRef {
            upstream: self.upstream().clone(),
            tool: own.clone(),
        };
        let offer = self.caller.search.whole_offer();
        let offered = offer.as_ref().and_then(|offer| {
            let at = offer.position_of(&tool)?;
            offer.tools().get(at)
        });
        if let Some(offered) = offered {
            return offered.name.clone();
        }
        let has_several = self.is_united() && self.shared.upstreams.load().entries.len() > 1;
        if has_several && self.shared.naming == Naming::Prefix {
            prefixed(self.upstream(), own.as_str())
        } else {
            own.as_str().to_owned()
        }
    }

    /// Returns why a call is not passed on, if it is one of a tool that is kept from who calls.
    pub(super) async fn gated(
        self: &Arc<Self>,
        message: &Message,
        received: &CallReceived,
        is_modern: bool,
    ) -> Option<Refusal> {
        let lists = self.shared.filter.lists()?;
        if !lists.enforces(self.caller.profile_name()) {
            return None;
        }
        let client = self.caller.client_name();
        let (row, session, at) = (received.session, received.together, received.at);
        let mut ask = self.caller.list_ask(&client, session, is_modern, at);
        ask.client_hash = Some(self.caller.client_hash(&self.shared.recorder));
        let stated = self.shared.stated(row, session, at);
        ask.stated = stated.as_ref();
        if !lists.may_refuse(&ask) {
            return None;
        }
        let tool = ToolRef {
            upstream: self.upstream().clone(),
            tool: received.tool.clone(),
        };
        let offer = self.described(message, is_modern).await;
        let offered = offer.as_ref().and_then(|offer| {
            let at = offer.position_of(&tool)?;
            offer.tools().get(at)
        });
        lists.refuses(&ask, &tool, offered).then(|| Refusal {
            text: format!(
                "{} was not called: it is not known to change nothing, and by what you said \
                 that you do, you only read. If something is to be changed, {}, and call it again.",
                self.shown_name(&tool.tool),
                self.way_on()
            ),
        })
    }

    /// Returns what the upstream says of its tools. In front of several upstreams only what is known
    /// counts.
    async fn described(self: &Arc<Self>, message: &Message, is_modern: bool) -> Option<Arc<Offer>> {
        let known = self.caller.search.whole_offer();
        if known.is_some() {
            return known;
        }
        if self.is_united() {
            return self.caller.search.last_whole_offer();
        }
        let tool = self.shared.search_tool.as_deref();
        let limit = self.shared.limits().unite_timeout;
        let fetched = tokio::time::timeout(limit, self.fetch(tool, message, is_modern)).await;
        fetched.ok()?.ok()?
    }

    /// Returns how somebody says that they write.
    fn way_on(&self) -> String {
        let tools = self.shared.search_tool.as_ref();
        let name = tools.and_then(|tools| tools.name(OwnTool::SetContext));
        let is_taken = !self.is_united() && self.taken().has(OwnTool::SetContext);
        match name.filter(|_| !is_taken) {
            Some(name) => {
                format!("say so with {name}: what you do as its query, and \"write\" as its intent")
            }
            None => "say so in `_meta[\"io.github.riglm/context\"]` of a request: \"write\"".into(),
        }
    }
}
