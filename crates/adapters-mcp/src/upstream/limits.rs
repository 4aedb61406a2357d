//! Limits of one upstream connection.

use std::time::Duration;

/// Timeouts and sizes of every connection to one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// The timeout for making a TCP or TLS connection.
    pub connect_timeout: Duration,
    /// The timeout for a server to accept a notification or to send its endpoint (HTTP+SSE), and
    /// for a process to take a message from its full input.
    pub accept_timeout: Duration,
    /// The largest message that is accepted from the server, in bytes.
    pub max_message_bytes: usize,
    /// The time limit of each stage of ending a process: closing its input, asking it to terminate,
    /// killing it.
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
