//! Selection of the tools in a list: its rules, without the sources of lists and the identity of
//! clients.
//!
//! A list is chosen once and then stays. Tools are at the start of a prompt, so a client with a
//! prompt cache pays for every change of them. The number of tools weighs the cost of a list in a
//! whole session against the searches that it saves ([`ListPrices::best_size`]), as earlier
//! sessions would have needed them ([`SizeHistory`]). The size stays within bounds
//! ([`ListBounds`]), and earlier decisions about tools are respected ([`ToolDecision`]).

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
pub use initial_order::{UnknownTool, initial_order};
pub use intent_list::{RequestedTools, choose_by_intent};
pub use policy::{ListPolicyName, UnknownPolicy};
pub use prices::{ListPrices, SessionShape};
pub use session_trial::{SessionTrial, TrialOutcome};
pub use session_use::{SessionUse, rank_for_session};
pub use size::{CatalogSize, HiddenToolSearch, LIST_SIZES, ListSize, SessionOutlook};
pub use size_history::{HiddenNeed, SizeHistory};
pub use topic::{Topic, TopicTool, TopicWords, topic};
pub use word_match::{NamedTool, tools_named_in};
