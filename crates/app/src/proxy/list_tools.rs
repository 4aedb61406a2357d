//! `tools/list`: what was available is recorded, and the configured choice is applied.

use std::sync::{Arc, Mutex, PoisonError};

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::SelectionContext;
use riglm_domain::tool::{ToolListing, ToolPage};

use super::session::ClientSession;

/// How many different pages are remembered.
const MAX_PAGES: usize = 64;
/// How many bytes the remembered pages may have in all.
const MAX_BYTES: usize = 16 << 20;

/// A page of tools that was split before.
#[derive(Debug)]
struct SeenPage {
    upstream: UpstreamName,
    result: Box<str>,
    page: ToolPage,
    names: Vec<ToolName>,
    listing: String,
}

/// The pages of tools that were seen lately, with what was found out about them.
///
/// Splitting and hashing a page of 1,000 tools costs milliseconds, comparing it with one seen
/// before microseconds, and servers answer with the same page again and again.
#[derive(Debug, Default)]
pub struct ListMemory {
    pages: Mutex<Vec<Arc<SeenPage>>>,
}

impl ListMemory {
    fn find(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pages
            .iter()
            .position(|seen| seen.upstream == *upstream && *seen.result == *result)?;
        // The page used last stands first, and the one unused for longest is forgotten.
        pages[..=at].rotate_right(1);
        pages.first().cloned()
    }

    fn remember(&self, seen: Arc<SeenPage>) {
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

impl ClientSession {
    /// Records the tools of a `tools/list` result. Returns the result to show in its place, or
    /// `None` when it is shown as it is.
    pub(super) async fn list(&self, result: &str) -> Option<String> {
        let upstream = self.connection.connector().name();
        let seen = match self.shared.lists.find(upstream, result) {
            Some(seen) => seen,
            None => self.see(upstream, result).await?,
        };
        let row = self.row().await;
        self.shared.recorder.tools_listed(row, &seen.listing).await;
        let context = SelectionContext {
            principal: &self.principal,
            upstream,
        };
        let hidden = self.shared.filter.hidden(&context, &seen.names);
        let mut state = self.state();
        if hidden.is_empty() && state.hidden.is_empty() {
            return None;
        }
        for (position, name) in seen.names.iter().enumerate() {
            if hidden.contains(&position) {
                state.hidden.insert(name.clone());
            } else {
                state.hidden.remove(name);
            }
        }
        (!hidden.is_empty()).then(|| seen.page.without(result, &hidden))
    }

    /// Splits and records a page that was not seen before.
    async fn see(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let page = match ToolPage::split(result) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!("a tool list is passed on unread: {error}");
                return None;
            }
        };
        let listing = ToolListing::new(upstream, &page, result);
        let seen = Arc::new(SeenPage {
            upstream: upstream.clone(),
            result: result.into(),
            names: page.tools().iter().map(|tool| tool.name.clone()).collect(),
            listing: listing.id.clone(),
            page,
        });
        self.shared.recorder.tools_seen(listing).await;
        self.shared.lists.remember(Arc::clone(&seen));
        Some(seen)
    }
}
