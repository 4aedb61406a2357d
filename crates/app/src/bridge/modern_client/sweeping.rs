//! What ends by itself: calls whose client does not come back, questions that no call is there for,
//! and connections that nothing uses.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use super::call::Seat;
use super::opening::dismiss;
use super::state::State;

/// How long a connection is kept that nothing uses.
const IDLE: Duration = Duration::from_mins(5);
/// How often is looked whether a connection that is out of use is still needed.
const LEAVING: Duration = Duration::from_secs(1);

impl Core {
    /// Ends what is over, until the link ends.
    pub(super) async fn sweep(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let now = Instant::now();
                self.expire(&mut state, now);
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
                () = self.changed.notified() => {}
            }
        }
    }

    fn expire(self: &Arc<Self>, state: &mut State, now: Instant) {
        let expired: Vec<u64> = parkings(state)
            .filter(|(_, until)| *until <= now)
            .map(|(number, _)| number)
            .collect();
        for number in expired {
            if let Some(call) = state.remove_call(number) {
                // The server is still to be told, so that the connection is not idle yet.
                call.connection.touch();
                self.give_up(call, "the client did not answer in time");
            }
        }
        for kept in state.kept.extract_if(.., |kept| kept.until <= now) {
            let reason = "no request came in whose place the client could be asked";
            self.refuse_open(&kept.connection, &[kept.request], reason);
        }
        let unused: Vec<_> = state
            .connections
            .values()
            .filter(|connection| {
                unused_from(state, connection.number).is_some_and(|from| from <= now)
            })
            .cloned()
            .collect();
        for connection in unused {
            dismiss(state, connection);
        }
    }
}

/// Returns when a connection is to be closed; `None` while something depends on it.
fn unused_from(state: &State, number: u64) -> Option<Instant> {
    let connection = state.connections.get(&number)?;
    if state.is_busy(number) {
        return None;
    }
    let is_current = state.current.values().any(|current| *current == number);
    let wait = if is_current { IDLE } else { Duration::ZERO };
    Some(connection.last_used() + wait)
}

/// Returns the calls that wait for a retry, and until when.
fn parkings(state: &State) -> impl Iterator<Item = (u64, Instant)> {
    state.calls.values().filter_map(|call| match &call.seat {
        Seat::Parked { until, .. } => Some((call.number, *until)),
        Seat::Taken(_) | Seat::Cancelled(_) => None,
    })
}

/// Returns when the next thing may be over.
fn next_deadline(state: &State, now: Instant) -> Option<Instant> {
    let connections = state.connections.keys().map(|number| {
        let is_current = state.current.values().any(|current| current == number);
        match unused_from(state, *number) {
            Some(at) => at,
            // Something depends on it: it is not unused before that ends, and a while longer.
            None if is_current => now + IDLE,
            None => now + LEAVING,
        }
    });
    parkings(state)
        .map(|(_, until)| until)
        .chain(state.kept.iter().map(|kept| kept.until))
        .chain(connections)
        .min()
}
