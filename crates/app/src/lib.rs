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
pub mod experiments;
pub mod feedback;
pub mod filtering;
pub mod intent;
pub mod learning;
pub mod limits;
pub mod list_accounts;
mod long_work;
pub mod names;
pub mod overrides;
pub mod proxy;
pub mod queries;
pub mod recommend;
pub mod replay;
pub mod retention;
pub mod safeguards;
pub mod search;
pub mod settings;
pub mod tracking;
mod turns;
pub mod weight_tuning;
pub mod work_sessions;
