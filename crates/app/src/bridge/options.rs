//! The limits under which eras are bridged.

use std::fmt;
use std::time::Duration;

/// How long the bridge waits, how often it repeats, and what it signs with.
#[derive(Clone)]
pub struct BridgeOptions {
    /// How long a server may take to show by its answer which era it speaks.
    pub probe_timeout: Duration,
    /// How long a server may take for what sets a connection up.
    pub handshake_timeout: Duration,
    /// The key that signs the state which is handed to modern clients.
    pub state_key: [u8; 32],
    /// How long that state can be redeemed.
    pub state_ttl: Duration,
    /// How often a server may ask for input before it answers one request.
    pub max_rounds: u32,
}

impl BridgeOptions {
    /// Returns the defaults with this key.
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
