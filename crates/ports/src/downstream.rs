//! The port towards the client: messages that the application sends to it.
//!
//! # Promises
//!
//! - **Order.** Messages of one route arrive in the order in which they were delivered. Deliveries
//!   on different routes may run at the same time.
//! - **Bytes.** A message arrives with its bytes. Line breaks between its members may become spaces.
//! - **Streams.** If the transport has a stream for each request, a response ends the stream of its
//!   request, [`ClientLink::finish`] ends it without one, and both leave other streams open. A
//!   request that is unknown, or was answered, can be finished without effect.
//! - **Delivery returns.** It never fails for the caller. Where a client is gone it drops the
//!   message. Transports other than standard output wait a bounded time for a client that does not
//!   read.
//! - **Messages of no request.** They are dropped where the transport has no place for them
//!   (revision 2026-07-28 over HTTP).
//! - **Closing.** Messages that were delivered before arrive, and then the session ends. Calls of
//!   any method afterwards do nothing.
//!
//! `contract::downstream` has a clause for each. The link of one upstream session to its client
//! session is the exception from the last promise: closing it ends nothing.

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

/// The sending half of one client session. It keeps the [promises](self#promises) of the module.
#[async_trait]
pub trait ClientLink: Send + Sync + fmt::Debug {
    /// Queues a message for the client. Waits while the client reads too slowly.
    async fn deliver(&self, message: Message, route: Route);

    /// Ends the stream of a request that will not be answered. Does nothing for an unknown request.
    async fn finish(&self, request: &RequestId);

    /// Ends the session on the transport. Later calls of any method do nothing.
    async fn close(&self);
}
