//! Bounds of one upstream connection.

use std::time::Duration;

/// Deadlines and sizes that hold for every connection to one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// How long making a TCP or TLS connection may take.
    pub connect_timeout: Duration,
    /// How long a server may take to accept a notification, to name its endpoint (HTTP+SSE), or a
    /// process to take a message off its full input.
    pub accept_timeout: Duration,
    /// The largest message that is taken from the server, in bytes.
    pub max_message_bytes: usize,
    /// How long each stage of ending a process may take: closing its input, asking it to
    /// terminate, killing it.
    pub shutdown_grace: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            accept_timeout: Duration::from_secs(30),
            max_message_bytes: 16 * 1024 * 1024,
            shutdown_grace: Duration::from_secs(2),
        }
    }
}
