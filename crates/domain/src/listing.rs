//! Which tools a list shows: the rules, apart from where lists come from and who asks.
//!
//! A list is chosen once and then stays: tools stand at the head of a prompt, and a client that
//! caches its prompt pays for every change of them. So the number of tools weighs what a list costs
//! for a whole session against the searches that it saves ([`ListPrices::best_size`]), as sessions
//! before would have needed them ([`SizeHistory`]). Bounds hold ([`ListBounds`]), and what was decided
//! otherwise is left alone ([`Standing`]).

mod access;
mod append;
mod bounds;
mod choice;
mod client_class;
mod contextual;
mod decision;
mod focus;
mod policy;
mod prices;
mod question;
mod session_trial;
mod session_use;
mod size;
mod size_history;
mod steered;
mod topic;
mod typical;

pub(crate) use access::is_core_verb;
pub use access::{Access, ReadOnly, access_of, intended_access, is_write};
pub use append::{Addition, pays_to_append};
pub use bounds::{BoundsError, ListBounds};
pub use choice::{Candidates, Choice, Standing, choose};
pub use client_class::{ClientClass, PromptCache, Shown};
pub use contextual::{AskedFor, contextual};
pub use decision::{Decision, Evidence, WhyAll, decide, size_of};
pub use focus::{Focus, focused};
pub use policy::{ListPolicyName, UnknownPolicy};
pub use prices::{ListPrices, SessionShape};
pub use session_trial::{SessionTrial, TrialOutcome};
pub use session_use::{SessionUse, rank_for_session};
pub use size::{CatalogSize, Finding, LIST_SIZES, ListSize, SessionOutlook};
pub use size_history::{HiddenNeed, SizeHistory};
pub use steered::SteeredList;
pub use topic::{Topic, TopicTool, TopicWords, topic};
pub use typical::{UnknownTool, typical_order};
