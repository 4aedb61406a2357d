//! Searching for tools in front of several upstreams: over what all of them list.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};

use super::ask::Behalf;
use super::directory::UnitedList;
use super::from_client::Reply;
use super::list_kind::ListKind;
use super::route::Target;
use crate::proxy::member::Member;
use crate::proxy::relay::params::RequestParams;
use crate::proxy::search_tool::{Asking, SearchTool, server_text};
use crate::proxy::session::ClientSession;
use crate::search::{Offer, ServerText};

impl ClientSession {
    /// Returns the tool for searching if a call with these parameters is one of it.
    pub(super) fn searched(&self, params: &RequestParams<'_>) -> Option<&Arc<SearchTool>> {
        let tool = self.shared.search_tool.as_ref()?;
        let is_named = params.name().is_some_and(|name| name == tool.name());
        is_named.then_some(tool)
    }

    /// Answers a call of the tool for searching, or has it answered by the upstream whose tool is
    /// shown under that name.
    pub(super) async fn search(
        self: &Arc<Self>,
        tool: &SearchTool,
        message: &Message,
        id: RequestId,
        is_modern: bool,
    ) -> Reply {
        let (received, received_at) = (Instant::now(), self.shared.recorder.now());
        let offer = match self.caller.search.offer() {
            Some(offer) => Ok(offer),
            None => match self.gather(ListKind::Tools, message, is_modern).await {
                Ok(gathered) => gathered.offer.ok_or_else(|| "nothing is listed".to_owned()),
                Err(error) => Err(error.message),
            },
        };
        let listed = self.united.state().list(ListKind::Tools);
        if listed.is_some_and(|list| has_clash(tool, &list)) {
            let behalf = Behalf {
                request: Some(id.clone()),
                listen: None,
            };
            return match self.target("tools/call", message) {
                Target::Member(member, message) => {
                    self.ask_owner(&member, &message, "tools/call", behalf)
                        .await
                }
                Target::Unknown => self.find_and_send(message, id).await,
            };
        }
        let asking = Asking {
            caller: &self.caller,
            shared: &self.shared,
            hints: message.hints(),
            is_modern,
            received,
            received_at,
        };
        let part = message.single();
        let params = RequestParams::read(part.and_then(|part| message.params(part)));
        Reply::Result(tool.answer(&asking, params.arguments(), offer).await)
    }

    /// Makes what a list offers known, for this session and, of a list that has everything, to the
    /// search.
    pub(super) fn know(
        &self,
        tool: &SearchTool,
        members: &[Arc<Member>],
        list: &UnitedList,
        (is_complete, epoch): (bool, u64),
    ) -> Arc<Offer> {
        let servers = members.iter().map(|member| {
            let said = member.relay.introduction();
            let text = server_text(member.name(), said.as_deref());
            (member.name().clone(), text)
        });
        let servers: Vec<(UpstreamName, ServerText)> = servers.collect();
        let lists = [list.version().as_bytes()];
        let offer = tool.offers.get(&lists, servers, |servers| {
            Offer::new(list.offered(), servers)
        });
        self.caller.search.note_offer(&offer, epoch);
        if is_complete && self.caller.search.is_news(&offer) {
            tool.service.learn_offer(&offer);
        }
        offer
    }
}

/// Returns whether an upstream's tool is shown under the name of the tool for searching, which is
/// left out then.
pub(super) fn has_clash(tool: &SearchTool, list: &UnitedList) -> bool {
    let owner = list.owner(tool.name());
    if let Some(owner) = owner {
        tool.warn_of_clash(&owner.upstream);
    }
    owner.is_some()
}
