//! The side of the clients: standard input and output, Streamable HTTP, and HTTP+SSE of 2024-11-05.
//!
//! Each transport turns the data of a client into messages for its
//! [`ClientSession`](riglm_app::proxy::ClientSession) and implements
//! [`ClientLink`](riglm_ports::downstream::ClientLink) for messages in the other direction.

pub mod http;
mod refusal;
pub mod stdio;

pub use http::{AuthConfig, KeyError, KeyRing, ListenConfig};
