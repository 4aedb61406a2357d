//! Which tools a list shows: the rules, apart from where lists come from and who asks.
//!
//! A list is chosen once and then stays: tools stand at the head of a prompt, and a client that
//! caches its prompt pays for every change of them. So a choice weighs what a tool costs in the list
//! for a whole session against the search that it saves ([`ListPrices`]), holds bounds
//! ([`ListBounds`]), and leaves alone what was decided otherwise ([`Standing`]).

mod access;
mod append;
mod bounds;
mod choice;
mod client_class;
mod decision;
mod focus;
mod policy;
mod prices;
mod question;
mod steered;
mod topic;

pub(crate) use access::is_core_verb;
pub use access::{Access, ReadOnly, access_of, intended_access, is_write};
pub use append::{Addition, pays_to_append};
pub use bounds::{BoundsError, ListBounds};
pub use choice::{Candidates, Choice, Standing, choose};
pub use client_class::{ClientClass, PromptCache, Shown};
pub use decision::{Decision, Evidence, WhyAll, decide};
pub use focus::{Focus, focused};
pub use policy::{ListPolicyName, UnknownPolicy};
pub use prices::{ListPrices, SessionShape};
pub use steered::SteeredList;
pub use topic::{Topic, TopicTool, TopicWords, topic};
