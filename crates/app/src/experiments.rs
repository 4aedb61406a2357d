//! Experiments: which arm who belongs to ([`Experiments`]), and what came of it
//! ([`ExperimentDesk`]).

mod assigning;
mod desk;
mod known;
mod report;

pub use assigning::{AssignedArm, ExperimentStores, Experiments, Participant};
pub use desk::{ExperimentDesk, ListedExperiment};
pub use report::{ArmReport, ExperimentReport, ExperimentState};
