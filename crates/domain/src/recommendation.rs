//! The rules that recommend tools for an intent in words, without any model or store.
//!
//! A [`Lexicon`] of words is used to read the intent ([`IntentAnalysis`]). The result, together
//! with a search, names the candidates of a [`CandidateIndex`]. A tool is ranked by five
//! [`Factor`]s, each a value of 0 to 1, with [`FactorWeights`]. [`ToolPerformance`] has the known
//! performance of a tool. [`Successions`] has its usual predecessors and successors, and
//! [`Workflows`] the sequences of calls that it is a part of.

mod analysis;
mod candidates;
mod factors;
mod lexicon;
mod ranking;
pub mod record;
mod tool_performance;
pub mod tuning;
pub mod weights;
mod workflow;

pub use analysis::{IntendedAccess, IntentAnalysis, Language, NegatedParts, Script};
pub use candidates::{Candidate, CandidateIndex, CandidateSignals, DEFAULT_CANDIDATES};
pub use factors::{Factor, FactorWeights, Factors, WeightsError};
pub use lexicon::{ActionAccess, Lexicon, LexiconError};
pub use ranking::{RankedTool, rank_candidates, rank_tools, relevance_scores};
pub use tool_performance::{CallOutcomes, PerformanceTable, ToolPerformance, decayed_uses};
pub use workflow::{AdjacentTool, Successions, Workflow, Workflows};
