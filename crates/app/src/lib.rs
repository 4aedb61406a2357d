//! The use cases of riglm: proxying, tracking and filtering, over the ports.
//!
//! Downstream adapters hand every message of a client to its [`proxy::ClientSession`]; what comes
//! back from the upstream reaches the client through the [`ClientLink`] port. This crate knows no
//! transport, no database and no framework: it depends on the domain and the ports alone.
//!
//! [`ClientLink`]: riglm_ports::downstream::ClientLink

pub mod approvals;
pub mod bridge;
pub mod clock;
pub mod events;
pub mod experiments;
pub mod feedback;
pub mod filtering;
pub mod insight;
pub mod intent;
pub mod learning;
pub mod limits;
pub mod list_accounts;
mod long_work;
pub mod names;
pub mod overrides;
pub mod proxy;
pub mod recommend;
pub mod replay;
pub mod safeguards;
pub mod search;
pub mod settings;
pub mod shared_upstream;
pub mod tracking;
mod turns;
pub mod upkeep;
pub mod weight_tuning;
pub mod work_sessions;
