//! Rules for calls of services that fail: how long to wait, and when to stop trying.
//!
//! Both rules are pure: the time and the random number come in as arguments, so that one
//! implementation serves every adapter and every test.

mod backoff;
mod circuit_breaker;

pub use backoff::{Backoff, FailureStreak};
pub use circuit_breaker::{CircuitBreaker, Permit};
