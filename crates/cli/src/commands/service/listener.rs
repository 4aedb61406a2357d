//! The program that listens at the address of the proxy.

use std::net::SocketAddr;

use crate::commands::connect::{listens, proxy_url};
use crate::commands::control_port::{ControlAnswer, readiness};
use crate::config::Config;

/// The program that listens at the address of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Nothing listens.
    Nobody,
    /// A proxy of the data directory.
    Proxy,
    /// Another program, or a proxy of another data directory.
    Stranger,
}

impl Listener {
    /// Returns the program at the listen address of a configuration.
    pub(crate) async fn of(config: &Config) -> Self {
        if !is_taken(config.listen.address).await {
            return Self::Nobody;
        }
        match readiness(config, None).await {
            Err(ControlAnswer::NotRunning(_)) => Self::Stranger,
            // A proxy whose control port is off cannot be told from other programs. The user has
            // chosen so, and is trusted.
            Ok(_) | Err(ControlAnswer::Unknown(_) | ControlAnswer::Said(_)) => Self::Proxy,
        }
    }
}

/// Returns whether something listens at an address.
pub(crate) async fn is_taken(address: SocketAddr) -> bool {
    match proxy_url(address, None) {
        Ok(url) => listens(&url).await,
        Err(_) => false,
    }
}

/// Returns the sentence about an address, the value of `key`, at which a stranger listens.
pub(crate) fn taken_text(address: SocketAddr, key: &str) -> String {
    format!("{address} ({key}) is taken, by no proxy of this data directory")
}
