//! Recommendation of tools for an intent in words, with a ranking and explanations.
//!
//! A [`RecommendRequest`] is analysed. Candidates come from the search and from the words of the
//! intent, and are ranked by the factors of [`riglm_domain::recommendation`]. Tools that cannot be
//! used at present are excluded after the ranking, with the reason. Recommendations are recorded,
//! and later calls of recommended tools count as feedback.

mod attribution;
mod call;
mod candidates;
mod config;
mod explanation;
mod left_out;
mod log;
mod ranking_cache;
mod rendering;
mod reply;
#[cfg(any(test, feature = "testing"))]
pub mod scene;
mod service;
mod stored_catalog;
mod tool_performance;

pub use attribution::CallEnded;
pub use call::{Project, RecommendError, RecommendRequest};
pub use config::RecommendConfig;
pub use left_out::{Exclusions, LeftOut, LeftOutReason};
pub use log::{RecommendationDetails, RecommendationLog, UnrecordedRecommendations};
pub use rendering::access;
pub use reply::{NamedNeighbour, NamedWorkflow, RecommendReply, RecommendedTool};
pub use service::{Recommender, RecommenderParts};
pub use stored_catalog::stored_catalog;
pub use tool_performance::RecommendStores;
