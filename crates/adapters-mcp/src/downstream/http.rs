//! The MCP port: Streamable HTTP at `/mcp`, under a profile at `/mcp/{profile}`; HTTP+SSE of
//! revision 2024-11-05 at `/sse` and `/messages`.

mod config;
mod connection;
mod detachable;
mod event_log;
mod legacy_sse;
mod modern;
mod newborn;
mod port;
mod reader;
mod reply;
mod request;
mod room;
mod server;
mod sessions;
mod streamable;

pub use config::ListenConfig;
pub use server::{HttpOptions, HttpServer};
