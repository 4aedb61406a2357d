//! The upstreams whose apps a client shows (extension `io.modelcontextprotocol/ui`, SEP-1865).
//!
//! An app is a page that a host gets with `resources/read` of a `ui://` URI. It calls tools by their
//! names at its own server, and the host forwards these calls without saying which app made them.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;

/// The beginning of the URI of each app.
const APP_URI: &str = "ui://";

/// The upstreams whose apps the client has read in this session.
#[derive(Debug, Default)]
pub(in crate::proxy) struct AppServers(Mutex<BTreeSet<UpstreamName>>);

impl AppServers {
    /// Records that the client reads a resource of an upstream, which may be an app.
    pub(super) fn note_read(&self, method: &str, uri: &str, upstream: &UpstreamName) {
        if method == "resources/read" && uri.starts_with(APP_URI) {
            self.0.lock().insert(upstream.clone());
        }
    }

    /// Returns whether the client has read an app of an upstream.
    pub(super) fn has(&self, upstream: &UpstreamName) -> bool {
        self.0.lock().contains(upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_apps_that_were_read_count() {
        let apps = AppServers::default();
        let maps = UpstreamName::parse("maps").unwrap();
        apps.note_read("resources/subscribe", "ui://map", &maps);
        apps.note_read("resources/read", "file:///ui://map", &maps);
        assert!(!apps.has(&maps));
        apps.note_read("resources/read", "ui://map", &maps);
        assert!(apps.has(&maps));
        assert!(!apps.has(&UpstreamName::parse("other").unwrap()));
    }
}
