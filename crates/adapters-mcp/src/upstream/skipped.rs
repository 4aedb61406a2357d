//! What comes from a server and is no message. It is skipped, and told of once: a server can send as
//! much of it as it likes, and must not fill the log of the proxy with it.

use std::fmt::Display;

use riglm_domain::id::UpstreamName;

/// What was skipped of one connection, or of one exchange.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    n: usize,
}

impl Skipped {
    /// Counts something that was skipped, and logs why: the first time as a warning.
    pub(super) fn note(&mut self, upstream: &UpstreamName, error: &impl Display) {
        self.n = self.n.saturating_add(1);
        if self.n == 1 {
            tracing::warn!(
                %upstream,
                "skipped something that upstream {upstream} sent: {error} (later ones are logged at \
                 debug)"
            );
        } else {
            tracing::debug!(%upstream, "skipped something that upstream {upstream} sent: {error}");
        }
    }

    /// Returns how often something was skipped.
    pub(super) fn n(&self) -> usize {
        self.n
    }
}
