//! The `subscriptions/listen` requests, which stay in flight while the client is notified of
//! changes.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bridge_core::BridgeCore;
use super::call::ModernRequest;
use super::connection::{Connection, connection_lost};
use super::opening::Connections;
use super::state::{ListenFilter, ListenRequest};
use super::subscription::{self, acknowledgement};
use super::welcome::{Hello, Welcome};

/// The maximum number of listen requests of one client.
const MAX_LISTENS: usize = 64;
/// The maximum number of changes that are queued before the acknowledgement.
const MAX_EARLY: usize = 64;
/// The maximum number of consecutive failures to listen again.
const MAX_FAILURES: u32 = 6;
/// The back-off between attempts to listen again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(3_200));
/// The lifetime after which a connection counts as sound and the count of failures restarts.
const SOUND_AFTER: Duration = Duration::from_secs(10);

/// The listen requests of the client and the subscriptions that they need.
#[derive(Debug)]
pub(super) struct Listening {
    core: Arc<BridgeCore>,
    connections: Arc<Connections>,
}

impl Listening {
    /// Returns a listener without requests.
    pub(super) fn new(core: Arc<BridgeCore>, connections: Arc<Connections>) -> Self {
        Self { core, connections }
    }

    /// Handles a listen request.
    pub(super) async fn listen(
        self: &Arc<Self>,
        request: ModernRequest<'_>,
    ) -> Result<SendOutcome, UpstreamError> {
        let ModernRequest { id, params, .. } = request;
        let refusal = match subscription::requested_filter(params) {
            Err(reason) => Err(RpcError::new(RpcErrorCode::InvalidParams, reason)),
            Ok(wanted) => self.register(id, wanted),
        };
        let stop = match refusal {
            Ok(stop) => stop,
            Err(error) => {
                self.core.deliver_error(id, &error).await;
                return Ok(SendOutcome::Delivered);
            }
        };
        let hello = Arc::new(Hello::of(&RequestMeta::read(params)));
        let (listening, id) = (Arc::clone(self), id.clone());
        let is_acknowledged = CancellationToken::new();
        let is_settled = is_acknowledged.clone();
        self.core.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = listening.keep_listening(&id, &hello, &is_acknowledged) => {}
            }
            is_acknowledged.cancel();
        });
        Ok(self.core.under_way(is_settled.cancelled_owned()))
    }

    fn register(
        &self,
        id: &RequestId,
        wanted: ListenFilter,
    ) -> Result<CancellationToken, RpcError> {
        let mut state = self.core.state.lock();
        if state.listens.len() >= MAX_LISTENS {
            let text = "too many open listen requests; cancel some of them";
            return Err(RpcError::new(RpcErrorCode::LimitReached, text));
        }
        let stop = CancellationToken::new();
        let listen = ListenRequest {
            wanted,
            honoured: None,
            connection: None,
            early: Vec::new(),
            turn: Arc::default(),
            stop: stop.clone(),
        };
        state.listens.insert(id.clone(), listen);
        Ok(stop)
    }

    /// Listens over one connection after the other until too many attempts fail.
    async fn keep_listening(
        &self,
        id: &RequestId,
        hello: &Arc<Hello>,
        is_acknowledged: &CancellationToken,
    ) {
        let mut failures = FailureStreak::new(BACKOFF).with_sound_lifetime(SOUND_AFTER);
        let error = loop {
            let started = Instant::now();
            match self.listen_once(id, hello).await {
                Ok(connection) => {
                    is_acknowledged.cancel();
                    connection.wait_retired().await;
                }
                // The first attempt is not repeated, so that the client gets its error.
                Err(error) if !is_acknowledged.is_cancelled() => break error,
                Err(_) => {}
            }
            let wait = failures.record_loss(started.elapsed(), fastrand::f64());
            if failures.n_failures() > MAX_FAILURES {
                break connection_lost();
            }
            tokio::time::sleep(wait).await;
        };
        if self.core.state.lock().listens.remove(id).is_some() {
            self.core.report_unanswered(id, error).await;
        }
    }

    /// Subscribes over the current connection. Sends the acknowledgement the first time.
    async fn listen_once(
        &self,
        id: &RequestId,
        hello: &Arc<Hello>,
    ) -> Result<Arc<Connection>, UpstreamError> {
        let (connection, wanted) = {
            let mut state = self.core.state.lock();
            let connection = self.connections.connection_for(&mut state, hello)?;
            let listen = state.listens.get_mut(id).ok_or_else(connection_lost)?;
            listen.connection = Some(Arc::clone(&connection));
            (connection, listen.wanted.clone())
        };
        let welcome = connection.wait_open().await?;
        let honoured = self.subscribe(&connection, &welcome, &wanted).await?;
        let turn = {
            let state = self.core.state.lock();
            Arc::clone(&state.listens.get(id).ok_or_else(connection_lost)?.turn)
        };
        let _turn = turn.lock().await;
        let (is_first, early) = {
            let mut state = self.core.state.lock();
            let listen = state.listens.get_mut(id).ok_or_else(connection_lost)?;
            let is_first = listen.honoured.replace(honoured.clone()).is_none();
            (is_first, std::mem::take(&mut listen.early))
        };
        if is_first {
            self.core.deliver(acknowledgement(id, &honoured), id).await;
        }
        for change in early {
            self.core.deliver(change, id).await;
        }
        Ok(connection)
    }

    /// Subscribes to the supported part of a filter and returns that part.
    async fn subscribe(
        &self,
        connection: &Connection,
        welcome: &Welcome,
        wanted: &ListenFilter,
    ) -> Result<ListenFilter, UpstreamError> {
        let lists = wanted.lists.iter().copied();
        let lists = lists
            .filter(|list| welcome.tells_changes_of(list))
            .collect();
        let Some(uris) = wanted.uris.as_ref().filter(|_| welcome.has_subscriptions()) else {
            return Ok(ListenFilter { lists, uris: None });
        };
        let _subscribing = connection.subscribing.lock().await;
        let mut accepted = Vec::new();
        for uri in uris {
            if self
                .ask_for(connection, method::RESOURCES_SUBSCRIBE, uri)
                .await?
            {
                accepted.push(uri.clone());
            }
        }
        Ok(ListenFilter {
            lists,
            uris: Some(accepted),
        })
    }

    /// Sends `resources/subscribe` or `resources/unsubscribe`. Returns whether the server accepted
    /// it.
    async fn ask_for(
        &self,
        connection: &Connection,
        method: &str,
        uri: &str,
    ) -> Result<bool, UpstreamError> {
        let number = self.core.state.lock().next_number();
        let request = subscription::request(number, method, uri);
        match connection
            .ask(request, self.core.options.handshake_timeout)
            .await
        {
            Ok(answer) => Ok(subscription::is_agreed(&answer)),
            // The server may still answer other requests.
            Err(UpstreamError::NoAnswer) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends a listen request. Returns whether there was one with this id.
    pub(super) fn stop(self: &Arc<Self>, id: &RequestId) -> bool {
        let Some(listen) = self.core.state.lock().listens.remove(id) else {
            return false;
        };
        listen.stop.cancel();
        let listening = Arc::clone(self);
        if let (Some(connection), Some(uris)) = (listen.connection, listen.wanted.uris) {
            self.core.tasks.spawn(async move {
                if let Err(error) = listening.unsubscribe(&connection, &uris).await {
                    tracing::debug!("failed to end subscriptions: {error}");
                }
            });
        }
        true
    }

    /// Ends the subscriptions that no other listen request needs.
    async fn unsubscribe(
        &self,
        connection: &Connection,
        uris: &[Box<str>],
    ) -> Result<(), UpstreamError> {
        let welcome = connection.wait_open().await?;
        let _subscribing = connection.subscribing.lock().await;
        for uri in uris.iter().filter(|_| welcome.has_subscriptions()) {
            let is_wanted = {
                let state = self.core.state.lock();
                state.listens.values().any(|listen| {
                    let is_here = listen
                        .connection
                        .as_ref()
                        .is_some_and(|other| other.number == connection.number);
                    is_here
                        && listen
                            .wanted
                            .uris
                            .as_ref()
                            .is_some_and(|uris| uris.contains(uri))
                })
            };
            if !is_wanted {
                self.ask_for(connection, method::RESOURCES_UNSUBSCRIBE, uri)
                    .await?;
            }
        }
        Ok(())
    }

    /// Notifies the listeners of a changed list.
    pub(super) async fn list_changed(&self, list: &str, message: &Message) {
        self.tell_listeners(message, |filter| filter.lists.contains(list))
            .await;
    }

    /// Notifies the listeners of a changed resource.
    pub(super) async fn resource_updated(&self, message: &Message, params: Option<&str>) {
        let Some(uri) = params.and_then(subscription::uri_of) else {
            return;
        };
        self.tell_listeners(message, |filter| subscription::covers(filter, &uri))
            .await;
    }

    async fn tell_listeners(&self, message: &Message, is_wanted: impl Fn(&ListenFilter) -> bool) {
        let told: Vec<_> = {
            let mut state = self.core.state.lock();
            let listens = state.listens.iter_mut();
            let mut told = Vec::new();
            for (id, listen) in listens {
                let change = subscription::change(message, id);
                match &listen.honoured {
                    Some(filter) if is_wanted(filter) => {
                        told.push((id.clone(), Arc::clone(&listen.turn), change));
                    }
                    None if is_wanted(&listen.wanted) && listen.early.len() < MAX_EARLY => {
                        listen.early.push(change);
                    }
                    _ => {}
                }
            }
            told
        };
        for (id, turn, change) in told {
            let _turn = turn.lock().await;
            let is_there = self.core.state.lock().listens.contains_key(&id);
            if is_there {
                self.core.deliver(change, &id).await;
            }
        }
    }
}
