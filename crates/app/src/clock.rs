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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use riglm_ports::contract::clock::ClockScene;

    use super::*;

    /// The clock of the machine, read without the port.
    #[derive(Debug)]
    struct Machine;

    impl ClockScene for Machine {
        fn clock(&self) -> &dyn Clock {
            &SystemClock
        }

        #[expect(
            clippy::disallowed_methods,
            reason = "the other source that the clock is compared with"
        )]
        fn reference(&self) -> Timestamp {
            std::time::SystemTime::now().try_into().unwrap()
        }
    }

    riglm_ports::clock_contract!(contract, ready(Box::new(Machine)));
}
