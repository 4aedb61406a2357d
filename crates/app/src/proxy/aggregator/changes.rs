//! Notifications to the client about changed lists, caused by upstreams or by a reload.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;
use serde_json::Map;
use tokio::time::Instant;

use super::shown_lists::ChangeCheck;
use crate::proxy::aggregator::listen::{attach_to_all, end_streams_of, send_on_stream};
use crate::proxy::aggregator::shown_lists::check_changed_lists;
use crate::proxy::client_context::AggregationMode;
use crate::proxy::list_kind::ListChange;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_session::UpstreamSession;
use crate::proxy::upstream_set::UpstreamSet;

/// The time within which several changes are reported as one.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The pause after an upstream reported a change of an unchanged list. It grows while false reports
/// continue. Without jitter, since it paces one upstream in one session.
const CALM: Backoff =
    Backoff::new(Duration::from_millis(250), Duration::from_secs(30)).with_jitter(0.0);
/// The time for requests in flight to a removed upstream to end.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// A calm period, during which a list of an upstream is not fetched again.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalmPeriod {
    false_reports: FailureStreak,
    pause: Duration,
    until: Instant,
}

impl CalmPeriod {
    /// Returns the next calm period after a list turned out to be unchanged.
    fn after(before: Option<&Self>, now: Instant) -> Self {
        let goes_on = before.filter(|calm| now < calm.until + calm.pause);
        let mut false_reports = goes_on.map_or(FailureStreak::new(CALM), |calm| calm.false_reports);
        let pause = false_reports.record_failure(0.0);
        Self {
            false_reports,
            pause,
            until: now + pause,
        }
    }
}

/// The possible changes of lists that are not checked yet.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ListChanges(Mutex<ChangeQueue>);

#[derive(Debug, Default)]
struct ChangeQueue {
    /// The lists that may have changed, with the upstream sessions whose lists must be fetched
    /// again.
    changed: BTreeMap<ListChange, BTreeSet<u64>>,
    /// The changes to report in any case, because the client may have seen lists that are not
    /// tracked here.
    told_anyhow: BTreeSet<ListChange>,
    /// The number of changes of each kind so far.
    n_changes: HashMap<ListChange, u64>,
    /// Whether a task checks the changes.
    is_telling: bool,
    /// The upstream sessions whose changed lists are fetched later.
    put_off: BTreeMap<ListChange, BTreeSet<u64>>,
    /// The calm periods: within one, the list of an upstream session is not fetched again.
    calm: HashMap<(ListChange, u64), CalmPeriod>,
}

impl ListChanges {
    /// Returns the number of registered changes of a kind so far.
    pub(in crate::proxy) fn n_changes(&self, kind: ListChange) -> u64 {
        let queue = self.0.lock();
        queue.n_changes.get(&kind).copied().unwrap_or_default()
    }

    /// Registers a possible change. Returns whether the caller must start the task that checks it.
    fn add(&self, kind: ListChange, members: &[u64]) -> bool {
        let mut queue = self.0.lock();
        queue.note_change(kind, members, Instant::now());
        !std::mem::replace(&mut queue.is_telling, true)
    }

    /// Reports the next change of these kinds in any case.
    fn notify_anyway(&self, kinds: impl IntoIterator<Item = ListChange>) {
        self.0.lock().told_anyhow.extend(kinds);
    }

    /// Reports a change in any case if one is not checked yet.
    pub(super) fn notify_if_changing(&self, kind: ListChange) {
        let mut queue = self.0.lock();
        if queue.is_changing(kind) {
            queue.told_anyhow.insert(kind);
        }
    }

    /// Removes and returns the changes that can be checked now. Returns `None` if no changes are
    /// left, or if `is_over`; then the task ends.
    fn take_due(&self, is_over: bool) -> Option<BTreeMap<ListChange, BTreeSet<u64>>> {
        let mut queue = self.0.lock();
        if is_over || queue.changed.is_empty() && queue.put_off.is_empty() {
            queue.is_telling = false;
            return None;
        }
        Some(queue.take_due(Instant::now()))
    }

    /// Removes the mark that a change is reported in any case. Returns whether there was one.
    fn take_notified_anyway(&self, kind: ListChange) -> bool {
        self.0.lock().told_anyhow.remove(&kind)
    }

    fn note_look(&self, kind: ListChange, members: &BTreeSet<u64>, look: ChangeCheck) {
        self.0.lock().note_look(kind, members, look);
    }

    /// Removes the state of an upstream session that has ended.
    fn forget_upstream(&self, number: u64) {
        self.0.lock().calm.retain(|(_, of), _| *of != number);
    }
}

impl ChangeQueue {
    /// Registers a possible change of a list. Upstreams in a calm period are asked later.
    fn note_change(&mut self, kind: ListChange, members: &[u64], now: Instant) {
        *self.n_changes.entry(kind).or_default() += 1;
        let (later, at_once): (Vec<u64>, Vec<u64>) =
            (members.iter()).partition(|number| self.is_left_alone(kind, **number, now));
        if !later.is_empty() {
            self.put_off.entry(kind).or_default().extend(later);
        }
        if !at_once.is_empty() || members.is_empty() {
            self.changed.entry(kind).or_default().extend(at_once);
        }
    }

    fn is_left_alone(&self, kind: ListChange, number: u64, now: Instant) -> bool {
        let calm = self.calm.get(&(kind, number));
        calm.is_some_and(|calm| now < calm.until)
    }

    /// Removes and returns the changes that can be checked now.
    fn take_due(&mut self, now: Instant) -> BTreeMap<ListChange, BTreeSet<u64>> {
        for (kind, members) in std::mem::take(&mut self.put_off) {
            let (later, due): (BTreeSet<u64>, BTreeSet<u64>) =
                (members.into_iter()).partition(|number| self.is_left_alone(kind, *number, now));
            if !later.is_empty() {
                self.put_off.insert(kind, later);
            }
            if !due.is_empty() {
                self.changed.entry(kind).or_default().extend(due);
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// Returns whether a possible change of a list is not checked yet.
    fn is_changing(&self, kind: ListChange) -> bool {
        self.changed.contains_key(&kind) || self.put_off.contains_key(&kind)
    }

    /// Registers the result of checking a list whose change upstreams reported.
    fn note_look(&mut self, kind: ListChange, members: &BTreeSet<u64>, look: ChangeCheck) {
        let now = Instant::now();
        for number in members {
            let member = (kind, *number);
            match look {
                ChangeCheck::None => {}
                ChangeCheck::Same => {
                    let calm = CalmPeriod::after(self.calm.get(&member), now);
                    self.calm.insert(member, calm);
                }
                ChangeCheck::Other => {
                    self.calm.remove(&member);
                }
            }
        }
    }
}

/// Registers a possible change of a list. It is checked shortly afterwards, and the client is
/// notified if the list differs from the one that it was shown. `members` are the upstream
/// sessions whose lists must be fetched again. An upstream in a calm period is asked later.
pub(super) fn note_list_change(session: &Arc<ClientSession>, kind: ListChange, members: &[u64]) {
    if kind == ListChange::Tools {
        session.client_context.search.forget_catalog();
    }
    check_list_later(session, kind, members);
}

/// Checks shortly afterwards whether a list differs from the one that the client was shown. Until
/// then the known tools count.
pub(super) fn check_list_later(session: &Arc<ClientSession>, kind: ListChange, members: &[u64]) {
    if !session.aggregator.changes.add(kind, members) {
        return;
    }
    let session = Arc::downgrade(session);
    crate::proxy::log_spans::spawn(async move {
        loop {
            tokio::time::sleep(DEBOUNCE).await;
            let Some(session) = session.upgrade() else {
                return;
            };
            // Notifications are sent one at a time, because they must not pile up for a client
            // that does not read.
            if !notify_changes(&session).await {
                return;
            }
        }
    });
}

/// Registers a possible change of the tool list. The lists of the upstream sessions in `members`
/// are fetched again.
pub(in crate::proxy) fn tools_changed(session: &Arc<ClientSession>, members: &[u64]) {
    note_list_change(session, ListChange::Tools, members);
}

/// Registers a possible change of every list of an upstream.
pub(in crate::proxy) fn all_changed_at(session: &Arc<ClientSession>, member: &UpstreamSession) {
    for kind in ListChange::ALL {
        note_list_change(session, kind, &[member.number]);
    }
}

/// Registers a possible change of every list, caused by what was found out about upstreams.
pub(in crate::proxy) fn all_may_have_changed(session: &Arc<ClientSession>) {
    for kind in ListChange::ALL {
        check_list_later(session, kind, &[]);
    }
}

/// Registers a change that an upstream reported. A client without a handshake may have the list
/// from another session, and is notified over the streams that it opened for this.
pub(super) fn note_reported_change(session: &Arc<ClientSession>, kind: ListChange, number: u64) {
    if !session.client_context.is_initialized() && !session.aggregator.lists.has_seen(kind.lists())
    {
        session.aggregator.changes.notify_anyway([kind]);
    }
    note_list_change(session, kind, &[number]);
}

/// Notifies the client of changed lists. Returns whether there were changes to check.
async fn notify_changes(session: &Arc<ClientSession>) -> bool {
    let changes = &session.aggregator.changes;
    let Some(due) = changes.take_due(session.is_closed()) else {
        return false;
    };
    for (kind, members) in due {
        let is_told_anyhow = changes.take_notified_anyway(kind);
        let look = if is_told_anyhow {
            // Whether it is another one is not known.
            ChangeCheck::Same
        } else {
            check_changed_lists(session, kind, &members).await
        };
        changes.note_look(kind, &members, look);
        if !is_told_anyhow && look != ChangeCheck::Other {
            continue;
        }
        if kind == ListChange::Tools {
            (session.client_context).note_change_notification(std::time::Instant::now());
            (session.shared).observe_from(&Event::ListChangeTold, &session.client_context.origin());
        }
        if session.client_context.is_initialized() {
            let message = Message::notification(kind.method(), None);
            session.client.deliver(message, Route::Standalone).await;
        }
        let listens = session.aggregator.streams.all();
        for listen in listens.iter().filter(|listen| listen.wants(kind)) {
            let message = listen.notification(kind.method(), Map::new());
            send_on_stream(session, listen, message).await;
        }
    }
    true
}

/// Applies a reloaded configuration. Unchanged upstreams are not disturbed. Requests in flight
/// to removed upstreams may end within a limit.
pub(in crate::proxy) fn reconfigure(session: &Arc<ClientSession>, set: &UpstreamSet) {
    let presented = session.client_context.aggregation();
    let (new, gone) = session.apply_upstreams(set);
    if new.is_empty() && gone.is_empty() {
        return;
    }
    for member in gone {
        let session = Arc::clone(session);
        crate::proxy::log_spans::spawn(
            async move { end_upstream_session(&session, &member).await },
        );
    }
    let session = Arc::clone(session);
    crate::proxy::log_spans::spawn(async move {
        if presented == AggregationMode::Verbatim {
            session.aggregator.changes.notify_anyway(ListChange::ALL);
            for member in session.members().iter() {
                end_streams_of(&session, member).await;
            }
        }
        for member in &new {
            attach_to_all(&session, member);
            all_changed_at(&session, member);
        }
        // Entries may be gone, and others may have new names.
        for kind in ListChange::ALL {
            note_list_change(&session, kind, &[]);
        }
    });
}

/// Ends the session with a removed upstream.
async fn end_upstream_session(session: &ClientSession, member: &Arc<UpstreamSession>) {
    member.drain(LAST_REQUESTS).await;
    let why = RpcError::new(
        RpcErrorCode::UpstreamUnavailable,
        "the upstream was removed from the configuration",
    );
    member.close(&why).await;
    session.remove_retired(member);
    let (aggregator, number) = (&session.aggregator, member.number);
    aggregator.server_requests.forget_upstream(number);
    aggregator.tasks.forget_upstream(number);
    aggregator.changes.forget_upstream(number);
}
