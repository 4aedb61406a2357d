//! Limits of one upstream connection.

use std::time::Duration;

/// The reason of a connection failure if nothing listens at the address.
pub const REFUSED: &str = "connection refused";

/// Timeouts and sizes of every connection to one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// The timeout for making a TCP or TLS connection.
    pub connect_timeout: Duration,
    /// The handling of messages to a server on this machine that refuses connections.
    pub patience: Patience,
    /// The timeout for a server to accept a notification or to send its endpoint (HTTP+SSE), and
    /// for a process to take a message from its full input.
    pub accept_timeout: Duration,
    /// The largest message that is accepted from the server, in bytes.
    pub max_message_bytes: usize,
    /// The time limit of each stage of ending a process: closing its input, asking it to terminate,
    /// killing it.
    pub shutdown_grace: Duration,
}

/// The handling of messages to a server that refuses connections. Nothing of them has been sent, so
/// they can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time during which connections are tried again.
    pub time: Duration,
    /// The reason in the error afterwards.
    pub reason: &'static str,
}

impl Default for Patience {
    /// Returns none: a message fails at once.
    fn default() -> Self {
        Self {
            time: Duration::ZERO,
            reason: REFUSED,
        }
    }
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            patience: Patience::default(),
            accept_timeout: Duration::from_secs(30),
            max_message_bytes: 16 * 1024 * 1024,
            shutdown_grace: Duration::from_secs(3),
        }
    }
}
