//! The requests that concern what all sessions share: the handshake and the subscriptions.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Sent, UpstreamError};
use tokio::time::Instant;

use super::hub::{Handshake, Hub};
use super::outgoing::{Link, TOO_MANY};
use super::requests::{Purpose, Taker};
use super::rewriting::numbered;
use super::seat::{Report, Way};
use super::subscriptions::{Joining, Leaving};

/// How long sessions wait for a handshake that another one began, from its beginning.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);

/// What becomes of a request that concerns what all sessions share.
pub(super) enum Step {
    /// It is sent, under this number.
    Send(u64),
    /// The answer to another session's request answers it.
    Wait,
    /// It is answered here.
    Answer(String),
}

impl Hub {
    /// Sends a request that concerns what all sessions share, if the server has to know. It does
    /// not depend on its session any more once it is sent.
    pub(super) async fn pass_shared(
        self: &Arc<Self>,
        link: &Link,
        taker: &Taker,
        message: &Message,
        decide: impl FnOnce() -> Result<Step, UpstreamError>,
    ) -> Result<Sent, UpstreamError> {
        let _order = self.in_order.lock().await;
        let number = match decide()? {
            Step::Wait => return Ok(Sent::Delivered),
            Step::Answer(text) => {
                if let Ok(answer) = Message::from_text(text) {
                    let report = Report::Message(answer, Some(taker.id.clone()));
                    self.report(taker.seat, report, Way::Queued).await;
                }
                return Ok(Sent::Delivered);
            }
            Step::Send(number) => number,
        };
        let sent = match message.single() {
            Some(envelope) => {
                self.send_own(link, numbered(message, envelope, number))
                    .await
            }
            None => Ok(()),
        };
        if let Err(error) = sent {
            self.undelivered(number, taker, &error).await;
            return Err(error);
        }
        Ok(Sent::Delivered)
    }

    pub(super) fn begin_handshake(&self, taker: &Taker) -> Result<Step, UpstreamError> {
        let mut state = self.usable(taker.seat)?;
        match &state.handshake {
            Handshake::Done(result) => Ok(Step::Answer(success(&taker.id, result))),
            Handshake::Asked(_, since) if since.elapsed() > HANDSHAKE_PATIENCE => {
                drop(state);
                self.retire();
                Err(UpstreamError::SessionExpired)
            }
            &Handshake::Asked(number, _) => {
                state.requests.follow(number, taker.clone());
                Ok(Step::Wait)
            }
            Handshake::None => {
                let opened = state
                    .requests
                    .open(Purpose::Initialize, Some(taker.clone()), None);
                let number = opened.ok_or(TOO_MANY)?;
                state.handshake = Handshake::Asked(number, Instant::now());
                Ok(Step::Send(number))
            }
        }
    }

    pub(super) fn subscribe(&self, taker: &Taker, uri: &str) -> Result<Step, UpstreamError> {
        let mut state = self.usable(taker.seat)?;
        match state.subscriptions.join(taker.seat, uri) {
            Joining::First => {
                let purpose = Purpose::Subscribe(uri.into());
                let opened = state.requests.open(purpose, Some(taker.clone()), None);
                let Some(number) = opened else {
                    state.subscriptions.leave(taker.seat, uri);
                    return Err(TOO_MANY);
                };
                state.subscriptions.asked(uri, number);
                Ok(Step::Send(number))
            }
            Joining::Asked(number) => {
                state.requests.follow(number, taker.clone());
                Ok(Step::Wait)
            }
            Joining::Known => Ok(Step::Answer(success(&taker.id, "{}"))),
            Joining::Full => {
                let text = "too many resources are subscribed to over the shared connection";
                let error = RpcError::new(RpcErrorCode::LimitReached, text);
                Ok(Step::Answer(error.to_json(Some(&taker.id))))
            }
        }
    }

    pub(super) fn unsubscribe(&self, taker: &Taker, uri: &str) -> Result<Step, UpstreamError> {
        let mut state = self.usable(taker.seat)?;
        if state.subscriptions.leave(taker.seat, uri) == Leaving::Kept {
            return Ok(Step::Answer(success(&taker.id, "{}")));
        }
        let opened = state
            .requests
            .open(Purpose::Plain, Some(taker.clone()), None);
        opened.map(Step::Send).ok_or(TOO_MANY)
    }
}

fn success(id: &RequestId, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
