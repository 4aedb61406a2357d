//! Types and rules of riglm that need no I/O.
//!
//! This crate holds the parts that every other riglm crate may reuse: identifiers, the JSON-RPC
//! message that riglm forwards unchanged, the rows that are recorded about it, and the rules that
//! decide over them. It performs no I/O, spawns no tasks, reads no clock and draws no random
//! numbers: times and entropy are arguments. It depends on no other crate of the workspace.

pub mod catalog;
pub mod experiment;
pub mod id;
pub mod intent;
pub mod mcp;
pub mod prediction;
pub mod privacy;
pub mod recommendation;
pub mod resilience;
pub mod retrieval;
pub mod safeguards;
pub mod selection;
pub mod usage;
