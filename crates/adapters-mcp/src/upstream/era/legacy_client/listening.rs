//! The task that keeps one notification stream open, and the requests that change its
//! subscriptions.

use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::peers::Peers;
use super::subscriptions::{
    NextAction, StreamOutcome, SubscriptionOffer, SubscriptionReply, SubscriptionWish,
    Subscriptions,
};

#[derive(Debug)]
pub(super) struct NotificationStream {
    peers: Arc<Peers>,
    subscriptions: Mutex<Subscriptions>,
    /// Wakes the task that maintains the stream.
    changed: Notify,
}

impl NotificationStream {
    /// Returns a stream that is not open yet.
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        Self {
            peers,
            subscriptions: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Stores the notifications that the server supports. Earlier subscriptions end with it.
    pub(super) fn set_offer(&self, offer: SubscriptionOffer) {
        self.subscriptions.lock().set_offer(offer);
        self.changed.notify_one();
    }

    /// Starts to listen to notifications of the server.
    pub(super) fn start(self: &Arc<Self>) {
        if self.subscriptions.lock().start() {
            let stream = Arc::clone(self);
            self.peers.tasks.spawn(async move { stream.listen().await });
        }
        self.changed.notify_one();
    }

    /// Forgets a request for a subscription that the client cancelled.
    pub(super) fn forget_request(&self, request: &RequestId) {
        self.subscriptions.lock().forget_request(request);
    }

    /// Returns whether messages on this stream go to the client.
    pub(super) fn is_active(&self, stream: &RequestId) -> bool {
        self.subscriptions.lock().is_active(stream)
    }

    /// Handles `resources/subscribe` and `resources/unsubscribe`.
    pub(super) async fn change_subscription(
        self: &Arc<Self>,
        id: &RequestId,
        params: Option<&str>,
        wish: SubscriptionWish,
    ) {
        let uri = params
            .and_then(|params| member(params, "uri"))
            .filter(|uri| uri.starts_with('"'));
        let Some(uri) = uri else {
            let error = RpcError::new(RpcErrorCode::InvalidParams, "missing uri");
            return self.peers.refuse(id, &error).await;
        };
        let reply = {
            let mut subscriptions = self.subscriptions.lock();
            if subscriptions.has_resources() {
                Ok(subscriptions.change(id.clone(), uri, wish))
            } else {
                Err(RpcError::new(
                    RpcErrorCode::MethodNotFound,
                    "the server does not report changes of resources",
                ))
            }
        };
        match reply {
            Ok(None) => self.start(),
            Ok(Some(reply)) => self.reply(id, reply).await,
            Err(error) => self.peers.refuse(id, &error).await,
        }
    }

    /// Registers the acknowledgement of a stream.
    pub(super) fn note_acknowledged(&self, stream: &RequestId, filter: &str) {
        let now = Instant::now();
        (self.subscriptions.lock()).note_acknowledged(stream, filter, now);
    }

    /// Registers the end of a stream. Returns whether the id belongs to a stream.
    pub(super) fn note_ended(&self, id: &RequestId, how: StreamOutcome) -> bool {
        let is_stream = self
            .subscriptions
            .lock()
            .note_ended(id, how, Instant::now());
        if is_stream {
            self.changed.notify_one();
        }
        is_stream
    }

    async fn listen(self: Arc<Self>) {
        loop {
            let due = self.subscriptions.lock().next_action(Instant::now());
            match due {
                NextAction::Nothing => self.changed.notified().await,
                NextAction::Later(then) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(then) => {}
                        () = self.changed.notified() => {}
                    }
                }
                NextAction::Open(filter) => self.open_stream(&filter).await,
                NextAction::Close(stream) => {
                    let replies = self.subscriptions.lock().forget_stream();
                    if let Some(stream) = stream {
                        self.end_stream(&stream).await;
                    }
                    self.reply_all(replies).await;
                }
            }
        }
    }

    /// Opens a stream, and closes the one that it replaces.
    async fn open_stream(&self, filter: &str) {
        let id = self.peers.next_id(InternalRequest::BridgedListen);
        let (old, number, outcome) = {
            let mut subscriptions = self.subscriptions.lock();
            let old = subscriptions.active();
            let (number, outcome) = subscriptions.open(id.clone());
            (old, number, outcome)
        };
        // Read afterwards: a new handshake changes the identity first and then asks for a new
        // stream.
        let identity = self.peers.identity.lock().params();
        let params = with_member(&identity, "notifications", filter);
        let message = Message::request(&id, method::SUBSCRIPTIONS_LISTEN, Some(&params));
        let opened = async {
            match self.peers.server.send(message).await {
                Ok(SendOutcome::UnderWay(exchange)) => self.peers.tasks.drive(exchange),
                Ok(SendOutcome::Delivered) => {}
                Err(error) => return StreamOutcome::Ended(error),
            }
            let gone = StreamOutcome::Ended(UpstreamError::NoAnswer);
            outcome.await.unwrap_or(gone)
        };
        let opened = tokio::time::timeout(self.peers.options.handshake_timeout, opened).await;
        let is_late = opened.is_err();
        let opened = opened.unwrap_or(StreamOutcome::Ended(UpstreamError::NoAnswer));
        let replies = self
            .subscriptions
            .lock()
            .settle(number, &opened, Instant::now());
        self.reply_all(replies).await;
        if is_late {
            self.end_stream(&id).await;
        } else if matches!(opened, StreamOutcome::Acknowledged(_))
            && let Some(old) = old
        {
            // The old stream ends only after the new one is confirmed, so that no notification is
            // lost.
            self.end_stream(&old).await;
        }
    }

    async fn end_stream(&self, id: &RequestId) {
        let message = Message::cancellation(id, None);
        let limit = self.peers.options.handshake_timeout;
        match tokio::time::timeout(limit, self.peers.server.send(message)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("failed to close a stream: {error}"),
            Err(_) => tracing::debug!("timeout while closing a stream"),
        }
    }

    async fn reply_all(&self, replies: Vec<(RequestId, SubscriptionReply)>) {
        for (request, reply) in replies {
            self.reply(&request, reply).await;
        }
    }

    async fn reply(&self, id: &RequestId, reply: SubscriptionReply) {
        match reply {
            SubscriptionReply::Done => self.peers.answer(id, "{}").await,
            SubscriptionReply::NotServed(uri) => {
                let uri: serde_json::Value = serde_json::from_str(&uri).unwrap_or_default();
                let error = RpcError::new(
                    RpcErrorCode::InvalidParams,
                    "the server does not report changes of this resource",
                );
                self.peers
                    .refuse(id, &error.with_data(json!({ "uri": uri })))
                    .await;
            }
            SubscriptionReply::Refused(error) => {
                self.peers
                    .deliver(Message::failure(Some(id), &error), id)
                    .await;
            }
            SubscriptionReply::Unanswered(error) => {
                self.peers.client.on_unanswered(id.clone(), error).await;
            }
        }
    }
}
