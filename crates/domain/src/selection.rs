//! Selection of the tools in a list: its rules, without the sources of lists and the identity of
//! clients.
//!
//! A list is chosen once and then stays. Tools are at the start of a prompt, so a client with a
//! prompt cache pays for every change of them. The number of tools weighs the cost of a list in a
//! whole session against the searches that it saves ([`ListPrices::best_size`]), as earlier
//! sessions would have needed them ([`SizeHistory`]). The size stays within bounds
//! ([`ListBounds`]), and earlier decisions about tools are respected ([`ToolDecision`]).
//!
//! # Examples
//!
//! Choose a list of a large catalog. Sessions of this client needed almost no searches with lists
//! of 20 tools, so longer lists do not pay for themselves:
//!
//! ```
//! use riglm_domain::selection::{
//!     Candidates, HiddenToolSearch, ListBounds, ListDecision, ListPrices, SessionOutlook,
//!     SizeEvidence, ToolDecision, decide_list,
//! };
//!
//! /// 300 tools of 200 tokens. The last one is pinned, the most likely one is banned.
//! struct Catalog;
//!
//! impl Candidates for Catalog {
//!     fn len(&self) -> usize {
//!         300
//!     }
//!     fn decision(&self, position: usize) -> ToolDecision {
//!         match position {
//!             0 => ToolDecision::Banned,
//!             299 => ToolDecision::Kept,
//!             _ => ToolDecision::Free,
//!         }
//!     }
//!     fn tokens(&self, _position: usize) -> u64 {
//!         200
//!     }
//! }
//!
//! let outlook = SessionOutlook {
//!     n_sessions: 40.0,
//!     n_calls: 10.0,
//!     // With lists of 5, 10, 20, 40 and 80 tools.
//!     searches: [3.0, 2.0, 0.1, 0.1, 0.1],
//!     loads: [3.0, 2.0, 0.1, 0.1, 0.1],
//!     needs: [3.0, 2.0, 0.1, 0.1, 0.1],
//!     seeks: 1.0,
//! };
//! let evidence = SizeEvidence {
//!     outlook: &outlook,
//!     finding: HiddenToolSearch::ProxySearch,
//!     all_tokens: 300 * 200,
//! };
//! let ranked: Vec<(usize, f64)> = (0..300).map(|at| (at, 1.0 / 300.0)).collect();
//! let bounds = ListBounds::default();
//! let decision = decide_list(&Catalog, &ranked, &evidence, &bounds, &ListPrices::default());
//!
//! let ListDecision::Some(choice) = decision else {
//!     panic!("showing 300 tools costs more than the searches: {decision:?}");
//! };
//! let expected: Vec<usize> = (1..=20).chain([299]).collect();
//! assert_eq!(choice.shown, expected);
//! assert_eq!((choice.n_kept, choice.tokens), (1, 21 * 200));
//! ```

mod access;
pub mod account;
mod adaptive_list;
mod append;
mod bounds;
mod choice;
mod client_class;
pub mod conformal;
mod decision;
pub mod economics;
pub mod epoch;
mod expected_coverage;
mod exploration;
mod initial_order;
mod intent_list;
mod policy;
mod prices;
mod question;
mod session_trial;
mod session_use;
pub mod shown;
mod size;
mod size_history;
mod topic;
mod word_match;

pub(crate) use access::is_core_verb;
pub use access::{Access, ReadOnlyHint, access_of, intended_access, is_write};
pub use adaptive_list::AdaptiveList;
pub use append::{AppendCandidate, pays_to_append};
pub use bounds::{BoundsError, ListBounds};
pub use choice::{Candidates, ListChoice, ToolDecision, choose_tools};
pub use client_class::{ClientClass, ListBehaviour, PromptCache};
pub use decision::{ListDecision, ShowAllReason, SizeEvidence, decide_list, list_size};
pub use expected_coverage::{ExpectedCoverage, ExpectedCoverageError};
pub use exploration::{
    ExplorationShare, ExploredCatalog, Propensity, SizeChoice, SizeChoiceError, SizeDraw,
};
pub use initial_order::{UnknownTool, initial_order};
pub use intent_list::{RequestedTools, choose_by_intent};
pub use policy::{ListPolicyName, UnknownPolicy};
pub use prices::{ListPrices, SessionShape};
pub use session_trial::{SessionTrial, TrialOutcome};
pub use session_use::{SessionUse, rank_for_session};
pub use size::{
    CatalogSize, HiddenToolSearch, LIST_SIZES, ListSize, SessionOutlook, UnknownListSize,
};
pub use size_history::{HiddenNeed, SizeHistory};
pub use topic::{Topic, TopicTool, TopicWords, topic};
pub use word_match::{NamedTool, tools_named_in};
