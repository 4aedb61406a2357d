//! The clock of the machine.

use jiff::Timestamp;
use riglm_ports::clock::Clock;

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that the others ask"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
