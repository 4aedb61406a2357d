//! Which tools fit a text: the rules of the search, without any model or store.
//!
//! [`words`](words()) makes terms of text, [`ToolText`] is what is read of a tool's definition,
//! [`ToolIndex`] ranks tools for a [`Query`] by their words, by vectors that an encoder made, and
//! by a [`UsageHistory`]. [`grade`] says how good an answer is. Everything here is a pure
//! computation; the same input gives the same order on every machine.

mod brief;
mod curated;
mod document;
mod expansion;
mod fusion;
mod history;
mod index;
mod lexical;
mod names;
mod quality;
mod query;
mod semantic;
mod servers;
mod slots;
mod synonyms;
mod words;

pub use brief::{
    BriefCatalog, BriefTool, ModelText, accepted_order, accepted_texts, expansion_question,
    ranking_question,
};
pub use curated::{CURATED_WEIGHT, weighed_in};
pub use document::{ParameterText, ToolText};
pub use expansion::{ExpansionRules, Variant, VariantSource, fused};
pub use fusion::{RankFusion, RankFusionWeights};
pub use history::{HistoryWeights, UsageHistory, nearness};
pub use index::{Hit, IndexedTool, Past, RankingRules, Term, ToolIndex};
pub use names::{NameLikeness, nearest_names};
pub use quality::{QualityRules, fit, grade};
pub use query::Query;
pub use semantic::{Centre, ToolVectors};
pub use synonyms::{Synonyms, SynonymsError};
pub use words::words;
