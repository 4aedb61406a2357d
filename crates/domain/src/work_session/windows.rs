//! Which of the windows of a client a connection belongs to.
//!
//! A client may have several windows open, in each of which something else is done, or may make a
//! connection for each call. Neither says so: what tells them apart is how their connections are
//! used. This keeps which connections belong together; it reads no clock.

use std::time::Duration;

use jiff::Timestamp;

use crate::id::SessionId;

/// A connection with so many calls is one that the client keeps.
const KEPT: u64 = 2;
/// A kept connection that was silent for so long may have been replaced by another one.
const QUIET: Duration = Duration::from_mins(2);
/// The most windows of one client; beyond it the most silent one is shared.
const MAX_WINDOWS: usize = 64;
/// The most connections that are remembered of one window.
const MAX_SEATS: usize = 32;

/// The windows of one client, each with the connections that belong to it.
///
/// A connection belongs to the window of those before it, unless one of them is kept (it made
/// two calls), is there, and was heard of within two minutes. Where two kept connections turn out
/// to share a window, the one with fewer calls leaves it. So the calls of a client with a
/// connection for each call have one window, a connection that replaces another one has the window
/// of that, and two that are used side by side have two: from the second call of the second one on,
/// since its first may as well be that of a client with a connection for each call.
#[derive(Clone, Debug, Default)]
pub struct Windows(Vec<Window>);

#[derive(Clone, Debug, Default)]
struct Window {
    seats: Vec<Seat>,
    last_heard: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    connection: SessionId,
    n_calls: u64,
    last_heard: Timestamp,
}

impl Seat {
    /// Returns whether the connection is kept, and in use.
    fn is_in_use(&self, now: Timestamp) -> bool {
        let silent = Duration::try_from(now.duration_since(self.last_heard));
        self.n_calls >= KEPT && silent.unwrap_or_default() < QUIET
    }
}

impl Windows {
    /// Returns the number of the window that a request over a connection belongs to, from 0, and
    /// notes the request. `goes_on` tells of a window whether its work session goes on with a
    /// request now: such a window is gone on with before another one is begun.
    pub fn place(
        &mut self,
        connection: SessionId,
        is_call: bool,
        now: Timestamp,
        goes_on: impl Fn(usize) -> bool,
    ) -> usize {
        let known = self.leave_or_stay(connection, now);
        let mut seat = match known {
            Some((_, seat)) => seat,
            None => Seat {
                connection,
                n_calls: 0,
                last_heard: now,
            },
        };
        let stays_in = known.and_then(|(stays_in, _)| stays_in);
        let number = stays_in.unwrap_or_else(|| self.free_window(now, goes_on));
        seat.n_calls += u64::from(is_call);
        seat.last_heard = seat.last_heard.max(now);
        if let Some(window) = self.0.get_mut(number) {
            if window.seats.len() >= MAX_SEATS {
                let oldest = (0..window.seats.len()).min_by_key(|at| window.seats[*at].last_heard);
                oldest.map(|at| window.seats.swap_remove(at));
            }
            window.seats.push(seat);
            window.last_heard = window.last_heard.max(Some(now));
        }
        number
    }

    /// Notes that a connection is gone.
    pub fn gone(&mut self, connection: SessionId) {
        for window in &mut self.0 {
            window.seats.retain(|seat| seat.connection != connection);
        }
    }

    /// Takes out the seat of a connection, if it has one, with the number of its window unless it
    /// has to leave that to another connection.
    fn leave_or_stay(
        &mut self,
        connection: SessionId,
        now: Timestamp,
    ) -> Option<(Option<usize>, Seat)> {
        let has_it = |window: &Window| {
            window
                .seats
                .iter()
                .any(|seat| seat.connection == connection)
        };
        let number = self.0.iter().position(has_it)?;
        let seats = &mut self.0.get_mut(number)?.seats;
        let at = seats
            .iter()
            .position(|seat| seat.connection == connection)?;
        let seat = seats.remove(at);
        let has_to_leave = seats
            .iter()
            .any(|other| other.is_in_use(now) && other.n_calls > seat.n_calls);
        Some(((!has_to_leave).then_some(number), seat))
    }

    /// Returns the window for a connection that has none.
    fn free_window(&mut self, now: Timestamp, goes_on: impl Fn(usize) -> bool) -> usize {
        let is_free = |window: &Window| !window.seats.iter().any(|seat| seat.is_in_use(now));
        let free = (self.0.iter().enumerate()).filter(|(_, window)| is_free(window));
        let free: Vec<(usize, Option<Timestamp>)> = free
            .map(|(number, window)| (number, window.last_heard))
            .collect();
        let going_on = free.iter().filter(|(number, _)| goes_on(*number));
        let newest = going_on.max_by_key(|(_, last_heard)| *last_heard);
        if let Some((number, _)) = newest.or(free.first()) {
            return *number;
        }
        if self.0.len() < MAX_WINDOWS {
            self.0.push(Window::default());
            return self.0.len() - 1;
        }
        let all = self.0.iter().enumerate();
        let most_silent = all.min_by_key(|(_, window)| window.last_heard);
        most_silent.map_or(0, |(number, _)| number)
    }
}
