//! Tool search: the rules that match tools to a text, without any model or store.
//!
//! [`words`](words()) makes terms of text. [`ToolText`] has the searchable texts of a tool.
//! [`ToolIndex`] ranks tools for a [`Query`] by their words, by vectors of an encoder, and by a
//! [`UsageHistory`]. [`grade_answer`] grades an answer. Everything here is a pure computation: the same
//! input gives the same order on every machine.
//!
//! # Examples
//!
//! Rank tools for a text. A tool is found by the words of its name, its description and its
//! parameters, and by synonyms of the words in the query:
//!
//! ```
//! use riglm_domain::catalog::tool::ToolRef;
//! use riglm_domain::retrieval::{
//!     IndexedTool, Query, RankingRules, RankingTerm, Synonyms, ToolIndex, ToolText,
//! };
//!
//! let definitions = [
//!     ("files/read_file", r#"{"description": "Reads the text of a file"}"#),
//!     ("chat/post_message", r#"{"description": "Sends a message to a channel"}"#),
//!     ("git/merge_branch", r#"{"description": "Merges a branch into another"}"#),
//! ];
//! let indexed = |(name, definition): &(&str, &str)| {
//!     let tool: ToolRef = name.parse().unwrap();
//!     let text = ToolText::of_definition(tool.tool.as_str(), definition);
//!     IndexedTool::new(tool, text)
//! };
//! let index = ToolIndex::new(definitions.iter().map(indexed).collect());
//!
//! let query = Query::new("write to a channel", &Synonyms::built_in());
//! let hits = index.rank(&query, &RankingRules::default(), None, 1);
//!
//! let best = index.tools()[hits[0].position].tool();
//! assert_eq!(best.to_string(), "chat/post_message");
//! // The score is the sum of its terms, so it can be explained.
//! let words = (hits[0].terms.iter()).find(|(term, _)| *term == RankingTerm::Words);
//! assert!(words.is_some_and(|(_, score)| *score > 0.0));
//! ```

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
#[cfg(feature = "validator")]
pub use index::check_weight;
pub use index::{
    IndexedTool, RankingHistory, RankingRules, RankingTerm, SearchHit, SearchWeights, ToolIndex,
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
