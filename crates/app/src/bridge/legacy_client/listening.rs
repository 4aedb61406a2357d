//! The task that keeps one stream of notifications open, and the requests that change what it brings.

use std::sync::Arc;

use riglm_domain::edit::{member, with_member};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Sent, UpstreamError};
use serde_json::json;
use tokio::time::Instant;

use super::LegacyFace;
use super::subscriptions::{Due, Opened, Reply};

impl LegacyFace {
    /// Begins to listen to what the server reports.
    pub(super) fn start_listening(self: &Arc<Self>) {
        if self.state().subscriptions.start() {
            let face = Arc::clone(self);
            self.spawn(async move { face.listen().await });
        }
        self.changed.notify_one();
    }

    /// Deals with `resources/subscribe` and `resources/unsubscribe`.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        id: &RequestId,
        params: Option<&str>,
        is_on: bool,
    ) {
        let uri = params
            .and_then(|params| member(params, "uri"))
            .filter(|uri| uri.starts_with('"'));
        let Some(uri) = uri else {
            let error = RpcError::new(RpcErrorCode::InvalidParams, "the request has no uri");
            return self.refuse(id, &error).await;
        };
        let reply = {
            let mut state = self.state();
            if state.subscriptions.has_resources() {
                Ok(state.subscriptions.change(id.clone(), uri, is_on))
            } else {
                Err(RpcError::new(
                    RpcErrorCode::MethodNotFound,
                    "the server reports no changes of resources",
                ))
            }
        };
        match reply {
            Ok(None) => self.start_listening(),
            Ok(Some(reply)) => self.reply(id, reply).await,
            Err(error) => self.refuse(id, &error).await,
        }
    }

    /// Takes note that a stream began.
    pub(super) fn acknowledged(&self, stream: &RequestId, filter: &str) {
        let now = Instant::now();
        self.state().subscriptions.acknowledged(stream, filter, now);
    }

    /// Takes note that a stream ended, if the id is that of one.
    pub(super) fn stream_ended(&self, id: &RequestId, how: Opened) -> bool {
        let is_stream = self.state().subscriptions.ended(id, how, Instant::now());
        if is_stream {
            self.changed.notify_one();
        }
        is_stream
    }

    async fn listen(self: Arc<Self>) {
        loop {
            let due = self.state().subscriptions.due(Instant::now());
            match due {
                Due::Nothing => self.changed.notified().await,
                Due::Later(then) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(then) => {}
                        () = self.changed.notified() => {}
                    }
                }
                Due::Open(filter) => self.open_stream(&filter).await,
                Due::Close(stream) => {
                    let replies = self.state().subscriptions.closed();
                    if let Some(stream) = stream {
                        self.end_stream(&stream).await;
                    }
                    self.reply_all(replies).await;
                }
            }
        }
    }

    /// Opens a stream, and closes the one whose place it takes.
    async fn open_stream(&self, filter: &str) {
        let (id, message, number, outcome, old) = {
            let mut state = self.state();
            let id = state.next_id("listen");
            let params = with_member(&state.identity.params(), "notifications", filter);
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{params}}}"#
            );
            let old = state.subscriptions.active();
            let (number, outcome) = state.subscriptions.open(id.clone());
            (id, Message::from_text(text), number, outcome, old)
        };
        let opened = async {
            let Ok(message) = message else {
                return Opened::Ended(UpstreamError::NoAnswer);
            };
            match self.inner.send(message).await {
                Ok(Sent::UnderWay(exchange)) => self.drive(exchange),
                Ok(Sent::Delivered) => {}
                Err(error) => return Opened::Ended(error),
            }
            let gone = Opened::Ended(UpstreamError::NoAnswer);
            outcome.await.unwrap_or(gone)
        };
        let opened = tokio::time::timeout(self.options.handshake_timeout, opened).await;
        let is_late = opened.is_err();
        let opened = opened.unwrap_or(Opened::Ended(UpstreamError::NoAnswer));
        let replies = self
            .state()
            .subscriptions
            .settle(number, &opened, Instant::now());
        self.reply_all(replies).await;
        if is_late {
            self.end_stream(&id).await;
        } else if matches!(opened, Opened::Acknowledged(_))
            && let Some(old) = old
        {
            self.end_stream(&old).await;
        }
    }

    async fn end_stream(&self, id: &RequestId) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let Ok(message) = Message::from_text(text) else {
            return;
        };
        let limit = self.options.handshake_timeout;
        match tokio::time::timeout(limit, self.inner.send(message)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("a stream was not closed: {error}"),
            Err(_) => tracing::debug!("a stream was not closed in time"),
        }
    }

    async fn reply_all(&self, replies: Vec<(RequestId, Reply)>) {
        for (request, reply) in replies {
            self.reply(&request, reply).await;
        }
    }

    async fn reply(&self, id: &RequestId, reply: Reply) {
        match reply {
            Reply::Done => self.answer(id, "{}").await,
            Reply::NotServed(uri) => {
                let uri: serde_json::Value = serde_json::from_str(&uri).unwrap_or_default();
                let error = RpcError::new(
                    RpcErrorCode::InvalidParams,
                    "the server reports no changes of this resource",
                );
                self.refuse(id, &error.with_data(json!({ "uri": uri })))
                    .await;
            }
            Reply::Refused(error) => {
                let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                self.deliver(text, Some(id.clone())).await;
            }
            Reply::Unanswered(error) => self.events.unanswered(id.clone(), error).await,
        }
    }
}
