//! Search of tools in natural language, over the whole catalog of a session.
//!
//! A [`Catalog`] is the catalog of a session. [`ToolSearch`] ranks it for a query and writes the
//! answer. The ranking uses the rules of [`riglm_domain::retrieval`], the vectors of the configured
//! encoders, and the earlier use by the principal. Queries and the calls after them are learned.

mod answer;
mod answer_cache;
mod catalog;
mod config;
mod duplicates;
mod encoders;
mod escalation;
mod fair_cache;
mod grading;
mod index_cache;
mod learning;
mod memory;
mod predicted_next;
mod request;
mod service;
mod skills;

pub use answer::AnswerRules;
pub use answer::given_before;
pub use answer::{N_SCHEMAS, input_schema};
pub use catalog::{Catalog, CatalogTool, ServerText, is_app_only};
pub use config::{FusionMethod, RankFusionConfig};
pub use encoders::{EncoderCondition, EncoderTier};
pub use escalation::{
    Escalation, GuardedModel, ModelGuard, ModelLimits, Note, NotesConfig, Reranking,
};
pub use grading::fits;
pub use grading::nearest_tools;
pub use memory::SearchStores;
pub use request::{FinishedCall, ListedTools, SearchReply, SearchRequest};
pub use service::{
    CatalogRanking, MAX_LIMIT, SearchChange, SearchEncoder, SearchParts, SearchRules, TextFit,
    ToolSearch,
};
pub use skills::{MAX_SKILLS, Skill, SkillIndex, with_skills};
