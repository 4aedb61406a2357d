//! `subscriptions/listen`: a request that stays in flight while the client is told of changes.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Sent, UpstreamError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Core;
use super::connection::{Connection, lost};
use super::state::{Filter, Listen};
use super::subscription::{self, acknowledged};
use super::welcome::{Hello, Welcome};

/// How many requests of one client may listen.
const MAX_LISTENS: usize = 64;
/// How many changes wait for the client to be told what it gets.
const MAX_EARLY: usize = 64;
/// How many attempts in a row to listen again may fail.
const MAX_FAILURES: u32 = 6;
/// The wait before the first of them; each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// A connection that lived this long was sound: counting begins anew.
const SOUND_AFTER: Duration = Duration::from_secs(10);

impl Core {
    /// Takes a request to listen.
    pub(super) async fn listen(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
        id: &RequestId,
    ) -> Result<Sent, UpstreamError> {
        let params = message.params(envelope);
        let refusal = match subscription::wanted(params) {
            Err(reason) => Err(RpcError::new(RpcErrorCode::InvalidParams, reason)),
            Ok(wanted) => self.register(id, wanted),
        };
        let stop = match refusal {
            Ok(stop) => stop,
            Err(error) => {
                self.deliver_error(id, &error).await;
                return Ok(Sent::Delivered);
            }
        };
        let hello = Arc::new(Hello::of(&RequestMeta::read(params)));
        let (core, id) = (Arc::clone(self), id.clone());
        let is_acknowledged = CancellationToken::new();
        let is_settled = is_acknowledged.clone();
        self.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = core.keep_listening(&id, &hello, &is_acknowledged) => {}
            }
            is_acknowledged.cancel();
        });
        Ok(self.under_way(is_settled.cancelled_owned()))
    }

    fn register(&self, id: &RequestId, wanted: Filter) -> Result<CancellationToken, RpcError> {
        let mut state = self.state();
        if state.listens.len() >= MAX_LISTENS {
            let text = "too many requests listen; cancel some of them";
            return Err(RpcError::new(RpcErrorCode::LimitReached, text));
        }
        let stop = CancellationToken::new();
        let listen = Listen {
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

    /// Listens over one connection after the other until that fails too often.
    async fn keep_listening(
        self: &Arc<Self>,
        id: &RequestId,
        hello: &Arc<Hello>,
        is_acknowledged: &CancellationToken,
    ) {
        let mut n_failures = 0;
        let error = loop {
            let started = Instant::now();
            match self.listen_once(id, hello).await {
                Ok(connection) => {
                    is_acknowledged.cancel();
                    connection.left().await;
                }
                // What never worked is not tried again behind the back of the client.
                Err(error) if !is_acknowledged.is_cancelled() => break error,
                Err(_) => {}
            }
            if started.elapsed() >= SOUND_AFTER {
                n_failures = 0;
            }
            n_failures += 1;
            if n_failures > MAX_FAILURES {
                break lost();
            }
            tokio::time::sleep(FIRST_DELAY * 2_u32.pow(n_failures - 1)).await;
        };
        if self.state().listens.remove(id).is_some() {
            self.unanswered(id, error).await;
        }
    }

    /// Makes the subscriptions over the connection that is current, and tells the client the first
    /// time what it gets.
    async fn listen_once(
        self: &Arc<Self>,
        id: &RequestId,
        hello: &Arc<Hello>,
    ) -> Result<Arc<Connection>, UpstreamError> {
        let (connection, wanted) = {
            let mut state = self.state();
            let connection = self.connection_for(&mut state, hello)?;
            let listen = state.listens.get_mut(id).ok_or_else(lost)?;
            listen.connection = Some(Arc::clone(&connection));
            (connection, listen.wanted.clone())
        };
        let welcome = connection.opened().await?;
        let honoured = self.subscribe(&connection, &welcome, &wanted).await?;
        let turn = {
            let state = self.state();
            Arc::clone(&state.listens.get(id).ok_or_else(lost)?.turn)
        };
        let _turn = turn.lock().await;
        let (is_first, early) = {
            let mut state = self.state();
            let listen = state.listens.get_mut(id).ok_or_else(lost)?;
            let is_first = listen.honoured.replace(honoured.clone()).is_none();
            (is_first, std::mem::take(&mut listen.early))
        };
        if is_first {
            self.deliver(acknowledged(id, &honoured), id).await;
        }
        for change in early {
            self.deliver(Some(change), id).await;
        }
        Ok(connection)
    }

    /// Subscribes to what the server tells of; returns what that is.
    async fn subscribe(
        &self,
        connection: &Connection,
        welcome: &Welcome,
        wanted: &Filter,
    ) -> Result<Filter, UpstreamError> {
        let lists = wanted.lists.iter().copied();
        let lists = lists
            .filter(|list| welcome.tells_changes_of(list))
            .collect();
        let Some(uris) = wanted.uris.as_ref().filter(|_| welcome.has_subscriptions()) else {
            return Ok(Filter { lists, uris: None });
        };
        let _subscribing = connection.subscribing.lock().await;
        let mut accepted = Vec::new();
        for uri in uris {
            if self.ask_for(connection, "subscribe", uri).await? {
                accepted.push(uri.clone());
            }
        }
        Ok(Filter {
            lists,
            uris: Some(accepted),
        })
    }

    /// Sends `resources/subscribe` or its opposite. Returns whether the server agreed.
    async fn ask_for(
        &self,
        connection: &Connection,
        what: &str,
        uri: &str,
    ) -> Result<bool, UpstreamError> {
        let number = self.state().next_number();
        let Some(request) = subscription::request(number, what, uri) else {
            return Ok(false);
        };
        match connection
            .ask(request, self.options.handshake_timeout)
            .await
        {
            Ok(answer) => Ok(subscription::is_agreed(&answer)),
            // The server may still answer other requests.
            Err(UpstreamError::NoAnswer) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends a request to listen; returns whether there was one with this id.
    pub(super) fn stop_listening(self: &Arc<Self>, id: &RequestId) -> bool {
        let Some(listen) = self.state().listens.remove(id) else {
            return false;
        };
        listen.stop.cancel();
        let core = Arc::clone(self);
        if let (Some(connection), Some(uris)) = (listen.connection, listen.wanted.uris) {
            self.spawn(async move {
                if let Err(error) = core.unsubscribe(&connection, &uris).await {
                    tracing::debug!("subscriptions could not be ended: {error}");
                }
            });
        }
        true
    }

    /// Ends the subscriptions that nobody else wants.
    async fn unsubscribe(
        &self,
        connection: &Connection,
        uris: &[Box<str>],
    ) -> Result<(), UpstreamError> {
        let welcome = connection.opened().await?;
        let _subscribing = connection.subscribing.lock().await;
        for uri in uris.iter().filter(|_| welcome.has_subscriptions()) {
            let is_wanted = {
                let state = self.state();
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
                self.ask_for(connection, "unsubscribe", uri).await?;
            }
        }
        Ok(())
    }

    /// Tells who listens that a list has changed.
    pub(super) async fn list_changed(&self, list: &str, message: &Message) {
        self.tell_listeners(message, |filter| filter.lists.contains(list))
            .await;
    }

    /// Tells who listens that a resource has changed.
    pub(super) async fn resource_updated(&self, message: &Message, params: Option<&str>) {
        let Some(uri) = params.and_then(subscription::uri_of) else {
            return;
        };
        self.tell_listeners(message, |filter| subscription::covers(filter, &uri))
            .await;
    }

    async fn tell_listeners(&self, message: &Message, is_wanted: impl Fn(&Filter) -> bool) {
        let told: Vec<_> = {
            let mut state = self.state();
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
            let is_there = self.state().listens.contains_key(&id);
            if is_there {
                self.deliver(Some(change), &id).await;
            }
        }
    }
}
