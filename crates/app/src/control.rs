//! The services behind the control API and the command line: queries of recorded data, live events,
//! and what operators decide (settings, overrides, approvals, retention).

mod account_cache;
pub mod approvals;
pub mod audit_log;
pub mod client_data;
pub mod current_filtering;
pub mod events;
pub mod feedback;
pub mod learning_report;
pub mod list_accounts;
pub mod name_lookup;
pub mod overrides;
pub mod overview;
pub mod queries;
mod report_cache;
pub mod retention;
pub mod settings;

// The adapters of the control API map this error, and do not depend on the ports.
pub use riglm_ports::analytics::StoreError;
