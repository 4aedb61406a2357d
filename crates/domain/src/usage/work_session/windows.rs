//! Windows of a client, derived from the use of its connections.
//!
//! A client may have several windows open, each with another task, or may make a connection for
//! each call. The protocol shows neither, so connections are grouped by their use. This module
//! reads no clock.

use std::time::Duration;

use jiff::Timestamp;

use crate::id::SessionId;

/// The number of calls from which on a connection counts as kept open by the client.
const KEPT_MIN_CALLS: u64 = 2;
/// The silence after which a kept connection may have been replaced by another one.
const REPLACED_AFTER: Duration = Duration::from_mins(2);
/// The maximum number of windows of one client. Beyond it, connections share the most silent
/// window.
const MAX_WINDOWS: usize = 64;
/// The maximum number of remembered connections of one window.
const MAX_CONNECTIONS: usize = 32;

/// The windows of one client, each with its connections.
///
/// A new connection joins an existing window, unless the window has a connection that is kept (it
/// made two calls), is open, and was active within two minutes. If two kept connections turn out to
/// share a window, the one with fewer calls leaves it.
///
/// So a client with a connection for each call has one window, and a connection that replaces
/// another one gets its window. Two connections side by side get two windows, from the second call
/// of the second one on: its first call may as well come from a client with a connection for each
/// call.
#[derive(Clone, Debug, Default)]
pub struct ClientWindows(Vec<ClientWindow>);

#[derive(Clone, Debug, Default)]
struct ClientWindow {
    seats: Vec<WindowSlot>,
    last_heard: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct WindowSlot {
    connection: SessionId,
    n_calls: u64,
    last_heard: Timestamp,
}

impl WindowSlot {
    /// Returns whether the connection is kept and in use.
    fn is_in_use(&self, now: Timestamp) -> bool {
        let silent = Duration::try_from(now.duration_since(self.last_heard));
        self.n_calls >= KEPT_MIN_CALLS && silent.unwrap_or_default() < REPLACED_AFTER
    }
}

impl ClientWindows {
    /// Returns the number of the window for a request over a connection, from 0, and records the
    /// request. `goes_on` returns for a window whether its work session would continue with a
    /// request now. Such a window is used before another one is begun.
    pub fn assign_window(
        &mut self,
        connection: SessionId,
        is_call: bool,
        now: Timestamp,
        goes_on: impl Fn(usize) -> bool,
    ) -> usize {
        let known = self.take_slot(connection, now);
        let mut seat = match known {
            Some((_, seat)) => seat,
            None => WindowSlot {
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
            if window.seats.len() >= MAX_CONNECTIONS {
                let oldest = (0..window.seats.len()).min_by_key(|at| window.seats[*at].last_heard);
                oldest.map(|at| window.seats.swap_remove(at));
            }
            window.seats.push(seat);
            window.last_heard = window.last_heard.max(Some(now));
        }
        number
    }

    /// Removes a closed connection.
    pub fn remove_connection(&mut self, connection: SessionId) {
        for window in &mut self.0 {
            window.seats.retain(|seat| seat.connection != connection);
        }
    }

    /// Removes the slot of a connection, if it has one. Returns it with the number of its window,
    /// or without the number if another connection is to have the window.
    fn take_slot(
        &mut self,
        connection: SessionId,
        now: Timestamp,
    ) -> Option<(Option<usize>, WindowSlot)> {
        let has_it = |window: &ClientWindow| {
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

    /// Returns a window for a connection without one.
    fn free_window(&mut self, now: Timestamp, goes_on: impl Fn(usize) -> bool) -> usize {
        let is_free = |window: &ClientWindow| !window.seats.iter().any(|seat| seat.is_in_use(now));
        let free = (self.0.iter().enumerate()).filter(|(_, window)| is_free(window));
        let free: Vec<(usize, Option<Timestamp>)> = free
            .map(|(number, window)| (number, window.last_heard))
            .collect();
        // Of several windows with a running work session, the most recently active one is the
        // likeliest.
        let going_on = free.iter().filter(|(number, _)| goes_on(*number));
        let newest = going_on.max_by_key(|(_, last_heard)| *last_heard);
        if let Some((number, _)) = newest.or(free.first()) {
            return *number;
        }
        if self.0.len() < MAX_WINDOWS {
            self.0.push(ClientWindow::default());
            return self.0.len() - 1;
        }
        let all = self.0.iter().enumerate();
        let most_silent = all.min_by_key(|(_, window)| window.last_heard);
        most_silent.map_or(0, |(number, _)| number)
    }
}
