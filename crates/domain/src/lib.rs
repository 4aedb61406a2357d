//! Types and rules of riglm that need no I/O.
//!
//! This crate holds what every other riglm tool may reuse: identifiers, the JSON-RPC
//! message that passes through untouched, the rows that are recorded about it, and the
//! rules that decide over them. It performs no I/O, spawns nothing, reads no clock and
//! draws no random numbers: times and entropy come in as arguments. It depends on no
//! other crate of the workspace.

pub mod admission;
pub mod audit;
pub mod canonical;
pub mod conformal;
pub mod context;
pub mod economics;
pub mod edit;
pub mod embedding;
pub mod evaluation;
pub mod excerpt;
pub mod exchange;
pub mod experiment;
pub mod feedback;
mod hexadecimal;
pub mod id;
pub mod intent;
pub mod invocation;
pub mod key_digest;
pub mod learned_state;
pub mod list_account;
pub mod list_epoch;
pub mod list_shown;
pub mod listing;
pub mod mcp_header;
pub mod message;
pub mod meta;
pub mod method;
pub mod naming;
pub mod prediction;
pub mod principal;
pub mod protocol;
pub mod recommendation;
pub mod recommender;
pub mod record;
pub mod redaction;
pub mod request_hints;
pub mod retrieval;
pub mod rpc_error;
pub mod safeguard;
pub mod scan;
pub mod search;
pub mod session;
pub mod tool;
pub mod tool_approval;
pub mod tool_override;
pub mod tool_result;
pub mod trace_context;
pub mod uri_template;
pub mod usage;
pub mod weights;
pub mod work_session;
