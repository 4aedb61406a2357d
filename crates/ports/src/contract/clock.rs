//! The clauses of [`Clock`].

use std::fmt;

use jiff::Timestamp;

use crate::clock::Clock;

/// A clock, and another way to read the time that it must show.
pub trait ClockScene: Send + Sync + fmt::Debug {
    /// Returns the clock.
    fn clock(&self) -> &dyn Clock;

    /// Returns the current time from another source.
    fn reference(&self) -> Timestamp;
}

/// Expands to a module with one `tokio::test` for each clause of a clock.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// [`ClockScene`](crate::contract::clock::ClockScene).
#[macro_export]
macro_rules! clock_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(clock [$(#[$attribute])*] $fresh;
                a_clock_shows_the_current_time,
                threads_may_read_a_clock_at_once,
            );
        }
    };
}

/// A clock shows the current time.
pub async fn a_clock_shows_the_current_time(scene: &impl ClockScene) {
    for _ in 0..100 {
        let before = scene.reference();
        let now = scene.clock().now();
        let after = scene.reference();
        // A wall clock can be set back meanwhile; the test then says nothing.
        assert!(
            before > after || (before..=after).contains(&now),
            "{now} is not between {before} and {after}"
        );
    }
}

/// Any number of threads may read a clock at the same time.
pub async fn threads_may_read_a_clock_at_once(scene: &impl ClockScene) {
    let clock = scene.clock();
    let before = scene.reference();
    let times: Vec<Timestamp> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..100).map(|_| clock.now()).collect::<Vec<_>>()))
            .collect();
        let read = readers.into_iter().map(|reader| reader.join().unwrap());
        read.flatten().collect()
    });
    let after = scene.reference();
    assert_eq!(times.len(), 400);
    assert!(before > after || times.iter().all(|time| (before..=after).contains(time)));
}
