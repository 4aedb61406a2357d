//! The cache of recently seen tool pages.

use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolPage;
use riglm_domain::id::{ToolName, UpstreamName};

/// The maximum number of cached pages.
const MAX_PAGES: usize = 64;
/// The maximum size of all cached pages in bytes.
const MAX_BYTES: usize = 16 << 20;

/// A tool page that was parsed before.
#[derive(Debug)]
pub(super) struct SeenPage {
    pub(super) upstream: UpstreamName,
    pub(super) result: Box<str>,
    pub(super) page: ToolPage,
    pub(super) names: Vec<ToolName>,
    pub(super) listing: String,
}

/// The cache of recently seen tool pages with their parse results.
///
/// Parsing and hashing a page of 1,000 tools takes milliseconds. Comparing it with a cached page
/// takes microseconds, and servers send the same page again and again.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PageCache {
    pages: Mutex<Vec<Arc<SeenPage>>>,
}

impl PageCache {
    pub(super) fn find(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let mut pages = self.pages.lock();
        let at = pages
            .iter()
            .position(|seen| seen.upstream == *upstream && *seen.result == *result)?;
        // Moves the page to the front. The least recently used page is evicted.
        pages[..=at].rotate_right(1);
        pages.first().cloned()
    }

    pub(super) fn remember(&self, seen: Arc<SeenPage>) {
        let mut pages = self.pages.lock();
        pages.insert(0, seen);
        pages.truncate(MAX_PAGES);
        let mut n_bytes = 0;
        pages.retain(|page| {
            n_bytes += page.result.len();
            n_bytes <= MAX_BYTES
        });
    }
}
