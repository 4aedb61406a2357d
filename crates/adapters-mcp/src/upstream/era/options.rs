//! The limits of the bridge.

use std::fmt;
use std::time::Duration;

/// The timeouts, the limits of rounds and the signing key of the bridge.
#[derive(Clone)]
pub struct BridgeOptions {
    /// The timeout for detecting the era of a server from its answer.
    pub probe_timeout: Duration,
    /// The timeout for setting up a connection.
    pub handshake_timeout: Duration,
    /// The key that signs the state that modern clients receive.
    pub state_key: [u8; 32],
    /// The time to live of that state.
    pub state_ttl: Duration,
    /// The maximum number of requests for input of a server during one request.
    pub max_rounds: u32,
}

impl BridgeOptions {
    /// Returns the default options with this key.
    #[must_use]
    pub fn new(state_key: [u8; 32]) -> Self {
        Self {
            probe_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(30),
            state_key,
            state_ttl: Duration::from_mins(10),
            max_rounds: 16,
        }
    }
}

impl fmt::Debug for BridgeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeOptions")
            .field("probe_timeout", &self.probe_timeout)
            .field("handshake_timeout", &self.handshake_timeout)
            .field("state_ttl", &self.state_ttl)
            .field("max_rounds", &self.max_rounds)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_printed() {
        let printed = format!("{:?}", BridgeOptions::new([77; 32]));
        assert!(!printed.contains("77"), "{printed}");
        assert!(printed.contains("max_rounds: 16"), "{printed}");
    }
}
