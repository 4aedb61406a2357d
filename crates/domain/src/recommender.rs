//! Which tools are recommended for an intent in words: the rules, without any model or store.
//!
//! An intent is read by the words of a [`Lexicon`] ([`IntentAnalysis`]), which name the candidates of
//! a [`CandidateIndex`] together with a search. A tool is ranked by five [`Factor`]s, each a value of
//! 0 to 1, weighed by [`FactorWeights`]. What is known of how it did so far is its [`ToolStanding`];
//! what usually comes before and after it is in [`Successions`], the sequences of calls that it is a part of in
//! [`Workflows`].

mod analysis;
mod candidates;
mod factors;
mod lexicon;
mod ranking;
mod standing;
pub mod tuning;
mod workflow;

pub use analysis::{IntendedAccess, IntentAnalysis, Language, Negated, Script};
pub use candidates::{Candidate, CandidateIndex, DEFAULT_CANDIDATES, Signals};
pub use factors::{Factor, FactorWeights, Factors, WeightsError};
pub use lexicon::{ActionAccess, Lexicon, LexiconError};
pub use ranking::{Ranked, ranked, ranked_candidates, relevances};
pub use standing::{Endings, Standings, ToolStanding, decayed};
pub use workflow::{Neighbour, Successions, Workflow, Workflows};
