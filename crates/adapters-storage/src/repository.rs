//! The repositories, one file for each aggregate, with its rows and its statements for both
//! databases.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod context;
mod discovery;
pub(crate) mod embedding;
pub(crate) mod exchange;
pub(crate) mod experiment;
pub(crate) mod feedback;
pub(crate) mod invocation;
pub(crate) mod learned_state;
mod list_activity;
pub(crate) mod list_epoch;
pub(crate) mod list_shown;
pub(crate) mod recommendation;
mod returned_row;
mod scored_tools;
pub(crate) mod search;
mod server_memory;
pub(crate) mod session;
mod tool_approval;
pub(crate) mod tool_definition;
pub(crate) mod tool_override;
pub(crate) mod tool_set;
mod usage;
mod version;
pub(crate) mod weights;
pub(crate) mod work_session;
