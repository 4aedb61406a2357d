//! The open exchanges by their requests, so that a cancellation finds its exchange.
//!
//! A server need not answer a cancelled request, and may leave its stream open forever. The
//! exchange must end nevertheless.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use tokio_util::sync::CancellationToken;

use super::era::Era;

#[derive(Clone, Debug, Default)]
pub(super) struct OpenExchanges(Arc<Mutex<ExchangeTable>>);

#[derive(Debug, Default)]
struct ExchangeTable {
    open: HashMap<RequestId, OpenRequest>,
    /// Distinguishes consecutive exchanges with the same request id.
    next_serial: u64,
}

#[derive(Debug)]
struct OpenRequest {
    serial: u64,
    is_modern: bool,
    cancelled: CancellationToken,
}

/// The kind of the request that a cancellation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelledRequest {
    /// A request whose cancellation is a message to the server.
    Legacy,
    /// A request that is cancelled by dropping it.
    Modern,
    /// A request that is not open, or no request.
    Unknown,
}

/// The entry of one exchange in the table, removed when it is dropped.
#[derive(Debug)]
pub(super) struct ExchangeEntry {
    exchanges: OpenExchanges,
    requests: Vec<RequestId>,
    serial: u64,
    /// Set when one of the requests is cancelled.
    pub(super) cancelled: CancellationToken,
}

impl OpenExchanges {
    /// Adds an exchange with these requests.
    pub(super) fn enter(&self, requests: &[RequestId], era: &Era) -> ExchangeEntry {
        let cancelled = CancellationToken::new();
        let mut table = self.0.lock();
        let serial = table.next_serial;
        table.next_serial += 1;
        for request in requests {
            let open = OpenRequest {
                serial,
                is_modern: matches!(era, Era::Modern(_)),
                cancelled: cancelled.clone(),
            };
            table.open.insert(request.clone(), open);
        }
        drop(table);
        ExchangeEntry {
            exchanges: self.clone(),
            requests: requests.to_vec(),
            serial,
            cancelled,
        }
    }

    /// Returns the kind of the request that a `notifications/cancelled` names.
    pub(super) fn cancelled_by(&self, message: &Message) -> CancelledRequest {
        let table = self.0.lock();
        match cancelled_request(message).and_then(|request| table.open.get(&request)) {
            Some(open) if open.is_modern => CancelledRequest::Modern,
            Some(_) => CancelledRequest::Legacy,
            None => CancelledRequest::Unknown,
        }
    }

    /// Cancels the exchange that a `notifications/cancelled` names.
    pub(super) fn note_cancelled(&self, message: &Message) {
        let table = self.0.lock();
        if let Some(open) = cancelled_request(message).and_then(|request| table.open.get(&request))
        {
            open.cancelled.cancel();
        }
    }
}

impl Drop for ExchangeEntry {
    fn drop(&mut self) {
        let mut table = self.exchanges.0.lock();
        for request in &self.requests {
            if table
                .open
                .get(request)
                .is_some_and(|open| open.serial == self.serial)
            {
                table.open.remove(request);
            }
        }
    }
}

/// Returns the request that a `notifications/cancelled` names.
pub(in super::super) fn cancelled_request(message: &Message) -> Option<RequestId> {
    let envelope = message.single()?;
    if envelope.method() != Some(method::NOTIFICATIONS_CANCELLED) {
        return None;
    }
    RequestId::from_json(member(message.params(envelope)?, "requestId")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_request_ids_belong_to_the_later_exchange() {
        let exchanges = OpenExchanges::default();
        let requests = [RequestId::Number("1".into())];
        let text = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        let cancellation = Message::from_text(text.into()).unwrap();
        let first = exchanges.enter(&requests, &Era::Legacy);
        let second = exchanges.enter(&requests, &Era::Modern(http::HeaderMap::new()));
        drop(first);
        assert_eq!(
            exchanges.cancelled_by(&cancellation),
            CancelledRequest::Modern
        );
        exchanges.note_cancelled(&cancellation);
        assert!(second.cancelled.is_cancelled());
        drop(second);
        assert_eq!(
            exchanges.cancelled_by(&cancellation),
            CancelledRequest::Unknown
        );
    }
}
