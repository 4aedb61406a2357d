//! The repositories, one file for each aggregate: its statements for both databases side by side,
//! and its rows.

pub(crate) mod exchange;
pub(crate) mod invocation;
pub(crate) mod session;
pub(crate) mod tool_definition;
