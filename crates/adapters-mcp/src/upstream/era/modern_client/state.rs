//! The mutable state of a link: its connections, the calls on them, and waiting requests.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use riglm_domain::mcp::message::{Message, RequestId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{Call, CallEnd, CallWaiter, ServerRequest, number_of};
use super::connection::Connection;
use super::server_tasks::{ServerTask, TaskStage};
use super::welcome::ConnectionKey;
use crate::upstream::era::tasks::TaskTools;

/// The maximum number of server requests that wait for a call.
const MAX_KEPT: usize = 64;

/// A server request that waits for a call.
#[derive(Debug)]
pub(super) struct KeptRequest {
    pub(super) connection: Arc<Connection>,
    pub(super) request: ServerRequest,
    /// The time when it is refused.
    pub(super) until: Instant,
}

/// The changes that a client subscribes to, or that are confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListenFilter {
    /// Changes of lists: `tools`, `prompts`, `resources`.
    pub(super) lists: BTreeSet<&'static str>,
    /// Changes of resources; `None` if the filter does not contain them.
    pub(super) uris: Option<Vec<Box<str>>>,
}

/// A `subscriptions/listen` request in flight.
#[derive(Debug)]
pub(super) struct ListenRequest {
    pub(super) wanted: ListenFilter,
    /// The confirmed filter; `None` before the acknowledgement.
    pub(super) honoured: Option<ListenFilter>,
    pub(super) connection: Option<Arc<Connection>>,
    /// The notifications that arrived before the acknowledgement.
    pub(super) early: Vec<Message>,
    // Locked while a message about it is delivered, so that messages stay in order.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Ends it when cancelled.
    pub(super) stop: CancellationToken,
}

/// The mutable state of a link.
#[derive(Debug, Default)]
pub(super) struct BridgeState {
    /// The connections that have not ended.
    pub(super) connections: HashMap<u64, Arc<Connection>>,
    pub(super) current: HashMap<ConnectionKey, u64>,
    /// The calls by number; the last one is the newest.
    pub(super) calls: BTreeMap<u64, Call>,
    /// The calls for which requests of the client wait.
    pub(super) waiting: HashMap<RequestId, u64>,
    /// The calls that wait for a retry, by their parking name.
    pub(super) parked: HashMap<Box<str>, u64>,
    /// The server requests that wait for a call.
    pub(super) kept: Vec<KeptRequest>,
    pub(super) listens: HashMap<RequestId, ListenRequest>,
    /// The tasks of the server that the client asks about, by name.
    pub(super) tasks: HashMap<Box<str>, ServerTask>,
    /// The requests of the client about tasks.
    pub(super) task_requests: HashSet<RequestId>,
    /// The tools that the server runs only as tasks.
    pub(super) task_tools: TaskTools,
    pub(super) is_swept: bool,
    n_numbers: u64,
}

impl BridgeState {
    /// Returns a number that is unique in the link.
    pub(super) fn next_number(&mut self) -> u64 {
        self.n_numbers += 1;
        self.n_numbers
    }

    /// Returns whether a request of the client with this id is in flight.
    pub(super) fn is_in_flight(&self, id: &RequestId) -> bool {
        self.waiting.contains_key(id)
            || self.listens.contains_key(id)
            || self.task_requests.contains(id)
    }

    /// Returns whether a connection is in use by calls, tasks or listen requests.
    pub(super) fn is_busy(&self, number: u64) -> bool {
        let is_it = |connection: &Arc<Connection>| connection.number == number;
        self.calls.values().any(|call| is_it(&call.connection))
            || self
                .tasks
                .values()
                .any(|task| task.is_active() && is_it(&task.connection))
            || self
                .listens
                .values()
                .any(|listen| listen.connection.as_ref().is_some_and(is_it))
    }

    /// Removes a connection from use for new requests.
    pub(super) fn withdraw(&mut self, number: u64) {
        self.current.retain(|_, current| *current != number);
    }

    /// Returns the call to which a message of the server belongs, according to the transport.
    pub(super) fn related_call(&self, number: u64, related: Option<&RequestId>) -> Option<&Call> {
        let call = self.calls.get(&number_of(related?)?)?;
        (call.connection.number == number).then_some(call)
    }

    /// Returns the call whose client is asked a question of the server: the call that the transport
    /// names, or else the newest running call, or else the newest parked call.
    pub(super) fn call_to_ask(&self, number: u64, related: Option<&RequestId>) -> Option<u64> {
        let named = self
            .related_call(number, related)
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

    /// Returns the call that waits for the result of a task.
    pub(super) fn call_of_task(&self, number: u64, task: &str) -> Option<u64> {
        let mut calls = self.calls.values();
        let found = calls.find(|call| {
            let is_it = matches!(&call.task, TaskStage::Running(name) if **name == *task);
            is_it && call.connection.number == number && call.can_ask_if_named()
        });
        found.map(|call| call.number)
    }

    /// Returns the call with this progress token at the server.
    pub(super) fn call_with_token(&self, number: u64, token: &RequestId) -> Option<&Call> {
        self.calls.values().find(|call| {
            call.connection.number == number && call.progress_token.as_ref() == Some(token)
        })
    }

    /// Returns the call to which a log message belongs.
    pub(super) fn call_to_log(&self, number: u64, related: Option<&RequestId>) -> Option<&Call> {
        if let Some(related) = related {
            return self.related_call(number, Some(related));
        }
        let mut running = self
            .calls
            .values()
            .filter(|call| call.connection.number == number && call.client().is_some());
        running.next().filter(|_| running.next().is_none())
    }

    /// Keeps a server request for the next call. Returns it if too many are kept.
    pub(super) fn keep(
        &mut self,
        connection: &Arc<Connection>,
        request: ServerRequest,
        until: Instant,
    ) -> Option<ServerRequest> {
        if self.kept.len() >= MAX_KEPT {
            return Some(request);
        }
        self.kept.push(KeptRequest {
            connection: Arc::clone(connection),
            request,
            until,
        });
        None
    }

    /// Removes a request that the server cancelled.
    pub(super) fn server_took_back(&mut self, number: u64, id: &RequestId) {
        self.kept
            .retain(|kept| kept.connection.number != number || kept.request.id != *id);
        let tasks = self.tasks.values_mut();
        for task in tasks.filter(|task| task.connection.number == number) {
            task.server_took_back(id);
        }
        let calls = self.calls.values_mut();
        for call in calls.filter(|call| call.connection.number == number) {
            call.open.retain(|request| request.id != *id);
        }
    }

    /// Removes a call, and its entries for the waiter.
    pub(super) fn remove_call(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        match &call.seat {
            CallWaiter::Taken(client) => {
                self.waiting.remove(&client.id);
            }
            CallWaiter::Parked { parking, .. } => {
                self.parked.remove(parking);
            }
            CallWaiter::Cancelled(_) => {}
        }
        Some(call)
    }

    /// Detaches listen requests from a retired connection.
    pub(super) fn release_listens(&mut self, number: u64) {
        for listen in self.listens.values_mut() {
            (listen.connection).take_if(|connection| connection.number == number);
        }
    }

    /// Removes an ended connection and the calls for which the client waits. Parked calls stay
    /// until their retry.
    pub(super) fn remove_connection(
        &mut self,
        number: u64,
        ended: impl Fn() -> CallEnd,
    ) -> Vec<Call> {
        self.connections.remove(&number);
        self.withdraw(number);
        self.kept.retain(|kept| kept.connection.number != number);
        self.tasks
            .retain(|_, task| task.connection.number != number);
        let calls = self.calls.values();
        let lost = calls.filter(|call| call.connection.number == number);
        let lost: Vec<u64> = lost.map(|call| call.number).collect();
        let mut removed = Vec::new();
        for number in lost {
            match self.calls.get_mut(&number) {
                Some(Call {
                    seat: CallWaiter::Parked { ended: end, .. },
                    open,
                    ..
                }) => {
                    // The questions cannot be answered without their connection.
                    open.clear();
                    end.get_or_insert_with(&ended);
                }
                _ => removed.extend(self.remove_call(number)),
            }
        }
        removed
    }
}
