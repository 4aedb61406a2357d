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
    /// The session has passed it to the upstream session with this number, which has not taken it
    /// over yet. The token keeps it from being sent.
    Passed(u64, CancellationToken),
}

/// A request of the client that is not answered yet.
#[derive(Debug)]
struct InFlightRequest {
    handler: Handler,
    permit: RequestPermit,
    /// Whether it is a notification stream, which lasts until one side ends it.
    is_stream: bool,
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

/// The requests that count towards the limit of a session.
#[derive(Debug)]
pub(super) struct RequestCount<'a>(&'a TableState);

impl RequestCount<'_> {
    /// Returns whether there are at least `limit` requests, with `n_more` that the table does not
    /// know. Requests whose client has left and that moved to a background permit do not count; they
    /// are counted only when the limit may be reached.
    pub(super) fn reaches(&self, limit: usize, n_more: impl FnOnce() -> usize) -> bool {
        let Self(state) = self;
        let n_all = state.in_flight.len() + state.n_ending + n_more();
        let is_in_background = |request: &&InFlightRequest| request.permit.is_in_background();
        n_all >= limit && {
            let n_in_background = state.in_flight.values().filter(is_in_background).count();
            n_all - n_in_background >= limit
        }
    }
}

/// The reason why a request cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAdded<E> {
    /// A request with this id is in flight.
    Duplicate,
    /// The client cancelled the request before the upstream session took it over.
    Cancelled,
    NoPermit(E),
}

impl ClientRequests {
    /// Adds a request for this handler. `admit` gets the requests that are there, and makes the permit. A request that was [passed](Self::pass) to the upstream session of the
    /// handler is taken over as it is.
    ///
    /// # Errors
    ///
    /// Returns [`NotAdded::Duplicate`] for an id that is in flight, [`NotAdded::Cancelled`] for a
    /// passed request that was cancelled, and the error of `admit`.
    pub(super) fn add<E>(
        &self,
        id: &RequestId,
        handler: Handler,
        is_stream: bool,
        admit: impl FnOnce(RequestCount<'_>) -> Result<RequestPermit, E>,
    ) -> Result<(), NotAdded<E>> {
        let mut state = self.state.lock();
        if let Some(known) = state.in_flight.get_mut(id) {
            let Handler::Passed(to, cancel) = &known.handler else {
                return Err(NotAdded::Duplicate);
            };
            if !matches!(handler, Handler::Upstream(number) if number == *to) {
                return Err(NotAdded::Duplicate);
            }
            if cancel.is_cancelled() {
                return Err(NotAdded::Cancelled);
            }
            known.handler = handler;
            return Ok(());
        }
        let permit = admit(RequestCount(&state)).map_err(NotAdded::NoPermit)?;
        let request = InFlightRequest {
            handler,
            permit,
            is_stream,
        };
        state.in_flight.insert(id.clone(), request);
        Ok(())
    }

    /// Passes a request of the session to an upstream session, with its permit and the presence of
    /// its client. Returns false if it was cancelled.
    pub(super) fn pass(&self, id: &RequestId, number: u64) -> bool {
        let mut state = self.state.lock();
        let Some(request) = state.in_flight.get_mut(id) else {
            return false;
        };
        match &request.handler {
            Handler::Session(cancel) if !cancel.is_cancelled() => {
                request.handler = Handler::Passed(number, cancel.clone());
                true
            }
            _ => false,
        }
    }

    /// Removes a request that ends in the session, also if it was passed and not taken over. Returns
    /// `None` if an upstream session answers it.
    pub(super) fn end_in_session(self: &Arc<Self>, id: &RequestId) -> Option<EndingRequest> {
        let is_upstream = matches!(self.handler(id), Some(Handler::Upstream(_)));
        if is_upstream { None } else { self.end(id) }
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

    fn add(
        table: &ClientRequests,
        number: i64,
        is_stream: bool,
    ) -> Result<(), NotAdded<Infallible>> {
        let permit = |_: RequestCount<'_>| Ok(RequestPermit::default());
        table.add(&id(number), Handler::Upstream(0), is_stream, permit)
    }

    #[test]
    fn an_id_is_free_again_once_its_request_ends() {
        let table = Arc::new(ClientRequests::default());
        add(&table, 1, false).unwrap();
        let again = add(&table, 1, false);
        assert_eq!(again, Err(NotAdded::Duplicate));
        let ending = table.end(&id(1)).unwrap();
        assert!(!table.is_empty(), "its end has not reached the client yet");
        let counted = |count: RequestCount<'_>| {
            assert!(count.reaches(1, || 0), "an ending request counts");
            assert!(!count.reaches(2, || 0) && count.reaches(2, || 1));
            Ok::<_, Infallible>(RequestPermit::default())
        };
        (table.add(&id(1), Handler::Upstream(0), false, counted)).unwrap();
        drop(ending);
        drop(table.end(&id(1)));
        assert!(table.is_empty());
        assert!(table.end(&id(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_requests_but_not_streams() {
        let table = Arc::new(ClientRequests::default());
        add(&table, 1, true).unwrap();
        assert!(table.drain(Duration::from_secs(1)).await);
        add(&table, 2, false).unwrap();
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
    async fn requests_of_departed_clients_do_not_delay_the_drain() {
        let table = Arc::new(ClientRequests::default());
        add(&table, 1, false).unwrap();
        table.note_presence(&id(1), ClientPresence::Left, || None);
        assert!(table.is_left(&id(1)));
        assert!(table.drain(Duration::from_secs(1)).await);
        table.note_presence(&id(1), ClientPresence::Back, || None);
        assert!(!table.drain(Duration::from_secs(1)).await);
    }

    #[test]
    fn passed_requests_are_taken_over_once_unless_cancelled() {
        let permit = |_: RequestCount<'_>| Ok::<_, Infallible>(RequestPermit::default());
        for is_cancelled in [false, true] {
            let table = Arc::new(ClientRequests::default());
            let cancel = CancellationToken::new();
            let session = Handler::Session(cancel.clone());
            table.add(&id(1), session, false, permit).unwrap();
            table.note_presence(&id(1), ClientPresence::Left, || None);
            assert!(table.pass(&id(1), 7));
            let other = table.add(&id(1), Handler::Upstream(8), false, permit);
            assert_eq!(other, Err(NotAdded::Duplicate));
            if is_cancelled {
                cancel.cancel();
            }
            let taken = table.add(&id(1), Handler::Upstream(7), false, permit);
            if is_cancelled {
                assert_eq!(taken, Err(NotAdded::Cancelled));
                assert!(table.end_in_session(&id(1)).is_some());
                continue;
            }
            taken.unwrap();
            assert!(table.is_left(&id(1)), "the presence of the client stays");
            let again = table.add(&id(1), Handler::Upstream(7), false, permit);
            assert_eq!(again, Err(NotAdded::Duplicate));
            assert!(table.end_in_session(&id(1)).is_none());
        }
        let table = ClientRequests::default();
        let cancel = CancellationToken::new();
        cancel.cancel();
        table
            .add(&id(1), Handler::Session(cancel), false, permit)
            .unwrap();
        assert!(
            !table.pass(&id(1), 7),
            "a cancelled request is not passed on"
        );
    }
}
