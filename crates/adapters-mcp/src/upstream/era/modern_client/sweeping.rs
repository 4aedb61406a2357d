//! The expiry of parked calls without a retry, of questions without a call, and of unused
//! connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::Questions;
use super::bridge_core::BridgeCore;
use super::call::CallWaiter;
use super::opening::dismiss;
use super::state::BridgeState;

/// The time for which an unused connection is kept.
const IDLE: Duration = Duration::from_mins(5);
/// The interval of checks whether a retired connection is still in use.
const LEAVING: Duration = Duration::from_secs(1);

/// Removes expired entries until the link ends.
pub(super) async fn sweep(core: Arc<BridgeCore>, questions: Arc<Questions>) {
    loop {
        let next = {
            let mut state = core.state.lock();
            let now = Instant::now();
            expire(&questions, &mut state, now);
            next_deadline(&state, now)
        };
        let sleep = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = core.changed.notified() => {}
        }
    }
}

/// Removes the entries that have expired by now.
fn expire(questions: &Questions, state: &mut BridgeState, now: Instant) {
    let expired: Vec<u64> = parkings(state)
        .filter(|(_, until)| *until <= now)
        .map(|(number, _)| number)
        .collect();
    for number in expired {
        if let Some(call) = state.remove_call(number) {
            // The cancellation still has to be sent, so the connection must not count as idle
            // yet.
            call.connection.touch();
            questions.give_up(call, "the client did not answer in time");
        }
    }
    questions.expire_tasks(state, now);
    for kept in state.kept.extract_if(.., |kept| kept.until <= now) {
        let reason = "the client sent no request through which it could be asked";
        questions.refuse_open(&kept.connection, &[kept.request], reason);
    }
    let unused: Vec<_> = state
        .connections
        .values()
        .filter(|connection| unused_from(state, connection.number).is_some_and(|from| from <= now))
        .cloned()
        .collect();
    for connection in unused {
        dismiss(state, connection);
    }
}

/// Returns the time when a connection must be closed; `None` while it is in use.
fn unused_from(state: &BridgeState, number: u64) -> Option<Instant> {
    let connection = state.connections.get(&number)?;
    if state.is_busy(number) {
        return None;
    }
    let is_current = state.current.values().any(|current| *current == number);
    let wait = if is_current { IDLE } else { Duration::ZERO };
    Some(connection.last_used() + wait)
}

/// Returns the parked calls and their expiry.
fn parkings(state: &BridgeState) -> impl Iterator<Item = (u64, Instant)> {
    state.calls.values().filter_map(|call| match &call.seat {
        CallWaiter::Parked { until, .. } => Some((call.number, *until)),
        CallWaiter::Taken(_) | CallWaiter::Cancelled(_) => None,
    })
}

/// Returns the time of the next possible expiry.
fn next_deadline(state: &BridgeState, now: Instant) -> Option<Instant> {
    let connections = state.connections.keys().map(|number| {
        let is_current = state.current.values().any(|current| current == number);
        match unused_from(state, *number) {
            Some(at) => at,
            // The connection is in use, so it cannot expire before this time.
            None if is_current => now + IDLE,
            None => now + LEAVING,
        }
    });
    parkings(state)
        .map(|(_, until)| until)
        .chain(state.kept.iter().map(|kept| kept.until))
        .chain(state.tasks.values().map(|task| task.until))
        .chain(connections)
        .min()
}
