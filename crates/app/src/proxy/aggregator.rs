//! The aggregator: presents several upstreams as one server.
//!
//! Each upstream of a session has its own upstream session. The aggregator finds it for a request of
//! the client (`route`), or sends requests to all of them (`fan_out`). It merges their handshakes
//! (`initialize`), lists (`merged_list_fetch`, `merged_lists`) and notification streams (`listen`),
//! and keeps messages that upstreams send by themselves apart (`upstream_messages`). A request for
//! one upstream keeps the id of the client. Fan-outs and requests of upstreams to the client get ids
//! of the proxy.

pub(super) mod all_upstreams;
mod app_servers;
pub(super) mod changes;
pub(super) mod fan_out;
pub(super) mod initialize;
pub(super) mod listen;
pub(super) mod merged_list_fetch;
pub(super) mod merged_lists;
pub(super) mod route;
mod server_requests;
pub(super) mod shown_lists;
pub(super) mod skills;
mod task_owners;
pub(super) mod upstream_messages;
pub(super) mod wait_times;

use std::sync::atomic::{AtomicU64, Ordering};

use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::RequestId;

use self::app_servers::AppServers;
use self::changes::ListChanges;
use self::fan_out::FanOuts;
use self::listen::ListenStreams;
use self::server_requests::ServerRequests;
use self::shown_lists::ShownLists;
use self::task_owners::TaskOwners;

/// The state of the aggregator of one session.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    next: AtomicU64,
    fan_outs: FanOuts,
    pub(super) server_requests: ServerRequests,
    tasks: TaskOwners,
    pub(super) streams: ListenStreams,
    pub(super) lists: ShownLists,
    pub(super) changes: ListChanges,
    /// The upstreams whose apps the client has opened.
    pub(super) apps: AppServers,
}

impl Aggregator {
    /// Returns the id of a new fan-out request, or of the request of an upstream for the client.
    fn own_id(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        InternalRequest::FanOut.id(number)
    }

    /// Removes a fan-out request that ended without an answer.
    pub(super) fn forget(&self, id: &RequestId) {
        // Dropping the request tells the waiting fan-out that no answer will come.
        drop(self.fan_outs.take(id));
    }
}
