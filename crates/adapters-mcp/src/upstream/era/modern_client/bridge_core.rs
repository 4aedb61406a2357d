//! The parts of the bridge that all others use: its client, its state and its tasks.

use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{Exchange, SendOutcome, UpstreamError, UpstreamEvents};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, connection_lost};
use super::request_state::Seal;
use super::state::BridgeState;
use crate::upstream::era::link_tasks::LinkTasks;
use crate::upstream::era::options::BridgeOptions;

/// The client of one link, the state that the parts share, and their tasks.
#[derive(Debug)]
pub(super) struct BridgeCore {
    pub(super) principal: Principal,
    pub(super) options: BridgeOptions,
    pub(super) seal: Seal,
    pub(super) state: Mutex<BridgeState>,
    /// Wakes the task that sweeps when a new deadline was added.
    pub(super) changed: Notify,
    events: Arc<dyn UpstreamEvents>,
    pub(super) tasks: LinkTasks,
}

impl BridgeCore {
    /// Returns the core of a link that reports to `events`.
    pub(super) fn new(
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        Self {
            principal,
            seal: Seal::new(&options.state_key),
            options,
            state: Mutex::default(),
            changed: Notify::new(),
            events,
            tasks: LinkTasks::default(),
        }
    }

    /// Returns whether the link is closed. Then no task runs, and the client gets no more messages.
    pub(super) fn is_closed(&self) -> bool {
        self.tasks.closing().is_cancelled()
    }

    /// Stops all tasks and reports.
    pub(super) fn close(&self) {
        self.tasks.closing().cancel();
    }

    /// Runs `work` on a separate task, whether or not the exchange is driven. Returns the exchange,
    /// which ends with the work.
    pub(super) fn under_way(&self, work: impl Future<Output = ()> + Send + 'static) -> SendOutcome {
        let sent = CancellationToken::new();
        let guard = sent.clone().drop_guard();
        self.tasks.spawn(async move {
            work.await;
            drop(guard);
        });
        SendOutcome::UnderWay(Exchange {
            run: Box::pin(sent.clone().cancelled_owned()),
            on_its_way: Box::pin(sent.cancelled_owned()),
        })
    }

    /// Returns the lock for messages about a call, if the call uses this connection.
    pub(super) fn turn_of(
        &self,
        connection: &Connection,
        number: u64,
    ) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let state = self.state.lock();
        let call = state.calls.get(&number)?;
        (call.connection.number == connection.number).then(|| Arc::clone(&call.turn))
    }

    /// Delivers a message that belongs to a request of the client.
    pub(super) async fn deliver(&self, message: Message, to: &RequestId) {
        if !self.is_closed() {
            self.events.on_message(message, Some(to.clone())).await;
        }
    }

    /// Answers a request of the client with an error of the bridge.
    pub(super) async fn deliver_error(&self, id: &RequestId, error: &RpcError) {
        self.deliver(error.to_message(Some(id)), id).await;
    }

    /// Reports to the client that a request will get no answer.
    pub(super) async fn report_unanswered(&self, id: &RequestId, error: UpstreamError) {
        if self.is_closed() {
            return;
        }
        // The expired session is internal to the bridge. The link itself stays valid.
        let error = match error {
            UpstreamError::SessionExpired => connection_lost(),
            error => error,
        };
        self.events.on_unanswered(id.clone(), error).await;
    }
}
