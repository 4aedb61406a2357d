//! Evaluation: measures of rankings, forecasts, tool lists and work sessions.
//!
//! Rankings are measured on queries with known correct tools. Forecasts of the next call, the lists
//! made from them, and the grouping of calls into work sessions are measured on recorded calls.
//! Everything here runs offline; only the command line depends on this crate.
//!
//! - [`replay`]: recorded sessions, in order of time, through predictors and list policies.
//! - [`simulation`]: the policies of lists, and what each list would have cost.
//! - [`counterfactual`]: what other list sizes would have cost, from sizes drawn at random.
//! - [`labelled_queries`]: searches and recommendations on queries with known correct tools.

use std::sync::Arc;

use riglm_ports::encoder::Encoder;

mod cold_starts;
pub mod counterfactual;
mod forecast;
pub mod labelled_queries;
mod metrics;
mod prediction;
pub mod replay;
pub mod simulation;
mod work_sessions;

pub use cold_starts::ColdStarts;
pub use forecast::CatalogForecast;
pub use metrics::{RankingMetrics, RelevantItems};
pub use prediction::{CatalogShare, PredictionMetrics};
pub use work_sessions::{PairMetrics, TimedCall, evaluate_work_sessions};

/// Encoders of texts, the better one first.
pub type Encoders = [Arc<dyn Encoder>];
