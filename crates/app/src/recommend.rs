//! Recommending tools for an intent in words: which, in which order, and why.
//!
//! A [`RecommendCall`] is analysed, its candidates come from the search and from what the intent
//! names, and they are ranked by the factors of [`riglm_domain::recommender`]. What cannot be used
//! now is left out afterwards, with the reason. What is recommended is recorded; what is called of
//! it teaches.

mod call;
mod candidates;
mod explanation;
mod kept;
mod left_out;
mod rendering;
mod reply;
#[cfg(test)]
pub(crate) mod scene;
mod service;
mod standings;
mod stored_offer;
mod tracks;

pub use call::{Project, RecommendCall, RecommendError};
pub use left_out::{Hindrances, LeftOut, LeftOutReason, TaggedTools};
pub use rendering::access;
pub use reply::{NamedNeighbour, NamedWorkflow, RecommendReply, RecommendedTool};
pub use service::{RecommendOptions, Recommender, RecommenderParts};
pub use standings::RecommendStores;
pub use stored_offer::stored_offer;
pub use tracks::CallEnded;
