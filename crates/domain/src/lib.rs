//! Types and rules of riglm that need no I/O.
//!
//! Every other crate of the workspace may use this one, and so may other tools: it performs no I/O,
//! spawns no tasks, reads no clock and draws no random numbers. Times and entropy are arguments. It
//! depends on no other crate of the workspace.
//!
//! - [`mcp`]: messages of the protocol as bytes, and the edits of their text.
//! - [`catalog`]: tools, their names across upstreams, and decisions of operators about them.
//! - [`usage`]: records of sessions and calls, and statistics of them.
//! - [`prediction`]: the probability of each tool to be used next; a mix of experts that learns.
//! - [`selection`]: the list of tools that a session is shown, and what it costs.
//! - [`retrieval`]: tools ranked for a query, by words, vectors and use.
//! - [`recommendation`]: tools ranked for an intent by several factors, with reasons.
//! - [`intent`]: declared tasks, and what a text says about reading and writing.
//! - [`safeguards`]: budgets, rate limits, searches with diminishing returns, and the check of `Host`
//!   and `Origin`.
//! - [`experiment`]: A/B tests: assignment to arms, and their comparison.
//! - [`privacy`]: principals, keyed hashes and redaction.
//! - [`resilience`]: back-off and circuit breaker.
//! - [`num`]: counts as floating-point numbers.
//! - [`id`]: identifiers, each built by a constructor that checks it.
//!
//! # Features
//!
//! All are on by default, and none is needed to rank tools, to predict calls or to choose lists.
//!
//! - `keys`: keyed hashes, digests of access keys, and the assignment to arms of experiments.
//! - `messages`: the modules of [`mcp`] that read and compose messages and headers.
//! - `validator`: `validator::Validate` for weights and rules that a configuration may set.
//!
//! Times are of [`jiff`], and messages of `bytes`. Both are exported again so that their versions
//! fit.
//!
//! # Examples
//!
//! - [Rank tools for a text](retrieval#examples).
//! - [Predict the next tool, and replay a log](prediction#examples).
//! - [Choose the list of a session](selection#examples).
//! - [Read a message, and keep its bytes](mcp::message#examples).

#[cfg(feature = "messages")]
pub use bytes;
pub use jiff;

pub mod catalog;
pub mod experiment;
pub mod id;
pub mod intent;
pub mod mcp;
pub mod num;
pub mod prediction;
pub mod privacy;
pub mod recommendation;
pub mod resilience;
pub mod retrieval;
pub mod safeguards;
pub mod selection;
pub mod usage;

#[cfg(test)]
mod tests;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
