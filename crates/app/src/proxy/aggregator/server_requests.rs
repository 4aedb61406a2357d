//! The requests of upstreams that wait for the client. The client knows them under ids of the
//! session, because two upstreams may choose the same id.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use riglm_domain::mcp::message::RequestId;

/// The maximum number of requests of one upstream that wait for the client. When it is reached, the
/// oldest request is dropped.
const MAX_OF_UPSTREAM: usize = 256;

/// The requests of upstreams, by the id that the client received.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ServerRequests(Mutex<HashMap<RequestId, RoutedRequest>>);

/// A request that an upstream sent to the client.
#[derive(Clone, Debug)]
pub(super) struct RoutedRequest {
    /// The number of the upstream session.
    pub(super) number: u64,
    /// The id that the upstream assigned.
    pub(super) id: RequestId,
    /// The progress token of the upstream. The client reports progress under the id that it
    /// received.
    pub(super) progress_token: Option<RequestId>,
    pub(super) asked: Instant,
}

impl ServerRequests {
    /// Stores a request under the id that the client receives. An entry with the same id of the
    /// upstream belongs to a connection that has ended, because ids are unique per connection.
    pub(super) fn add(&self, shown: RequestId, request: RoutedRequest) {
        let mut requests = self.0.lock();
        let number = request.number;
        requests.retain(|_, known| known.number != number || known.id != request.id);
        let of_upstream = || requests.iter().filter(|(_, known)| known.number == number);
        if of_upstream().count() >= MAX_OF_UPSTREAM {
            let oldest = of_upstream().min_by_key(|(_, known)| known.asked);
            let oldest = oldest.map(|(shown, _)| shown.clone());
            tracing::warn!(
                "dropped the oldest request of an upstream: too many requests wait for the client"
            );
            oldest.and_then(|oldest| requests.remove(&oldest));
        }
        requests.insert(shown, request);
    }

    /// Returns the upstream session that sent a request, and its progress token.
    pub(in crate::proxy) fn get(&self, shown: &RequestId) -> Option<(u64, Option<RequestId>)> {
        let requests = self.0.lock();
        let request = requests.get(shown)?;
        Some((request.number, request.progress_token.clone()))
    }

    /// Removes a request. Returns the upstream session that sent it, and the id that the upstream
    /// assigned.
    pub(in crate::proxy) fn take(&self, shown: &RequestId) -> Option<(u64, RequestId)> {
        let request = self.0.lock().remove(shown)?;
        Some((request.number, request.id))
    }

    /// Removes a request that its upstream cancelled. Returns the id that the client received.
    pub(super) fn take_cancelled(&self, number: u64, id: &RequestId) -> Option<RequestId> {
        let mut requests = self.0.lock();
        let mut all = requests.iter();
        let found = all.find(|(_, known)| known.number == number && known.id == *id);
        let shown = found.map(|(shown, _)| shown.clone())?;
        requests.remove(&shown);
        Some(shown)
    }

    /// Removes the requests of an upstream session that has ended.
    pub(super) fn forget_upstream(&self, number: u64) {
        self.0.lock().retain(|_, known| known.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        RequestId::from_json(&number.to_string()).unwrap()
    }

    fn request(number: u64, own: u64) -> RoutedRequest {
        RoutedRequest {
            number,
            id: id(own),
            progress_token: None,
            asked: Instant::now(),
        }
    }

    #[test]
    fn the_oldest_request_of_an_upstream_is_dropped_at_the_limit() {
        let requests = ServerRequests::default();
        requests.add(id(10_000), request(2, 1));
        for n in 0..=256 {
            requests.add(id(n), request(1, n));
        }
        assert!(requests.get(&id(0)).is_none());
        assert!(requests.get(&id(1)).is_some());
        assert!(requests.get(&id(10_000)).is_some(), "of another upstream");
    }

    #[test]
    fn a_cancelled_request_is_found_by_the_id_of_its_upstream() {
        let requests = ServerRequests::default();
        requests.add(id(1), request(1, 7));
        requests.add(id(2), request(2, 7));
        assert_eq!(requests.take_cancelled(2, &id(7)), Some(id(2)));
        assert_eq!(requests.take_cancelled(2, &id(7)), None);
        assert_eq!(requests.take(&id(1)), Some((1, id(7))));
    }
}
