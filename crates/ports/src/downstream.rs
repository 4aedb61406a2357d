//! The port towards the client: messages that the application sends to it.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::mcp::message::{Message, RequestId};

/// The stream for a message to the client, on transports that have more than one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The stream on which the client sent this request.
    Related(RequestId),
    /// The stream that belongs to no request.
    Standalone,
}

/// The sending half of one client session.
///
/// Messages of one route reach the client in the order in which they were delivered. Delivery never
/// fails for the caller: the transport detects that a client is gone, and then ends the session. A
/// response ends the stream of its request.
#[async_trait]
pub trait ClientLink: Send + Sync + fmt::Debug {
    /// Queues a message for the client. Waits while the client reads too slowly.
    async fn deliver(&self, message: Message, route: Route);

    /// Ends the stream of a request that will not be answered. Does nothing for an unknown request.
    async fn finish(&self, request: &RequestId);

    /// Ends the session on the transport. Later calls of any method do nothing.
    async fn close(&self);
}
