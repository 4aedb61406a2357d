//! What a link remembers: its connections, the calls on them, and what waits for somebody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use riglm_domain::message::{Message, RequestId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{Call, Ended, Seat, ServerRequest, number_of};
use super::connection::Connection;
use super::welcome::ConnectionKey;

/// How many requests of servers may wait for a call.
const MAX_KEPT: usize = 64;

/// A request of the server that no call is there for.
#[derive(Debug)]
pub(super) struct Kept {
    /// The connection it came over.
    pub(super) connection: Arc<Connection>,
    /// The request.
    pub(super) request: ServerRequest,
    /// When it is refused.
    pub(super) until: Instant,
}

/// What a client wants to be told of, or is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Lists that change: `tools`, `prompts`, `resources`.
    pub(super) lists: BTreeSet<&'static str>,
    /// Resources that change; `None` if it says nothing of them.
    pub(super) uris: Option<Vec<Box<str>>>,
}

/// A `subscriptions/listen` in flight.
#[derive(Debug)]
pub(super) struct Listen {
    /// What the client wants.
    pub(super) wanted: Filter,
    /// What it gets; `None` before it was told so.
    pub(super) honoured: Option<Filter>,
    /// The connection that the subscriptions are made over.
    pub(super) connection: Option<Arc<Connection>>,
    /// What came before the client was told what it gets.
    pub(super) early: Vec<Message>,
    /// Held while something is said to the client about it, which keeps that in order.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Ends it.
    pub(super) stop: CancellationToken,
}

/// What a link remembers.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Connections that are not over.
    pub(super) connections: HashMap<u64, Arc<Connection>>,
    /// Those that new requests go over.
    pub(super) current: HashMap<ConnectionKey, u64>,
    /// Calls by their number: the newest is the last.
    pub(super) calls: BTreeMap<u64, Call>,
    /// The calls that requests of the client wait for.
    pub(super) waiting: HashMap<RequestId, u64>,
    /// The calls that wait for a retry, by the name of the parking.
    pub(super) parked: HashMap<Box<str>, u64>,
    /// Requests of servers that wait for a call.
    pub(super) kept: Vec<Kept>,
    /// The requests of the client that listen.
    pub(super) listens: HashMap<RequestId, Listen>,
    /// Whether somebody looks after what expires.
    pub(super) is_swept: bool,
    n_numbers: u64,
}

impl State {
    /// Returns a number that was not given before.
    pub(super) fn next_number(&mut self) -> u64 {
        self.n_numbers += 1;
        self.n_numbers
    }

    /// Returns whether a request of the client with this id is in flight.
    pub(super) fn is_in_flight(&self, id: &RequestId) -> bool {
        self.waiting.contains_key(id) || self.listens.contains_key(id)
    }

    /// Returns whether something depends on a connection.
    pub(super) fn is_busy(&self, number: u64) -> bool {
        let is_it = |connection: &Arc<Connection>| connection.number == number;
        self.calls.values().any(|call| is_it(&call.connection))
            || self
                .listens
                .values()
                .any(|listen| listen.connection.as_ref().is_some_and(is_it))
    }

    /// Takes a connection out of use for what is new.
    pub(super) fn withdraw(&mut self, number: u64) {
        self.current.retain(|_, current| *current != number);
    }

    /// Returns the call that a message of the server comes on behalf of, by what the transport
    /// says.
    pub(super) fn related(&self, number: u64, related: Option<&RequestId>) -> Option<&Call> {
        let call = self.calls.get(&number_of(related?)?)?;
        (call.connection.number == number).then_some(call)
    }

    /// Returns the call whose client is to be asked for what the server wants to know: the one that
    /// the transport names, or else the newest that is running, or else the newest that is parked.
    pub(super) fn call_to_ask(&self, number: u64, related: Option<&RequestId>) -> Option<u64> {
        let named = self
            .related(number, related)
            .filter(|call| call.can_ask_if_named());
        let eligible = || {
            let calls = self.calls.values().rev();
            calls.filter(|call| call.connection.number == number && call.can_ask())
        };
        named
            .or_else(|| eligible().find(|call| call.client().is_some()))
            .or_else(|| eligible().next())
            .map(|call| call.number)
    }

    /// Returns the call that reports progress under this token.
    pub(super) fn call_with_token(&self, number: u64, token: &RequestId) -> Option<&Call> {
        self.calls.values().find(|call| {
            call.connection.number == number && call.progress_token.as_ref() == Some(token)
        })
    }

    /// Returns the call that a log message belongs to.
    pub(super) fn call_to_log(&self, number: u64, related: Option<&RequestId>) -> Option<&Call> {
        if let Some(related) = related {
            return self.related(number, Some(related));
        }
        let mut running = self
            .calls
            .values()
            .filter(|call| call.connection.number == number && call.client().is_some());
        running.next().filter(|_| running.next().is_none())
    }

    /// Keeps a request of the server for the next call; gives it back if there are too many.
    pub(super) fn keep(
        &mut self,
        connection: &Arc<Connection>,
        request: ServerRequest,
        until: Instant,
    ) -> Option<ServerRequest> {
        if self.kept.len() >= MAX_KEPT {
            return Some(request);
        }
        self.kept.push(Kept {
            connection: Arc::clone(connection),
            request,
            until,
        });
        None
    }

    /// Forgets a request that the server takes back.
    pub(super) fn server_took_back(&mut self, number: u64, id: &RequestId) {
        self.kept
            .retain(|kept| kept.connection.number != number || kept.request.id != *id);
        let calls = self.calls.values_mut();
        for call in calls.filter(|call| call.connection.number == number) {
            call.open.retain(|request| request.id != *id);
        }
    }

    /// Takes a call out that somebody waits for.
    pub(super) fn remove_call(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        match &call.seat {
            Seat::Taken(client) => {
                self.waiting.remove(&client.id);
            }
            Seat::Parked { parking, .. } => {
                self.parked.remove(parking);
            }
            Seat::Cancelled(_) => {}
        }
        Some(call)
    }

    /// Parts those who listen from a connection that is out of use.
    pub(super) fn release_listens(&mut self, number: u64) {
        for listen in self.listens.values_mut() {
            listen
                .connection
                .take_if(|connection| connection.number == number);
        }
    }

    /// Takes out what depends on a connection that is over: the calls that the client waits for.
    /// Parked ones stay until their retry.
    pub(super) fn remove_connection(
        &mut self,
        number: u64,
        ended: impl Fn() -> Ended,
    ) -> Vec<Call> {
        self.connections.remove(&number);
        self.withdraw(number);
        self.kept.retain(|kept| kept.connection.number != number);
        let calls = self.calls.values();
        let lost = calls.filter(|call| call.connection.number == number);
        let lost: Vec<u64> = lost.map(|call| call.number).collect();
        let mut removed = Vec::new();
        for number in lost {
            match self.calls.get_mut(&number) {
                Some(Call {
                    seat: Seat::Parked { ended: end, .. },
                    open,
                    ..
                }) => {
                    open.clear();
                    end.get_or_insert_with(&ended);
                }
                _ => removed.extend(self.remove_call(number)),
            }
        }
        removed
    }
}
