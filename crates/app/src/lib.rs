//! The use cases of riglm over the ports: proxying, recording and filtering of MCP traffic.
//!
//! Downstream adapters pass every message of a client to its [`proxy::ClientSession`]. Messages
//! from the upstream reach the client through the [`ClientLink`] port. This crate depends only on
//! the domain and the ports. It contains no transport, no database and no framework.
//!
//! [`ClientLink`]: riglm_ports::downstream::ClientLink

pub mod approvals;
pub mod clock;
pub mod events;
pub mod feedback;
pub mod filtering;
pub mod limits;
pub mod list_accounts;
mod long_work;
pub mod names;
pub mod overrides;
pub mod proxy;
pub mod queries;
pub mod retention;
pub mod safeguards;
pub mod settings;
pub mod tracking;
pub mod work_sessions;
