//! The pages of tools that were seen lately.

use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::tool::ToolPage;

/// How many different pages are remembered.
const MAX_PAGES: usize = 64;
/// How many bytes the remembered pages may have in all.
const MAX_BYTES: usize = 16 << 20;

/// A page of tools that was split before.
#[derive(Debug)]
pub(super) struct SeenPage {
    pub(super) upstream: UpstreamName,
    pub(super) result: Box<str>,
    pub(super) page: ToolPage,
    pub(super) names: Vec<ToolName>,
    pub(super) listing: String,
}

/// The pages of tools that were seen lately, with what was found out about them.
///
/// Splitting and hashing a page of 1,000 tools costs milliseconds, comparing it with one seen
/// before microseconds, and servers answer with the same page again and again.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ListMemory {
    pages: Mutex<Vec<Arc<SeenPage>>>,
}

impl ListMemory {
    pub(super) fn find(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pages
            .iter()
            .position(|seen| seen.upstream == *upstream && *seen.result == *result)?;
        // The page used last stands first, and the one unused for longest is forgotten.
        pages[..=at].rotate_right(1);
        pages.first().cloned()
    }

    pub(super) fn remember(&self, seen: Arc<SeenPage>) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.insert(0, seen);
        pages.truncate(MAX_PAGES);
        let mut n_bytes = 0;
        pages.retain(|page| {
            n_bytes += page.result.len();
            n_bytes <= MAX_BYTES
        });
    }
}
