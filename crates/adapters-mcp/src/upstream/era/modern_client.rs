//! The bridge for modern clients: presents a legacy server as a server of revision 2026-07-28.
//!
//! The description that a modern client sends with each request becomes the handshake of a legacy
//! connection (`welcome`, `connection`, `opening`). There is one connection for each set of
//! capabilities and log level. Requests are sent under ids of the bridge (`calling`). Their answers
//! (`ending`) get the members that modern answers require (`answers`). A question of the server
//! during a call becomes the answer to the client's request (`asking`), with a sealed state
//! (`request_state`) by which a retry continues (`resuming`). Change notifications go to listening
//! clients (`listening`, `subscription`). Tools that the server runs only as tasks are called as such
//! (`server_tasks`). `sweeping` ends expired calls and connections.
//!
//! `resuming` calls `calling`; `calling` and `listening` call `opening`; these call `asking`. All of
//! them use `bridge_core`. Messages of the client arrive here, those of servers in `from_server`. All
//! mutable state is in `state`, behind one lock that is never held over an await.

mod answers;
mod asking;
mod bridge_core;
mod call;
mod calling;
mod connection;
mod ending;
mod from_server;
mod listening;
mod opening;
mod request_state;
mod resuming;
mod server_tasks;
mod state;
mod subscription;
mod sweeping;
mod welcome;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

use self::asking::Questions;
use self::bridge_core::BridgeCore;
use self::call::{ModernRequest, takes_input};
use self::calling::Calls;
use self::connection::connection_lost;
use self::listening::Listening;
use self::opening::Connections;
use self::resuming::Retries;
use self::server_tasks::{ServerTask, ServerTasks, is_about_tasks};
use super::options::BridgeOptions;

/// A link that accepts modern requests and connects to a legacy server.
#[derive(Debug)]
pub struct ModernClientLink {
    bridge: Arc<ModernBridge>,
}

impl ModernClientLink {
    /// Returns a link for one client. It opens connections of `inner` for `principal` on demand,
    /// and reports to `events`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn UpstreamConnector>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Arc<Self> {
        let core = Arc::new(BridgeCore::new(principal, events, options));
        Arc::new(Self {
            bridge: ModernBridge::new(core, inner),
        })
    }
}

impl Drop for ModernClientLink {
    fn drop(&mut self) {
        self.bridge.core.close();
    }
}

#[async_trait]
impl UpstreamLink for ModernClientLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if self.bridge.core.is_closed() {
            return Err(connection_lost());
        }
        let Some(envelope) = message.single() else {
            self.bridge.refuse_batch(&message).await;
            return Ok(SendOutcome::Delivered);
        };
        match envelope.kind() {
            MessageKind::Request => self.bridge.take_request(&message, envelope).await,
            MessageKind::Notification => {
                self.bridge.take_notification(&message, envelope).await;
                Ok(SendOutcome::Delivered)
            }
            // Modern clients send their answers in retries of the request.
            MessageKind::Success | MessageKind::Failure => Ok(SendOutcome::Delivered),
        }
    }

    fn has_streams(&self) -> bool {
        true
    }

    /// A call that waits for input of the client is needed until its state expires, and a task until
    /// the client has its result or no longer asks for it.
    fn is_needed(&self) -> bool {
        let state = self.bridge.core.state.lock();
        let has_tasks = state.tasks.values().any(ServerTask::is_active);
        !state.parked.is_empty() || has_tasks
    }

    /// Returns the longest time of a connection that is being opened.
    fn time_to_start(&self) -> Option<Duration> {
        let state = self.bridge.core.state.lock();
        let connections = state.connections.values();
        connections
            .filter_map(|connection| connection.time_to_start())
            .max()
    }

    async fn close(&self) {
        self.bridge.core.close();
        let state = std::mem::take(&mut *self.bridge.core.state.lock());
        let connections = state.connections.into_values();
        join_all(connections.map(|connection| async move {
            connection.close().await;
            connection.end(connection_lost());
        }))
        .await;
    }
}

/// The parts of the bridge. Messages of the client and of the servers are given to one of them.
#[derive(Debug)]
struct ModernBridge {
    core: Arc<BridgeCore>,
    connections: Arc<Connections>,
    questions: Arc<Questions>,
    calls: Arc<Calls>,
    retries: Arc<Retries>,
    tasks: Arc<ServerTasks>,
    listening: Arc<Listening>,
}

impl ModernBridge {
    /// Returns a bridge that opens its connections with `connector`.
    fn new(core: Arc<BridgeCore>, connector: Arc<dyn UpstreamConnector>) -> Arc<Self> {
        Arc::new_cyclic(|bridge: &Weak<Self>| {
            let questions = Arc::new(Questions::new(Arc::clone(&core)));
            let connections = Arc::new(Connections::new(
                Arc::clone(&core),
                connector,
                Arc::clone(&questions),
                Weak::clone(bridge),
            ));
            let calls = Arc::new(Calls::new(
                Arc::clone(&core),
                Arc::clone(&connections),
                Arc::clone(&questions),
            ));
            let retries = Retries::new(
                Arc::clone(&core),
                Arc::clone(&calls),
                Arc::clone(&questions),
            );
            let tasks = ServerTasks::new(
                Arc::clone(&core),
                Arc::clone(&connections),
                Arc::clone(&questions),
            );
            let listening = Listening::new(Arc::clone(&core), Arc::clone(&connections));
            Self {
                core,
                connections,
                questions,
                calls,
                retries: Arc::new(retries),
                tasks: Arc::new(tasks),
                listening: Arc::new(listening),
            }
        })
    }

    /// Gives a request of the client to the part that handles it.
    async fn take_request(
        &self,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some(request) = ModernRequest::of(message, envelope) else {
            return Ok(SendOutcome::Delivered);
        };
        let ModernRequest {
            method, id, params, ..
        } = request;
        if self.core.state.lock().is_in_flight(id) {
            return Err(UpstreamError::Garbled {
                reason: "a request with this id is already in flight",
            });
        }
        let meta = RequestMeta::read(params);
        let checked = meta.check_revision();
        if let Err(error) = checked.and_then(|()| meta.check_complete(method)) {
            self.core.deliver_error(id, &error).await;
            return Ok(SendOutcome::Delivered);
        }
        if method == method::SUBSCRIPTIONS_LISTEN {
            return self.listening.listen(request).await;
        }
        if is_about_tasks(method) {
            return self.tasks.take(request).await;
        }
        let request_state = params
            .and_then(|params| edit::member(params, "requestState"))
            .filter(|state| *state != "null");
        match request_state {
            Some(state) if takes_input(method) => self.retries.retry(request, state).await,
            _ => self.calls.call(request, 0).await,
        }
    }

    async fn take_notification(&self, message: &Message, envelope: &Envelope) {
        if envelope.method() != Some(method::NOTIFICATIONS_CANCELLED) {
            tracing::debug!("dropped a notification that belongs to no request");
            return;
        }
        let named = message
            .params(envelope)
            .and_then(|params| edit::member(params, "requestId"));
        let Some(id) = named.and_then(RequestId::from_json) else {
            return;
        };
        if !self.listening.stop(&id) && !self.tasks.forget_request(&id) {
            self.calls.cancel(&id, message, envelope).await;
        }
    }

    /// Answers each request of a batch with an error.
    async fn refuse_batch(&self, message: &Message) {
        let error = RpcError::new(
            RpcErrorCode::InvalidRequest,
            "this protocol revision does not support JSON-RPC batches",
        );
        for id in message.request_ids() {
            self.core.deliver_error(id, &error).await;
        }
    }
}
