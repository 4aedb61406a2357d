//! Calls of the tools of the proxy itself in front of several upstreams: searches are made over what
//! all of them list.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::id::UpstreamName;
use riglm_domain::invocation::CallSession;
use riglm_domain::message::{Message, RequestId};

use super::ask::Behalf;
use super::directory::UnitedList;
use super::from_client::Reply;
use super::list::Asked;
use super::list_kind::ListKind;
use super::route::Target;
use super::template::Template;
use crate::proxy::listing::Listing;
use crate::proxy::member::Member;
use crate::proxy::relay::params::RequestParams;
use crate::proxy::search_tool::help::unknown;
use crate::proxy::search_tool::{
    Asking, CallMaker, OwnTool, SearchTool, Taken, Unwrapped, failure, server_text,
};
use crate::proxy::session::ClientSession;
use crate::search::{Offer, ServerText};
use crate::work_sessions::RequestKind;

impl ClientSession {
    /// Returns the tool of the proxy itself that a call with these parameters is one of.
    pub(super) fn own_tool(
        &self,
        params: &RequestParams<'_>,
    ) -> Option<(&Arc<SearchTool>, OwnTool)> {
        let tools = self.shared.search_tool.as_ref()?;
        Some((tools, tools.named(&params.name()?)?))
    }

    /// Returns the call that a message stands for, where that can be told at once; any other message
    /// as it is.
    pub(super) fn unwrapped(&self, message: Message) -> Message {
        let Some(tools) = &self.shared.search_tool else {
            return message;
        };
        let offer = || self.shared.offer_of(&self.caller);
        let maker = CallMaker::of(&self.caller, &self.shared);
        let call = tools.call_in(&message, &maker, Taken::default(), offer);
        call.unwrap_or(message)
    }

    /// Answers a call of a tool of the proxy itself, or has it answered by the upstream whose tool is
    /// shown under that name. A call that stands for another is answered as that one is.
    pub(super) async fn search(
        self: &Arc<Self>,
        (tools, own): (&SearchTool, OwnTool),
        message: &Message,
        id: RequestId,
        is_modern: bool,
    ) -> Reply {
        let (received, received_at) = (Instant::now(), self.shared.recorder.now());
        let offer = match self.shared.offer_of(&self.caller) {
            Some(offer) => Ok(offer),
            None => match self
                .gather(
                    &Template::new(ListKind::Tools, message, is_modern),
                    &Asked::All,
                )
                .await
            {
                Ok(gathered) => gathered.offer.ok_or_else(|| "nothing is listed".to_owned()),
                Err(error) => Err(error.message),
            },
        };
        let listed = self.united.state().list(ListKind::Tools);
        let taken = listed.map_or_else(Taken::default, |list| taken(tools, &list));
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
            let params = match tools.unwrapped(&maker, called.1.as_deref(), offer).await {
                Unwrapped::Call(params) => params,
                Unwrapped::Wrong(problem) => return Reply::Result(failure(is_modern, &problem)),
            };
            let inner = RequestParams::read(Some(&params)).name();
            let inner = inner.and_then(|name| tools.named(&name));
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
        let session = CallSession::of(work_session, row);
        let asking = Asking {
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

    /// Has a call answered by the upstream whose tool it names.
    async fn pass_call(self: &Arc<Self>, message: &Message, id: RequestId) -> Reply {
        let behalf = Behalf {
            request: Some(id.clone()),
            listen: None,
        };
        match self.target("tools/call", message) {
            Target::Member(member, message) => {
                self.ask_owner(&member, &message, "tools/call", behalf)
                    .await
            }
            Target::Unknown => self.find_and_send(message, id).await,
        }
    }

    /// Returns what helps a client that calls a tool which nobody has, where lists may leave tools
    /// out.
    pub(super) async fn help_with_name(&self, method: &str, name: &str) -> Option<String> {
        let tools = self.shared.search_tool.as_ref();
        let offer = self.shared.last_offer_of(&self.caller);
        let offer = offer.filter(|_| method == "tools/call")?;
        let search = tools.and_then(|tools| tools.name(OwnTool::Search));
        let length = self.caller.search.length_for(&("name", name));
        let (work, principal) = (&self.shared.long_work, &self.caller.principal);
        unknown(work, principal, name, offer, (search, length)).await
    }

    /// Makes what a list offers known, for this session and, of a list that has everything, to the
    /// search.
    pub(super) fn know(
        &self,
        members: &[Arc<Member>],
        list: &UnitedList,
        (lacks_upstreams, is_complete, epoch): (bool, bool, u64),
    ) -> Arc<Offer> {
        let servers = members.iter().map(|member| {
            let said = member.relay.introduction();
            let text = server_text(member.name(), said.as_deref());
            (member.name().clone(), text)
        });
        let servers: Vec<(UpstreamName, ServerText)> = servers.collect();
        let marker: &[u8] = if lacks_upstreams { b"lacking" } else { b"" };
        let lists = [list.version().as_bytes(), marker];
        let offer = self.shared.offers.get(&lists, servers, |servers| {
            let offer = Offer::new(list.offered(), servers);
            if lacks_upstreams {
                offer.lacking_upstreams()
            } else {
                offer
            }
        });
        self.caller.search.note_offer(&offer, epoch);
        if let Some(tool) = &self.shared.search_tool
            && is_complete
            && self.caller.search.is_news(&offer)
        {
            tool.service.learn_offer(&offer);
        }
        offer
    }
}

/// Returns the tools of the proxy itself under whose names a list shows tools of upstreams, which are
/// left out then.
pub(super) fn taken(tools: &SearchTool, list: &UnitedList) -> Taken {
    let mut all = Taken::default();
    for own in OwnTool::ALL {
        let owner = tools.name(own).and_then(|name| list.owner(name));
        if let Some(owner) = owner {
            let mut taken = Taken::default();
            taken.add(own);
            tools.warn_of_clash(&owner.upstream, taken);
            all = all.and(taken);
        }
    }
    all
}
