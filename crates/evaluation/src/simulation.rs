//! Simulation of list policies on recorded calls.
//!
//! Each policy gets the recorded calls one at a time, with the forecast of each. The metrics
//! describe the lists that the policy would have shown.

mod conformal;
mod fixed_size;
mod list_simulation;
mod live;
mod policy;
mod sticky;
mod tool_set;

pub use list_simulation::{
    BestFixed, CallForecasts, ListMetrics, ListSimulation, SimulatedCatalog, SimulatedOptions,
    SimulatedSession, fixed_sizes,
};
pub use policy::{ListPolicyError, SimulatedPolicy};
