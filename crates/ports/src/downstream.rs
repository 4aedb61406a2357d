//! Towards the client: what the application sends to it.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::message::{Message, RequestId};

/// Where a message to the client belongs on transports that have more than one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the stream on which the client sent this request.
    Related(RequestId),
    /// To no request in particular.
    Standalone,
}

/// The sending half of one client session.
///
/// Messages of one route reach the client in the order in which they were delivered. Delivery
/// never fails towards the caller: a client that is gone is noticed by the transport, which then
/// ends the session. A message that answers a request ends the stream of that request.
#[async_trait]
pub trait ClientLink: Send + Sync + fmt::Debug {
    /// Queues a message for the client; waits while the client reads too slowly.
    async fn deliver(&self, message: Message, route: Route);

    /// Ends the stream of a request that will not be answered; harmless for unknown requests.
    async fn finish(&self, request: &RequestId);

    /// Ends the session on the transport. Later calls of any method do nothing.
    async fn close(&self);
}
