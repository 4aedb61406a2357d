//! The cache of recently seen tool pages.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolPage;
use riglm_domain::id::{ToolName, UpstreamName};

use super::recent_cache::RecentCache;

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
#[derive(Debug)]
pub(super) struct PageCache(RecentCache<SeenPage>);

impl Default for PageCache {
    fn default() -> Self {
        Self(RecentCache::new(MAX_PAGES, MAX_BYTES))
    }
}

impl PageCache {
    pub(super) fn find(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let is_it = |seen: &SeenPage| seen.upstream == *upstream && *seen.result == *result;
        self.0.find(is_it)
    }

    pub(super) fn remember(&self, seen: &Arc<SeenPage>) {
        self.0.insert(seen, seen.result.len());
    }
}
