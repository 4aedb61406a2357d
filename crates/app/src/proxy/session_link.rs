//! The link from an upstream session back to its client session.

use std::sync::Weak;

use async_trait::async_trait;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::downstream::{ClientLink, Route};

use super::client_context::AggregationMode;
use super::session::ClientSession;
use crate::proxy::aggregator::shown_lists::on_connected;
use crate::proxy::aggregator::upstream_messages::pass_to_client;
use crate::proxy::list_notices::review_list;

/// The client link of one upstream session. With a single upstream, messages go verbatim to the
/// client; with several they go through the aggregator. The reference to the session is weak, so
/// that it does not keep the session alive.
#[derive(Debug)]
pub(super) struct SessionLink {
    session: Weak<ClientSession>,
    number: u64,
}

impl SessionLink {
    pub(super) fn new(session: Weak<ClientSession>, number: u64) -> Self {
        Self { session, number }
    }

    /// Checks in the background whether a call changed the tool list of the client.
    pub(super) fn review_list(&self, session_key: SessionKey, era: Era) {
        if let Some(session) = self.session.upgrade() {
            review_list(&session, session_key, era);
        }
    }

    /// Registers that the upstream session was connected.
    pub(super) fn on_connected(&self) {
        if let Some(session) = self.session.upgrade()
            && let Some(member) = session.member_by_number(self.number)
        {
            on_connected(&session, &member);
        }
    }
}

#[async_trait]
impl ClientLink for SessionLink {
    async fn deliver(&self, message: Message, route: Route) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        match session.client_context.aggregation() {
            AggregationMode::Verbatim => session.client.deliver(message, route).await,
            AggregationMode::Merged => {
                let number = self.number;
                pass_to_client(&session, number, message, route).await;
            }
        }
    }

    async fn finish(&self, request: &RequestId) {
        if let Some(session) = self.session.upgrade() {
            session.finish(request).await;
        }
    }

    /// The end of one upstream session does not end the session of the client.
    async fn close(&self) {}
}
