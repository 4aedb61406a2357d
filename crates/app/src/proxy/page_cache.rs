//! The cache of recently seen tool pages.

use std::ops::Range;
use std::sync::Arc;

use riglm_domain::catalog::tool::ToolPage;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::members;

use super::recent_cache::RecentCache;
use crate::safeguards::ListText;

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
    /// The cursor of the next page, as JSON text.
    pub(super) next_cursor: Option<Box<str>>,
    /// The position of the array of tools in the result.
    tools_at: Range<usize>,
    tools_digest: u64,
}

impl SeenPage {
    /// Returns the page of an upstream with the identity `listing`, which was parsed from `result`.
    pub(super) fn new(
        upstream: UpstreamName,
        page: ToolPage,
        listing: String,
        result: Box<str>,
    ) -> Self {
        let mut tools_at = 0..0;
        let mut all = members(&result);
        while let Some(found) = all.next_at() {
            if found.key == "tools" {
                tools_at = found.value_at;
            }
        }
        let tools = ListText::new(result.get(tools_at.clone()).unwrap_or_default());
        Self {
            upstream,
            names: page.tools().iter().map(|tool| tool.name.clone()).collect(),
            page,
            listing,
            next_cursor: next_cursor(&result).map(Into::into),
            tools_digest: tools.digest,
            tools_at,
            result,
        }
    }

    pub(super) fn tools(&self) -> ListText<'_> {
        ListText {
            tools: self.result.get(self.tools_at.clone()).unwrap_or_default(),
            digest: self.tools_digest,
        }
    }
}

/// Returns the cursor of the next page in a result, as JSON text. Some servers send an empty cursor
/// with the last page.
pub(super) fn next_cursor(result: &str) -> Option<&str> {
    let cursor = member(result, "nextCursor").filter(|cursor| cursor.starts_with('"'));
    cursor.filter(|cursor| *cursor != r#""""#)
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
