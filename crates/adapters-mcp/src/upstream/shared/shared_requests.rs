//! The requests that concern all sessions: the handshake and the subscriptions to resources. The
//! state of the hub decides which of them the server has to know of.

use std::time::Duration;

use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;
use tokio::time::Instant;

use super::hub::{Handshake, HubState};
use super::outgoing::TOO_MANY;
use super::requests::{Purpose, Waiter};
use super::subscriptions::{JoinOutcome, LeaveOutcome};

/// The timeout for a handshake that another session began, measured from its beginning.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The handling of a request that concerns all sessions.
pub(super) enum SharedStep {
    /// Send to the server under this number.
    Send(u64),
    /// Wait for the answer to the equal request of another session.
    Wait,
    /// Answer locally with this message.
    Answer(Message),
    /// Set up another connection, because the server does not finish the handshake.
    GiveUp,
}

impl HubState {
    /// Decides about a request to `initialize`.
    pub(super) fn begin_handshake(&mut self, taker: &Waiter) -> Result<SharedStep, UpstreamError> {
        match &self.handshake {
            Handshake::Done(result) => Ok(SharedStep::Answer(Message::success(&taker.id, result))),
            Handshake::Asked(_, since) if since.elapsed() > HANDSHAKE_TIMEOUT => {
                Ok(SharedStep::GiveUp)
            }
            &Handshake::Asked(number, _) => {
                self.requests.add_waiter(number, taker.clone());
                Ok(SharedStep::Wait)
            }
            Handshake::None => {
                let opened = self
                    .requests
                    .open(Purpose::Initialize, Some(taker.clone()), None);
                let number = opened.ok_or(TOO_MANY)?;
                self.handshake = Handshake::Asked(number, Instant::now());
                Ok(SharedStep::Send(number))
            }
        }
    }

    /// Decides about a request to `resources/subscribe`.
    pub(super) fn subscribe(
        &mut self,
        taker: &Waiter,
        uri: &str,
    ) -> Result<SharedStep, UpstreamError> {
        match self.subscriptions.join(taker.seat, uri) {
            JoinOutcome::First => {
                let purpose = Purpose::Subscribe(uri.into());
                let opened = self.requests.open(purpose, Some(taker.clone()), None);
                let Some(number) = opened else {
                    self.subscriptions.leave(taker.seat, uri);
                    return Err(TOO_MANY);
                };
                self.subscriptions.set_pending_request(uri, number);
                Ok(SharedStep::Send(number))
            }
            JoinOutcome::Asked(number) => {
                self.requests.add_waiter(number, taker.clone());
                Ok(SharedStep::Wait)
            }
            JoinOutcome::Known => Ok(SharedStep::Answer(Message::success(&taker.id, "{}"))),
            JoinOutcome::Full => {
                let text = "too many resource subscriptions over the shared connection";
                let error = RpcError::new(RpcErrorCode::LimitReached, text);
                Ok(SharedStep::Answer(error.to_message(Some(&taker.id))))
            }
        }
    }

    /// Decides about a request to `resources/unsubscribe`.
    pub(super) fn unsubscribe(
        &mut self,
        taker: &Waiter,
        uri: &str,
    ) -> Result<SharedStep, UpstreamError> {
        if self.subscriptions.leave(taker.seat, uri) == LeaveOutcome::Kept {
            return Ok(SharedStep::Answer(Message::success(&taker.id, "{}")));
        }
        let opened = self
            .requests
            .open(Purpose::Plain, Some(taker.clone()), None);
        opened.map(SharedStep::Send).ok_or(TOO_MANY)
    }

    /// Updates the shared state when a request ends. `result` is `None` if the request failed.
    pub(super) fn settle(&mut self, number: u64, purpose: &Purpose, result: Option<&str>) {
        match (purpose, result) {
            (Purpose::Initialize, Some(result)) => {
                self.handshake = Handshake::Done(result.into());
            }
            (Purpose::Initialize, None) => self.handshake = Handshake::None,
            (Purpose::Subscribe(uri), Some(_)) => self.subscriptions.confirm(uri, number),
            (Purpose::Subscribe(uri), None) => self.subscriptions.reject(uri, number),
            (Purpose::Plain | Purpose::Own, _) => {}
        }
    }
}
