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
//! # Examples
//!
//! A message keeps its bytes; the index of its envelope says what it is:
//!
//! ```
//! use bytes::Bytes;
//! use riglm_domain::mcp::message::Message;
//!
//! let text = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","x":1.0}}"#;
//! let message = Message::parse(&Bytes::from(text)).unwrap();
//! let envelope = message.single().unwrap();
//! assert_eq!(envelope.method(), Some("tools/call"));
//! assert_eq!(message.params(envelope), Some(r#"{"name":"t","x":1.0}"#));
//! assert_eq!(message.raw(), text.as_bytes());
//! ```

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
