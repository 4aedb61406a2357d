//! Texts of servers that are no messages. They are skipped, and logged once: a server can send as
//! much of it as it likes, and must not fill the log of the proxy with it.

use std::fmt::Display;

use riglm_domain::id::UpstreamName;

/// The texts that were skipped of one connection, or of one exchange.
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

    /// Returns the number of texts that were skipped.
    pub(super) fn n(&self) -> usize {
        self.n
    }
}
