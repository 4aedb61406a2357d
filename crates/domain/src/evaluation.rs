//! Evaluation: measures of rankings, forecasts, tool lists and work sessions.
//!
//! Rankings are measured on queries with known correct tools. Forecasts of the next call, the lists
//! made from them, and the grouping of calls into work sessions are measured on recorded calls.

mod cold_starts;
mod forecast;
mod metrics;
mod prediction;
pub mod replay;
mod work_sessions;

pub use cold_starts::ColdStarts;
pub use forecast::CatalogForecast;
pub use metrics::{RankingMetrics, RelevantItems};
pub use prediction::{CatalogShare, PredictionMetrics};
pub use work_sessions::{PairMetrics, TimedCall, evaluate_work_sessions};
