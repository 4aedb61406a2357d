//! The configuration section `listen`.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use validator::Validate;

/// The default port of the MCP server.
const DEFAULT_PORT: u16 = 8642;

/// The configuration section `listen`: the address for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// The address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Host names, with or without a port, by which clients may address the server, in addition to
    /// the names of the loopback interface and the address itself.
    pub allowed_hosts: Vec<String>,
    /// Origins (`https://host:port`) whose pages may call the server, in addition to the origins of
    /// the loopback interface.
    pub allowed_origins: Vec<String>,
    /// Whether agents on the SDKs of model providers are served, under `/sdk`.
    pub sdk: bool,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            sdk: true,
        }
    }
}
