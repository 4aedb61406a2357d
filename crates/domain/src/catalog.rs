//! Tools: their definitions, their names across upstreams, and decisions of operators about them.

pub mod naming;
pub mod tool;
pub mod tool_approval;
pub mod tool_override;
