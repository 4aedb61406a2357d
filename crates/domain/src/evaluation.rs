//! How good rankings are, measured on queries of which the right tools are known.

mod metrics;

pub use metrics::{Gold, RankingMetrics};
