//! What lists of tools would have done: policies are shown calls that were made, one at a time,
//! each with what was forecast of it, and are measured by what they would have listed.

mod conformal;
mod fixed;
mod live;
mod policy;
mod simulation;
mod sticky;
mod tool_set;

pub use policy::{ListPolicyError, SimulatedPolicy};
pub use simulation::{
    BestFixed, ListMetrics, ListSimulation, SimulatedCatalog, SimulatedOptions, SimulatedSession,
    fixed_sizes,
};
