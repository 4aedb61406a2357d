//! The table of the requests that one client has in flight, whoever answers them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::message::RequestId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::request_permits::{ClientPresence, PrincipalPermit, RequestPermit};

/// The side that answers a request of the client.
#[derive(Clone, Debug)]
pub(super) enum Handler {
    /// The upstream session with this number.
    Upstream(u64),
    /// The session itself. The token cancels the work.
    Session(CancellationToken),
}

/// A request of the client that is not answered yet.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    pub(super) handler: Handler,
    pub(super) permit: RequestPermit,
    /// Whether it is a notification stream, which lasts until one side ends it.
    pub(super) is_stream: bool,
}

/// The requests of one client in flight. Each request has a permit until its end has reached the
/// client.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    state: Mutex<TableState>,
    has_fewer: Notify,
}

#[derive(Debug, Default)]
struct TableState {
    in_flight: HashMap<RequestId, InFlightRequest>,
    /// The number of removed requests whose end has not reached the client yet.
    n_ending: usize,
}

/// The reason why a request cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAdded<E> {
    /// A request with this id is in flight.
    Duplicate,
    /// The request has no permit.
    NoPermit(E),
}

impl ClientRequests {
    /// Adds a request. `admit` gets the number of requests that count towards the limit of the
    /// session (not those whose client has left and that moved to a background permit), and makes
    /// the entry.
    ///
    /// # Errors
    ///
    /// Returns [`NotAdded::Duplicate`] for an id that is in flight, and the error of `admit`.
    pub(super) fn add<E>(
        &self,
        id: &RequestId,
        admit: impl FnOnce(usize) -> Result<InFlightRequest, E>,
    ) -> Result<(), NotAdded<E>> {
        let mut state = self.state.lock();
        if state.in_flight.contains_key(id) {
            return Err(NotAdded::Duplicate);
        }
        let n_in_background = (state.in_flight.values())
            .filter(|request| request.permit.is_in_background())
            .count();
        let n_counted = state.in_flight.len() + state.n_ending - n_in_background;
        let request = admit(n_counted).map_err(NotAdded::NoPermit)?;
        state.in_flight.insert(id.clone(), request);
        Ok(())
    }

    /// Returns the handler of a request in flight.
    pub(super) fn handler(&self, id: &RequestId) -> Option<Handler> {
        let state = self.state.lock();
        state
            .in_flight
            .get(id)
            .map(|request| request.handler.clone())
    }

    /// Removes a request that ends. Its id is free from now on. Its permit is released, and it
    /// counts as ended, once the result is dropped. Returns `None` for an id that is not in flight.
    pub(super) fn end(self: &Arc<Self>, id: &RequestId) -> Option<EndingRequest> {
        let mut state = self.state.lock();
        let request = state.in_flight.remove(id)?;
        state.n_ending += 1;
        Some(EndingRequest {
            table: Arc::clone(self),
            _permit: request.permit,
        })
    }

    /// Registers the presence of the client for a request. `background` takes a permit for a
    /// request whose client has left.
    pub(super) fn note_presence(
        &self,
        id: &RequestId,
        presence: ClientPresence,
        background: impl FnOnce() -> Option<PrincipalPermit>,
    ) {
        {
            let mut state = self.state.lock();
            if let Some(request) = state.in_flight.get_mut(id) {
                request.permit.note(presence, background);
            }
        }
        self.has_fewer.notify_waiters();
    }

    /// Returns whether the client has left a request in flight, so that nothing waits for its end.
    pub(super) fn is_left(&self, id: &RequestId) -> bool {
        let state = self.state.lock();
        (state.in_flight.get(id)).is_some_and(|request| request.permit.is_left())
    }

    /// Returns whether no request is in flight or on its way to the client.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.in_flight.is_empty() && state.n_ending == 0
    }

    /// Waits at most `limit` until no request is in flight that ends by itself and whose client is
    /// present. Returns whether that was reached.
    pub(super) async fn drain(&self, limit: Duration) -> bool {
        let ended = async {
            loop {
                let fewer = self.has_fewer.notified();
                {
                    let state = self.state.lock();
                    let is_awaited =
                        |request: &InFlightRequest| !request.is_stream && !request.permit.is_left();
                    if state.n_ending == 0 && !state.in_flight.values().any(is_awaited) {
                        return;
                    }
                }
                fewer.await;
            }
        };
        tokio::time::timeout(limit, ended).await.is_ok()
    }
}

/// A request that was removed from the table and whose end is on its way to the client.
#[derive(Debug)]
pub(super) struct EndingRequest {
    table: Arc<ClientRequests>,
    _permit: RequestPermit,
}

impl Drop for EndingRequest {
    fn drop(&mut self) {
        self.table.state.lock().n_ending -= 1;
        self.table.has_fewer.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn id(number: i64) -> RequestId {
        RequestId::from_json(&number.to_string()).unwrap()
    }

    fn request(is_stream: bool) -> Result<InFlightRequest, Infallible> {
        Ok(InFlightRequest {
            handler: Handler::Upstream(0),
            permit: RequestPermit::default(),
            is_stream,
        })
    }

    #[test]
    fn an_id_is_free_again_once_its_request_ends() {
        let table = Arc::new(ClientRequests::default());
        table.add(&id(1), |_| request(false)).unwrap();
        let again = table.add(&id(1), |_| request(false));
        assert_eq!(again, Err(NotAdded::Duplicate));
        let ending = table.end(&id(1)).unwrap();
        assert!(!table.is_empty(), "its end has not reached the client yet");
        table
            .add(&id(1), |n_counted| {
                assert_eq!(n_counted, 1, "an ending request counts");
                request(false)
            })
            .unwrap();
        drop(ending);
        drop(table.end(&id(1)));
        assert!(table.is_empty());
        assert!(table.end(&id(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_requests_that_end_and_not_for_streams() {
        let table = Arc::new(ClientRequests::default());
        table.add(&id(1), |_| request(true)).unwrap();
        assert!(table.drain(Duration::from_secs(1)).await);
        table.add(&id(2), |_| request(false)).unwrap();
        assert!(!table.drain(Duration::from_secs(1)).await);
        let ending = table.end(&id(2));
        assert!(!table.drain(Duration::from_secs(1)).await);
        let (drained, ()) = tokio::join!(table.drain(Duration::from_secs(1)), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(ending);
        });
        assert!(drained);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_client_has_left_is_not_waited_for() {
        let table = Arc::new(ClientRequests::default());
        table.add(&id(1), |_| request(false)).unwrap();
        table.note_presence(&id(1), ClientPresence::Left, || None);
        assert!(table.is_left(&id(1)));
        assert!(table.drain(Duration::from_secs(1)).await);
        table.note_presence(&id(1), ClientPresence::Back, || None);
        assert!(!table.drain(Duration::from_secs(1)).await);
    }
}
