//! One upstream as a member of a session.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_ports::downstream::{ClientLink, Route};

use super::relay::Relay;
use super::session::ClientSession;
use super::united::waiting::Waiting;

/// One upstream of a session.
#[derive(Debug)]
pub(super) struct Member {
    /// Tells it from every other member that the session had or has.
    pub(super) number: u64,
    pub(super) relay: Arc<Relay>,
    pub(super) waiting: Waiting,
}

impl Member {
    /// Returns the name of the upstream.
    pub(super) fn name(&self) -> &UpstreamName {
        self.relay.upstream()
    }
}

/// Where a member's messages for the client go: to the client as they are while the member is the
/// only one, through the session otherwise. It does not keep the session alive.
#[derive(Debug)]
pub(super) struct MemberLink {
    session: Weak<ClientSession>,
    number: u64,
}

impl MemberLink {
    pub(super) fn new(session: Weak<ClientSession>, number: u64) -> Self {
        Self { session, number }
    }
}

#[async_trait]
impl ClientLink for MemberLink {
    async fn deliver(&self, message: Message, route: Route) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        if session.is_united() {
            session.from_member(self.number, message, route).await;
        } else {
            session.client.deliver(message, route).await;
        }
    }

    async fn finish(&self, request: &RequestId) {
        if let Some(session) = self.session.upgrade() {
            session.finish(request).await;
        }
    }

    /// A member does not end the session.
    async fn close(&self) {}
}
