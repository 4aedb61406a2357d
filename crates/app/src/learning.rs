//! What recorded calls teach the predictor of the next tool, while the proxy runs.
//!
//! The store is what is learned from: a [`LearningTask`] reads the calls that it has and those that
//! come, of all processes that share it, and teaches a predictor with them. Nothing is learned on
//! the way of a request, and what was learned can be made anew at any time. Snapshots spare a start
//! most of the reading. [`NextTools`] answers which tools a session needs next. Where experiments
//! compare predictors there are several, which learn from the same calls in one reading of them.

mod allowance;
mod arms;
mod learner;
mod next_tools;
#[cfg(test)]
pub(crate) use next_tools::testing;
mod session_calls;
mod shared_learner;
mod task;

pub use arms::{ArmPredictor, MAX_ARM_PREDICTORS};
pub use learner::idle_gap;
pub use next_tools::{
    Fallback, Intent, NextTool, NextTools, NextToolsOptions, Prediction, SessionView,
};
pub use task::{LearningStores, LearningTask};
