//! The HTTP server for MCP clients: Streamable HTTP at `/mcp`, with a profile at `/mcp/{profile}`;
//! HTTP+SSE of revision 2024-11-05 at `/sse` and `/messages`. Agents without an MCP client use `/sdk`.

mod config;
mod connection;
mod connection_timeouts;
mod detachable;
mod event_log;
mod key_ring;
mod legacy_sse;
mod memory_reservation;
mod modern;
mod pending_session;
mod port;
mod reader;
mod reply;
mod request;
mod sdk;
mod server;
mod sessions;
mod streamable;
#[cfg(test)]
mod tests;

pub use config::ListenConfig;
pub use key_ring::{AuthConfig, KeyError, KeyRing};
pub use server::{Faces, HttpOptions, HttpServer};
