//! The handlers of the control API, one file for each resource.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod client_data;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod experiments;
pub(crate) mod feedback;
pub(crate) mod health;
pub(crate) mod learning;
pub(crate) mod metrics;
pub(crate) mod overrides;
pub(crate) mod overview;
pub(crate) mod paths;
pub(crate) mod predictions;
pub(crate) mod ready;
pub(crate) mod recommendations;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod upstreams;
