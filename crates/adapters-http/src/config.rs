//! The configuration section `control`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use riglm_domain::privacy::key_digest::{KeyDigest, KeyDigestError};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use validator::Validate;

use crate::access::Scope;

/// The default port of the control server.
const DEFAULT_PORT: u16 = 8643;

/// The number of ports that are tried after the default one if it is in use.
const N_FURTHER_PORTS: u16 = 32;

/// The listen address of the control server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ControlAddress {
    /// The control server is switched off.
    Off,
    /// An address and port.
    At(SocketAddr),
}

/// The error for a text that is neither an address nor `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlAddressError;

impl fmt::Display for ControlAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address such as 127.0.0.1:8643, or off")
    }
}

impl std::error::Error for ControlAddressError {}

impl FromStr for ControlAddress {
    type Err = ControlAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| ControlAddressError)
    }
}

impl TryFrom<String> for ControlAddress {
    type Error = ControlAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl From<ControlAddress> for String {
    fn from(address: ControlAddress) -> Self {
        address.to_string()
    }
}

/// The configuration section `control`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// The listen address of the control server.
    pub address: ControlAddress,
    /// Accepted `Host` names, with or without a port, in addition to the names of the loopback
    /// interface.
    pub allowed_hosts: Vec<String>,
    /// Accepted origins (`https://host:port`), in addition to those of the loopback interface.
    pub allowed_origins: Vec<String>,
    /// The token with all scopes. Without it, the token in the file `control.token` of the data
    /// directory is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<ControlSecret>,
    /// Whether `GET /metrics` needs no token.
    pub public_metrics: bool,
    /// Additional keys, by the name of their principal.
    pub keys: BTreeMap<String, ControlKeyConfig>,
}

/// A token or key in the configuration: plain, or `sha256:` and its digest.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct ControlSecret(SecretString);

impl ControlSecret {
    /// Returns the digest of the token or key.
    ///
    /// # Errors
    ///
    /// Returns [`KeyDigestError`] for a text that is neither a key nor a digest.
    pub fn digest(&self) -> Result<KeyDigest, KeyDigestError> {
        KeyDigest::parse(self.0.expose_secret())
    }

    /// Returns the token or key in plain text, or `None` if only its digest is configured.
    #[must_use]
    pub fn plain(&self) -> Option<&str> {
        let text = self.0.expose_secret();
        (!KeyDigest::is_digest(text)).then_some(text)
    }
}

impl PartialEq for ControlSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for ControlSecret {}

/// Serializes a placeholder, so that no output contains the secret.
impl Serialize for ControlSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// The configuration section `control.keys.NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlKeyConfig {
    /// The key.
    pub key: ControlSecret,
    /// The permissions of the key.
    pub scopes: Vec<Scope>,
}

impl ControlConfig {
    /// Returns the candidate addresses of the control server, in the order in which they are tried.
    /// Usually several proxies run on one machine, one for each client: each takes the first free
    /// port, beginning with the default one. A configured address is the only candidate.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let ControlAddress::At(address) = self.address else {
            return Vec::new();
        };
        let is_chosen = self.address != Self::default().address;
        let n_further = if is_chosen { 0 } else { N_FURTHER_PORTS };
        let ports = address.port()..=address.port().saturating_add(n_further);
        ports.map(|port| (address.ip(), port).into()).collect()
    }
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            address: ControlAddress::At((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            token: None,
            public_metrics: false,
            keys: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_address_has_alternatives() {
        let config = |address: &str| ControlConfig {
            address: address.parse().unwrap(),
            ..ControlConfig::default()
        };
        let default = ControlConfig::default().addresses();
        assert_eq!(default.len(), 33);
        assert_eq!(default[1].to_string(), "127.0.0.1:8644");
        assert_eq!(config("127.0.0.1:8650").addresses().len(), 1);
        assert!(config("off").addresses().is_empty());
    }

    #[test]
    fn control_addresses_are_socket_addresses_or_off() {
        assert_eq!("off".parse(), Ok(ControlAddress::Off));
        assert_eq!(
            "[::1]:80".parse::<ControlAddress>().map(String::from),
            Ok("[::1]:80".to_owned())
        );
        assert_eq!(
            "8643".parse::<ControlAddress>().unwrap_err().to_string(),
            "expected an address such as 127.0.0.1:8643, or off"
        );
    }
}
