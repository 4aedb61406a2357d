//! One file for each resource of the control server.

pub(crate) mod config;
pub(crate) mod health;
pub(crate) mod overrides;
