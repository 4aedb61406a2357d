//! Tool search: the rules that match tools to a text, without any model or store.
//!
//! [`words`](words()) makes terms of text. [`ToolText`] has the searchable texts of a tool.
//! [`ToolIndex`] ranks tools for a [`Query`] by their words, by vectors of an encoder, and by a
//! [`UsageHistory`]. [`grade_answer`] grades an answer. Everything here is a pure computation: the same
//! input gives the same order on every machine.

mod curation;
mod document;
pub mod embedding;
pub mod excerpt;
mod expansion;
mod fusion;
mod history;
mod index;
mod lexical;
mod model_prompts;
mod names;
mod quality;
mod query;
pub mod search;
mod semantic;
mod servers;
mod slots;
mod synonyms;
mod words;

pub use curation::{CURATED_WEIGHT, add_curation};
pub use document::{ParameterText, ToolText};
pub use expansion::{ExpansionRules, QueryVariant, VariantSource, fuse_variants};
pub use fusion::{RankFusion, RankFusionPreset, RankFusionWeights};
pub use history::{UsageHistory, cosine_of};
pub use index::{
    IndexedTool, RankingHistory, RankingRules, RankingTerm, SearchHit, SearchWeights, ToolIndex,
    check_weight,
};
pub use model_prompts::{
    BriefCatalog, BriefTool, ModelPrompt, expansion_prompt, parse_order, parse_wordings,
    ranking_prompt,
};
pub use names::{NameLikeness, nearest_names};
pub use quality::{QualityRules, fit_probability, grade_answer};
pub use query::Query;
pub use semantic::{ToolVectors, VectorCentre};
pub use synonyms::{Synonyms, SynonymsError};
pub use words::words;
