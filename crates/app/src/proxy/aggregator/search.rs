//! Calls of own tools with several upstreams. Searches cover the catalog of all upstreams.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::usage::invocation::SessionKey;

use super::fan_out::Behalf;
use super::from_client::Reply;
use super::list::FetchSelection;
use super::list_kind::ListKind;
use super::merged_lists::AggregateList;
use super::route::RouteTarget;
use super::template::ListTemplate;
use crate::proxy::listing::Listing;
use crate::proxy::relay::params::RequestParams;
use crate::proxy::search_tool::help::unknown;
use crate::proxy::search_tool::{
    CallMaker, OwnTool, OwnTools, SearchRequester, TakenNames, UnwrapOutcome, failure, server_text,
};
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_session::UpstreamSession;
use crate::work_sessions::RequestKind;
use riglm_discovery::search::{Catalog, ServerText};

impl ClientSession {
    /// Returns the own tool that a call with these parameters names.
    pub(super) fn own_tool(&self, params: &RequestParams<'_>) -> Option<(&Arc<OwnTools>, OwnTool)> {
        let tools = self.shared.search_tool.as_ref()?;
        Some((tools, tools.tool_named(&params.name()?)?))
    }

    /// Returns the call that a message wraps, if it is known at once, or else the message
    /// unchanged.
    pub(super) fn unwrap_call(&self, message: Message) -> Message {
        let Some(tools) = &self.shared.search_tool else {
            return message;
        };
        let offer = || self.shared.catalog_of(&self.caller);
        let maker = CallMaker::of(&self.caller, &self.shared);
        let call = tools.wrapped_call(&message, &maker, TakenNames::default(), offer);
        call.unwrap_or(message)
    }

    /// Answers a call of an own tool, or forwards it to the upstream whose tool has that name. A
    /// wrapped call is handled like a direct one.
    pub(super) async fn search(
        self: &Arc<Self>,
        (tools, own): (&OwnTools, OwnTool),
        message: &Message,
        id: RequestId,
        is_modern: bool,
    ) -> Reply {
        let (received, received_at) = (Instant::now(), self.shared.recorder.now());
        let offer = match self.shared.catalog_of(&self.caller) {
            Some(offer) => Ok(offer),
            None => match self
                .gather(
                    &ListTemplate::new(ListKind::Tools, message, is_modern),
                    &FetchSelection::All,
                )
                .await
            {
                Ok(gathered) => gathered
                    .offer
                    .ok_or_else(|| "no tool list is available".to_owned()),
                Err(error) => Err(error.message),
            },
        };
        let listed = self.aggregator.state.lock().list(ListKind::Tools);
        let taken = listed.map_or_else(TakenNames::default, |list| taken_names(tools, &list));
        if taken.has(own) {
            return self.pass_call(message, id).await;
        }
        let params_of = |message: &Message| {
            let part = message.single();
            part.and_then(|part| message.params(part))
                .map(str::to_owned)
        };
        let mut called = (own, params_of(message));
        if own == OwnTool::CallTool {
            let offer = offer.as_deref().ok();
            let maker = CallMaker::of(&self.caller, &self.shared);
            let params = match tools.unwrap_call(&maker, called.1.as_deref(), offer).await {
                UnwrapOutcome::Call(params) => params,
                UnwrapOutcome::Wrong(problem) => {
                    return Reply::Result(failure(is_modern, &problem));
                }
            };
            let inner = RequestParams::read(Some(&params)).name();
            let inner = inner.and_then(|name| tools.tool_named(&name));
            // The wrapped call may itself be a call of an own tool, which is then answered locally.
            let Some(inner) = inner.filter(|inner| !taken.has(*inner)) else {
                let call = message.with_params(&params).without_param_headers();
                return self.pass_call(&call, id).await;
            };
            called = (inner, Some(params));
        }
        let row = self.caller.row(&self.shared).await;
        let work_session = (self.caller)
            .work_session(
                &self.shared,
                message.hints(),
                RequestKind::Search,
                received_at,
            )
            .await;
        let session = SessionKey::of(work_session, row);
        let asking = SearchRequester {
            caller: &self.caller,
            shared: &self.shared,
            session,
            is_modern,
            shown: self.listing(is_modern).current(session),
            token_budget: message.hints().token_budget,
            trace: message.trace(),
            received,
            received_at,
            client: (&self.client, &id),
        };
        let arguments = RequestParams::read(called.1.as_deref()).arguments();
        let result = tools.answer(&asking, (called.0, arguments), offer).await;
        // Any relay may start the review, because its state belongs to the client.
        if let Some(member) = self.members().first() {
            member.relay.review_list(session, is_modern);
        }
        Reply::Result(result)
    }

    fn listing(&self, is_modern: bool) -> Listing<'_> {
        Listing {
            caller: &self.caller,
            shared: &self.shared,
            is_modern,
        }
    }

    /// Forwards a call to the upstream whose tool it names.
    async fn pass_call(self: &Arc<Self>, message: &Message, id: RequestId) -> Reply {
        let behalf = Behalf {
            request: Some(id.clone()),
            listen: None,
        };
        match self.target("tools/call", message) {
            RouteTarget::Member(member, message) => {
                self.ask_owner(&member, &message, "tools/call", behalf)
                    .await
            }
            RouteTarget::Unknown => self.find_and_send(message, id).await,
        }
    }

    /// Returns a hint for a call of an unknown tool, if the catalog is known.
    pub(super) async fn help_with_name(&self, method: &str, name: &str) -> Option<String> {
        let tools = self.shared.search_tool.as_ref();
        let offer = self.shared.last_catalog_of(&self.caller);
        let offer = offer.filter(|_| method == "tools/call")?;
        let search = tools.and_then(|tools| tools.name(OwnTool::Search));
        let length = self.caller.search.length_for(&("name", name));
        let (work, principal) = (&self.shared.long_work, &self.caller.principal);
        unknown(work, principal, name, offer, (search, length)).await
    }

    /// Publishes the catalog of a list to this session, and to the search if the list is complete.
    pub(super) fn publish_catalog(
        &self,
        members: &[Arc<UpstreamSession>],
        list: &AggregateList,
        (lacks_upstreams, is_complete, epoch): (bool, bool, u64),
    ) -> Arc<Catalog> {
        let servers = members.iter().map(|member| {
            let said = member.relay.introduction();
            let text = server_text(member.name(), said.as_deref());
            (member.name().clone(), text)
        });
        let servers: Vec<(UpstreamName, ServerText)> = servers.collect();
        let marker: &[u8] = if lacks_upstreams { b"lacking" } else { b"" };
        let lists = [list.version().as_bytes(), marker];
        let offer = self.shared.offers.get(&lists, servers, |servers| {
            let offer = Catalog::new(list.catalog_tools(), servers);
            if lacks_upstreams {
                offer.mark_lacking_upstreams()
            } else {
                offer
            }
        });
        self.caller.search.note_catalog(&offer, epoch);
        if let Some(tool) = &self.shared.search_tool
            && is_complete
            && self.caller.search.is_news(&offer)
        {
            tool.service.index_catalog(&offer);
        }
        offer
    }
}

/// Returns the own tools whose names a list uses for tools of upstreams. These own tools are left
/// out.
pub(super) fn taken_names(tools: &OwnTools, list: &AggregateList) -> TakenNames {
    let mut all = TakenNames::default();
    for own in OwnTool::ALL {
        let owner = tools.name(own).and_then(|name| list.owner(name));
        if let Some(owner) = owner {
            let mut taken = TakenNames::default();
            taken.add(own);
            tools.warn_of_clash(&owner.upstream, taken);
            all = all.and(taken);
        }
    }
    all
}
