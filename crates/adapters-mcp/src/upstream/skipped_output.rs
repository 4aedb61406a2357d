//! Output of servers that is not a message. It is skipped, and logged once as a warning, because a
//! server can send any amount of it and must not fill the log of the proxy.

use std::fmt::Display;

use riglm_domain::id::UpstreamName;

/// The skipped texts of one connection, or of one exchange.
#[derive(Debug, Default)]
pub(super) struct SkippedOutput {
    n: usize,
}

impl SkippedOutput {
    /// Counts a skipped text, and logs the reason: the first time as a warning.
    pub(super) fn note(&mut self, upstream: &UpstreamName, error: &impl Display) {
        self.n = self.n.saturating_add(1);
        if self.n == 1 {
            tracing::warn!(
                %upstream,
                "upstream {upstream}: skipped invalid output: {error} (later cases are logged at \
                 debug)"
            );
        } else {
            tracing::debug!(%upstream, "upstream {upstream}: skipped invalid output: {error}");
        }
    }

    pub(super) fn count(&self) -> usize {
        self.n
    }
}
