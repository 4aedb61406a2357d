//! A/B experiments: assignment to arms ([`Experiments`]) and evaluation ([`ExperimentService`]).

mod assigning;
mod assignment_cache;
mod config;
mod report;
mod service;

pub use assigning::{AssignedArm, ExperimentStores, Experiments, Participant};
pub use config::{ArmConfig, ExperimentConfig};
pub use report::{ArmReport, ExperimentReport, ExperimentState};
pub use service::{ExperimentService, ExperimentSummary};
