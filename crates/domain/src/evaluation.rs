//! How good rankings are, measured on queries of which the right tools are known, and how good
//! forecasts of the next call, the lists made of them and work sessions are, measured on calls that
//! were made.

mod cold_starts;
mod forecast;
mod metrics;
mod prediction;
pub mod replay;
mod work_sessions;

pub use cold_starts::ColdStarts;
pub use forecast::Forecast;
pub use metrics::{Gold, RankingMetrics};
pub use prediction::{CatalogShare, PredictionMetrics};
pub use work_sessions::{PairMetrics, TimedCall, evaluate_work_sessions};
