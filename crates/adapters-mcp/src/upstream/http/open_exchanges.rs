//! The exchanges under way, by the requests in them, so that a cancellation finds its own.
//!
//! A server need not answer a request that was cancelled, and may leave its stream open for
//! ever; the exchange has to end nevertheless.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::edit::member;
use riglm_domain::message::{Message, RequestId};
use tokio_util::sync::CancellationToken;

use super::era::Era;

/// Every open request.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenExchanges(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<RequestId, Open>,
    /// Tells exchanges apart whose requests have the same id, one after the other.
    next_serial: u64,
}

#[derive(Debug)]
struct Open {
    serial: u64,
    is_modern: bool,
    cancelled: CancellationToken,
}

/// What a cancellation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// A request whose server wants to be told.
    Legacy,
    /// A request that is cancelled by dropping it.
    Modern,
    /// A request that is not open, or none at all.
    Unknown,
}

/// The place of one exchange among those under way, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    exchanges: OpenExchanges,
    requests: Vec<RequestId>,
    serial: u64,
    /// Set when one of the requests is cancelled.
    pub(super) cancelled: CancellationToken,
}

impl OpenExchanges {
    /// Enters an exchange with these requests.
    pub(super) fn enter(&self, requests: &[RequestId], era: &Era) -> Place {
        let cancelled = CancellationToken::new();
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = table.next_serial;
        table.next_serial += 1;
        for request in requests {
            let open = Open {
                serial,
                is_modern: matches!(era, Era::Modern(_)),
                cancelled: cancelled.clone(),
            };
            table.open.insert(request.clone(), open);
        }
        drop(table);
        Place {
            exchanges: self.clone(),
            requests: requests.to_vec(),
            serial,
            cancelled,
        }
    }

    /// Returns what a `notifications/cancelled` is about.
    pub(super) fn cancelled_by(&self, message: &Message) -> Cancelled {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cancelled_request(message).and_then(|request| table.open.get(&request)) {
            Some(open) if open.is_modern => Cancelled::Modern,
            Some(_) => Cancelled::Legacy,
            None => Cancelled::Unknown,
        }
    }

    /// Tells the exchange that a `notifications/cancelled` names.
    pub(super) fn note_cancelled(&self, message: &Message) {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = cancelled_request(message).and_then(|request| table.open.get(&request))
        {
            open.cancelled.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self
            .exchanges
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
    if envelope.method() != Some("notifications/cancelled") {
        return None;
    }
    RequestId::from_json(member(message.params(envelope)?, "requestId")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_that_is_used_again_belongs_to_the_later_exchange() {
        let exchanges = OpenExchanges::default();
        let requests = [RequestId::Number("1".into())];
        let text = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        let cancellation = Message::from_text(text.into()).unwrap();
        let first = exchanges.enter(&requests, &Era::Legacy);
        let second = exchanges.enter(&requests, &Era::Modern(http::HeaderMap::new()));
        drop(first);
        assert_eq!(exchanges.cancelled_by(&cancellation), Cancelled::Modern);
        exchanges.note_cancelled(&cancellation);
        assert!(second.cancelled.is_cancelled());
        drop(second);
        assert_eq!(exchanges.cancelled_by(&cancellation), Cancelled::Unknown);
    }
}
