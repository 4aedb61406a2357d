//! The fan-out: requests that the aggregator sends to upstreams.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;

use super::listen::ListenStream;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_session::UpstreamSession;
use crate::proxy::upstream_session::completion::upstream_failure;

/// The requests of the session to upstreams that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct FanOuts(Mutex<HashMap<RequestId, FanOutRequest>>);

/// A request that the session sent to an upstream.
#[derive(Debug)]
pub(super) struct FanOutRequest {
    pub(super) answer: oneshot::Sender<Message>,
    behalf: RequestOrigin,
}

impl FanOuts {
    fn add(&self, id: RequestId, request: FanOutRequest) {
        self.0.lock().insert(id, request);
    }

    pub(super) fn take(&self, id: &RequestId) -> Option<FanOutRequest> {
        self.0.lock().remove(id)
    }

    pub(super) fn is_open(&self, id: &RequestId) -> bool {
        self.0.lock().contains_key(id)
    }

    /// Returns the request or stream for which an open request was made.
    pub(super) fn behalf(&self, id: &RequestId) -> Option<RequestOrigin> {
        self.0.lock().get(id).map(|request| request.behalf.clone())
    }
}

/// The request or stream for which an upstream is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestOrigin {
    pub(super) request: Option<RequestId>,
    pub(super) listen: Option<Arc<ListenStream>>,
}

/// Sends a request to one upstream and waits for its answer, which may be an error. The request
/// is cancelled if the future is dropped.
///
/// # Errors
///
/// Returns an error of the proxy if there is no answer.
pub(super) async fn ask(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    request: &Message,
    behalf: RequestOrigin,
) -> Result<Message, RpcError> {
    let id = session.aggregator.own_id();
    let (answer, answered) = oneshot::channel();
    let fan_outs = &session.aggregator.fan_outs;
    fan_outs.add(id.clone(), FanOutRequest { answer, behalf });
    let asking = PendingFanOut {
        session: Arc::clone(session),
        member: Arc::clone(member),
        id: id.clone(),
    };
    // Runs as a separate task, because the setup of a connection should finish even if the
    // request is cancelled.
    let (session, upstream_session) = (Arc::clone(session), Arc::clone(member));
    let request = request.with_id(&id);
    crate::proxy::log_spans::spawn(async move {
        if !session.aggregator.fan_outs.is_open(&id) {
            return; // It was taken back before it was made.
        }
        let asking = Arc::downgrade(&session);
        drop(session);
        let received = upstream_session.receive(request).await;
        // The request may have been cancelled just before the upstream session registered it.
        let is_asked = asking
            .upgrade()
            .is_some_and(|session| session.aggregator.fan_outs.is_open(&id));
        if !is_asked && upstream_session.is_waiting_for(&id) {
            cancel_at_upstream(&upstream_session, &id).await;
        }
        match received {
            Ok(Some(exchange)) => exchange.run.await,
            Ok(None) => {}
            Err(error) => tracing::debug!("failed to forward a request: {}", error.message),
        }
    });
    let answer = answered.await;
    drop(asking);
    answer.map_err(|_| {
        let error = UpstreamError::Lost {
            reason: "the connection ended".into(),
        };
        upstream_failure(member.name(), &error)
    })
}

/// A request to an upstream in progress. It is cancelled on drop.
struct PendingFanOut {
    session: Arc<ClientSession>,
    member: Arc<UpstreamSession>,
    id: RequestId,
}

impl Drop for PendingFanOut {
    fn drop(&mut self) {
        let waiting = self.session.aggregator.fan_outs.take(&self.id);
        let (Some(_), Ok(runtime)) = (waiting, tokio::runtime::Handle::try_current()) else {
            return; // It was answered.
        };
        let upstream_session = Arc::clone(&self.member);
        let id = self.id.clone();
        runtime.spawn(async move { cancel_at_upstream(&upstream_session, &id).await });
    }
}

async fn cancel_at_upstream(upstream_session: &Arc<UpstreamSession>, id: &RequestId) {
    let cancelled = Message::cancellation(id, None);
    if let Err(error) = upstream_session.receive(cancelled).await {
        tracing::debug!("failed to cancel a request: {}", error.message);
    }
}
