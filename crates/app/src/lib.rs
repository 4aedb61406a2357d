//! The use cases of riglm over the ports: proxying, recording, and the selection of lists.
//!
//! Downstream adapters pass every message of a client to its [`proxy::ClientSession`]. Messages
//! from the upstream reach the client through the [`ClientLink`] port. This crate depends only on
//! the domain, the ports and discovery. It contains no transport, no database and no framework.
//!
//! [`ClientLink`]: riglm_ports::downstream::ClientLink

pub mod clock;
pub mod control;
pub mod limits;
mod long_work;
pub mod proxy;
pub mod safeguards;
pub mod selection;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tracking;
pub mod work_sessions;
