//! The Model Context Protocol as bytes: JSON-RPC messages, their parts, and what riglm edits in them.
//!
//! Messages pass as the bytes in which they came. The modules read and edit the text in place, so
//! that number forms, unknown members and their order survive.

pub mod edit;
pub mod exchange;
#[cfg(feature = "messages")]
pub mod header;
#[cfg(feature = "messages")]
pub mod internal_id;
#[cfg(feature = "messages")]
pub mod message;
#[cfg(feature = "messages")]
pub mod meta;
pub mod method;
pub mod protocol;
#[cfg(feature = "messages")]
pub mod request_hints;
#[cfg(feature = "messages")]
pub mod rpc_error;
pub mod scan;
pub mod tool_result;
#[cfg(feature = "messages")]
pub mod trace_context;
pub mod uri_template;
