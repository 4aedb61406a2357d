//! The two peers of the bridge, and the tasks that talk to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_ports::upstream::{UpstreamEvents, UpstreamLink};

use super::identity::Identity;
use crate::upstream::era::link_tasks::LinkTasks;
use crate::upstream::era::options::BridgeOptions;

/// The legacy client and the modern server of one bridge.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) server: Arc<dyn UpstreamLink>,
    /// The receiver of messages for the client.
    pub(super) client: Arc<dyn UpstreamEvents>,
    /// The description of the client for the server.
    pub(super) identity: Mutex<Identity>,
    pub(super) options: BridgeOptions,
    n_ids: AtomicU64,
    pub(super) tasks: LinkTasks,
}

impl Peers {
    /// Returns the peers of a bridge.
    pub(super) fn new(
        server: Arc<dyn UpstreamLink>,
        client: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        Self {
            server,
            client,
            identity: Mutex::default(),
            options,
            n_ids: AtomicU64::new(0),
            tasks: LinkTasks::default(),
        }
    }

    /// Returns a new id of the bridge. Its number is unique among all kinds.
    pub(super) fn next_id(&self, kind: InternalRequest) -> RequestId {
        kind.id(self.n_ids.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) async fn answer(&self, id: &RequestId, result: &str) {
        self.deliver(Message::success(id, result), id).await;
    }

    /// Answers a request of the client with an error of the bridge.
    pub(super) async fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.deliver(error.to_message(Some(id)), id).await;
    }

    /// Delivers a message of the bridge that belongs to a request of the client.
    pub(super) async fn deliver(&self, message: Message, related: &RequestId) {
        self.client.on_message(message, Some(related.clone())).await;
    }

    /// Stops the tasks and waits for their end.
    pub(super) async fn close(&self) {
        self.tasks.closing().cancel();
        self.tasks.wait().await;
    }
}
