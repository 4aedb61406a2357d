//! The configuration section `listen`.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use validator::Validate;

/// The port of the MCP server when nothing else is configured.
const DEFAULT_PORT: u16 = 8642;

/// The configuration section `listen`: where clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Host names, with or without a port, by which clients may address the server, besides the
    /// names of the loopback interface and the address itself.
    pub allowed_hosts: Vec<String>,
    /// Origins (`https://host:port`) whose pages may call the server, besides those of the
    /// loopback interface.
    pub allowed_origins: Vec<String>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}
