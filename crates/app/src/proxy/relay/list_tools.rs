//! `tools/list`: what was available is recorded, and the configured choice is applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use riglm_domain::edit::{member, with_member};
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::SelectionContext;
use riglm_domain::tool::{ToolListing, ToolPage};

use super::Relay;
use super::list_memory::SeenPage;

/// Who may keep a result (revision 2026-07-28).
const CACHE_SCOPE: &str = "cacheScope";

impl Relay {
    /// Records the tools of a `tools/list` result. Returns the result to show in its place, or
    /// `None` when it is shown as it is.
    pub(super) async fn list(&self, result: &str) -> Option<String> {
        let upstream = self.upstream();
        let seen = match self.shared.lists.find(upstream, result) {
            Some(seen) => {
                // It may have been seen before the upstream was configured anew, or between other
                // pages with the same tools.
                self.entry.params.learn(&seen.page, result);
                seen
            }
            None => self.see(upstream, result).await?,
        };
        let row = self.row().await;
        self.shared.recorder.tools_listed(row, &seen.listing).await;
        let context = SelectionContext {
            principal: &self.caller.principal,
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
        if hidden.is_empty() || self.shows_all.load(Ordering::Acquire) {
            return None;
        }
        Some(private(&seen.page.without(result, &hidden)))
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
        self.entry.params.learn(&page, result);
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

/// Returns a list that was made shorter, which depends on who asks: a cache that several callers
/// share must not keep it (SEP-2549). Of lists that say nothing of caches nothing is said.
fn private(result: &str) -> String {
    if member(result, CACHE_SCOPE).is_none() {
        return result.to_owned();
    }
    with_member(result, CACHE_SCOPE, r#""private""#)
}
