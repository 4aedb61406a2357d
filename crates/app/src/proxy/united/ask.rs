//! Requests that the session makes of its members.

use std::sync::Arc;

use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;

use super::Ask;
use super::listen::Listen;
use crate::proxy::member::Member;
use crate::proxy::relay::Relay;
use crate::proxy::relay::completion::upstream_failure;
use crate::proxy::session::ClientSession;

/// On whose account a member is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Behalf {
    /// The request of the client.
    pub(super) request: Option<RequestId>,
    /// The stream of notifications.
    pub(super) listen: Option<Arc<Listen>>,
}

impl ClientSession {
    /// Asks one member and waits for its answer, which may be an error. Dropped, it takes the
    /// request back.
    ///
    /// # Errors
    ///
    /// Returns the proxy's own error when there is no answer.
    pub(super) async fn ask(
        self: &Arc<Self>,
        member: &Arc<Member>,
        request: &Message,
        behalf: Behalf,
    ) -> Result<Message, RpcError> {
        let id = self.united.own_id();
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            answer,
            behalf: behalf.request,
            listen: behalf.listen,
        };
        self.united.state().asks.insert(id.clone(), ask);
        let asking = Asking {
            session: Arc::clone(self),
            member: Arc::clone(member),
            id: id.clone(),
        };
        // On a task of its own: what was begun with the connection comes to its end, whoever waits.
        let (session, relay) = (Arc::clone(self), Arc::clone(&member.relay));
        let request = request.with_id(&id);
        tokio::spawn(async move {
            if !session.united.state().asks.contains_key(&id) {
                return; // It was taken back before it was made.
            }
            let asking = Arc::downgrade(&session);
            drop(session);
            let received = relay.receive(request).await;
            // It may have been taken back just before the relay knew of it.
            let is_asked = asking
                .upgrade()
                .is_some_and(|session| session.united.state().asks.contains_key(&id));
            if !is_asked && relay.is_waiting_for(&id) {
                take_back(&relay, &id).await;
            }
            match received {
                Ok(Some(exchange)) => exchange.run.await,
                Ok(None) => {}
                Err(error) => tracing::debug!("a request was not passed on: {}", error.message),
            }
        });
        let answer = answered.await;
        drop(asking);
        answer.map_err(|_| {
            let error = UpstreamError::Lost {
                reason: "it was taken out of use".into(),
            };
            upstream_failure(member.relay.upstream(), &error)
        })
    }
}

/// A request that is being made of a member.
struct Asking {
    session: Arc<ClientSession>,
    member: Arc<Member>,
    id: RequestId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let waiting = self.session.united.state().asks.remove(&self.id);
        let (Some(_), Ok(runtime)) = (waiting, tokio::runtime::Handle::try_current()) else {
            return; // It was answered.
        };
        let relay = Arc::clone(&self.member.relay);
        let id = self.id.clone();
        runtime.spawn(async move { take_back(&relay, &id).await });
    }
}

/// Takes a request back that was made of a member.
async fn take_back(relay: &Arc<Relay>, id: &RequestId) {
    let Ok(cancelled) = cancellation(id) else {
        return;
    };
    if let Err(error) = relay.receive(cancelled).await {
        tracing::debug!("a request could not be taken back: {}", error.message);
    }
}

/// Returns the notification that takes a request back.
pub(super) fn cancellation(id: &RequestId) -> Result<Message, RpcError> {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
        id.to_json()
    );
    Message::from_text(text)
        .map_err(|error| RpcError::new(RpcErrorCode::InvalidRequest, error.to_string()))
}
