//! Searching for tools in words, over everything that a session could call.
//!
//! An [`Offer`] is what a session could call. [`ToolSearch`] ranks it for a query with the rules of
//! [`riglm_domain::retrieval`], the vectors of the encoders that are configured, and what the
//! principal used before, and writes the answer. What is asked and then called teaches it.

mod ahead;
mod alike;
mod answer;
mod answers;
mod encoders;
pub mod evaluation;
mod fair_cache;
mod judging;
mod ladder;
mod learning;
mod memory;
mod offer;
mod prepared;
mod request;
mod service;

pub use answer::AnswerRules;
pub(crate) use answer::given_before;
pub(crate) use answer::input_schema;
pub use encoders::EncoderCondition;
pub(crate) use judging::nearest_tools;
pub use ladder::{Guarded, Ladder, ModelGuard, ModelLimits, Note, NoteRules, Reranking};
pub use memory::SearchStores;
pub use offer::{Offer, OfferedTool, ServerText};
pub use request::{SearchCall, SearchReply, ToolCalled};
pub use service::{
    MAX_LIMIT, OfferRanking, SearchEncoder, SearchParts, SearchRules, TextFit, ToolSearch,
};
