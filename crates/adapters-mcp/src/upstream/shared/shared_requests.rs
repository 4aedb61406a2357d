//! The requests that concern all sessions: the handshake and the subscriptions to resources.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use tokio::time::Instant;

use super::hub::{Handshake, Hub};
use super::outgoing::{Link, TOO_MANY};
use super::requests::{Purpose, Waiter};
use super::rewriting::with_number;
use super::session_handle::{DeliveryPath, Report};
use super::subscriptions::{JoinOutcome, LeaveOutcome};

/// The timeout for a handshake that another session began, measured from its beginning.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The handling of a request that concerns all sessions.
pub(super) enum SharedStep {
    /// Send to the server under this number.
    Send(u64),
    /// Wait for the answer to the equal request of another session.
    Wait,
    /// Answer locally with this text.
    Answer(String),
}

impl Hub {
    /// Sends a request that concerns all sessions if the server has to know of it. Once sent, the
    /// request does not depend on its session any more.
    pub(super) async fn send_shared(
        self: &Arc<Self>,
        link: &Link,
        taker: &Waiter,
        message: &Message,
        decide: impl FnOnce() -> Result<SharedStep, UpstreamError>,
    ) -> Result<SendOutcome, UpstreamError> {
        // Decision and sending are one step. Otherwise `subscribe` and `unsubscribe` of two
        // sessions could reach the server in the wrong order.
        let _order = self.in_order.lock().await;
        let number = match decide()? {
            SharedStep::Wait => return Ok(SendOutcome::Delivered),
            SharedStep::Answer(text) => {
                if let Ok(answer) = Message::from_text(text) {
                    let report = Report::Message(answer, Some(taker.id.clone()));
                    self.report(taker.seat, report, DeliveryPath::Queued).await;
                }
                return Ok(SendOutcome::Delivered);
            }
            SharedStep::Send(number) => number,
        };
        let sent = match message.single() {
            Some(envelope) => {
                self.send_own(link, with_number(message, envelope, number))
                    .await
            }
            None => Ok(()),
        };
        if let Err(error) = sent {
            self.drop_undelivered(number, taker, &error).await;
            return Err(error);
        }
        Ok(SendOutcome::Delivered)
    }

    pub(super) fn begin_handshake(&self, taker: &Waiter) -> Result<SharedStep, UpstreamError> {
        let mut state = self.usable_state(taker.seat)?;
        match &state.handshake {
            Handshake::Done(result) => Ok(SharedStep::Answer(success(&taker.id, result))),
            Handshake::Asked(_, since) if since.elapsed() > HANDSHAKE_TIMEOUT => {
                drop(state);
                self.retire();
                Err(UpstreamError::SessionExpired)
            }
            &Handshake::Asked(number, _) => {
                state.requests.add_waiter(number, taker.clone());
                Ok(SharedStep::Wait)
            }
            Handshake::None => {
                let opened = state
                    .requests
                    .open(Purpose::Initialize, Some(taker.clone()), None);
                let number = opened.ok_or(TOO_MANY)?;
                state.handshake = Handshake::Asked(number, Instant::now());
                Ok(SharedStep::Send(number))
            }
        }
    }

    pub(super) fn subscribe(&self, taker: &Waiter, uri: &str) -> Result<SharedStep, UpstreamError> {
        let mut state = self.usable_state(taker.seat)?;
        match state.subscriptions.join(taker.seat, uri) {
            JoinOutcome::First => {
                let purpose = Purpose::Subscribe(uri.into());
                let opened = state.requests.open(purpose, Some(taker.clone()), None);
                let Some(number) = opened else {
                    state.subscriptions.leave(taker.seat, uri);
                    return Err(TOO_MANY);
                };
                state.subscriptions.set_pending_request(uri, number);
                Ok(SharedStep::Send(number))
            }
            JoinOutcome::Asked(number) => {
                state.requests.add_waiter(number, taker.clone());
                Ok(SharedStep::Wait)
            }
            JoinOutcome::Known => Ok(SharedStep::Answer(success(&taker.id, "{}"))),
            JoinOutcome::Full => {
                let text = "too many resource subscriptions over the shared connection";
                let error = RpcError::new(RpcErrorCode::LimitReached, text);
                Ok(SharedStep::Answer(error.to_json(Some(&taker.id))))
            }
        }
    }

    pub(super) fn unsubscribe(
        &self,
        taker: &Waiter,
        uri: &str,
    ) -> Result<SharedStep, UpstreamError> {
        let mut state = self.usable_state(taker.seat)?;
        if state.subscriptions.leave(taker.seat, uri) == LeaveOutcome::Kept {
            return Ok(SharedStep::Answer(success(&taker.id, "{}")));
        }
        let opened = state
            .requests
            .open(Purpose::Plain, Some(taker.clone()), None);
        opened.map(SharedStep::Send).ok_or(TOO_MANY)
    }
}

fn success(id: &RequestId, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}
