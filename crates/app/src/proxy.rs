//! The proxy: sessions of clients, each joined to an upstream connection of its own.
//!
//! A message takes one way through this module: a downstream adapter hands it to
//! [`ClientSession::receive`] (`from_client`), which opens the rows and forwards the bytes
//! (`reconnect` finds or makes the connection). What the upstream sends arrives in
//! `from_upstream`, is matched with its request (`pending`), closes the rows (`completion`) and is
//! delivered to the client.

mod completion;
mod connection;
mod from_client;
mod from_upstream;
mod list_memory;
mod list_tools;
mod params;
mod pending;
mod reconnect;
mod registry;
mod session;
mod shared;

pub use registry::{Proxy, ProxyParts};
pub use session::ClientSession;
