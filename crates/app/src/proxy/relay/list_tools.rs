//! `tools/list`: what was available is recorded, and the configured choice is applied.

use std::collections::HashSet;
use std::sync::Arc;

use riglm_domain::edit::{member, with_element, with_member};
use riglm_domain::id::UpstreamName;
use riglm_domain::list_shown::SelectionMode;
use riglm_domain::message::RequestId;
use riglm_domain::prediction::SelectionContext;
use riglm_domain::scan::unescaped;
use riglm_domain::tool::{ToolListing, ToolPage, ToolPageError};
use riglm_ports::observer::{Event, ListShownEvent};

use super::Relay;
use super::list_memory::SeenPage;
use super::offered::next_cursor;
use super::pending::Pending;

/// A page with more bytes is read beside the request workers.
const LARGE_BYTES: usize = 256 << 10;
/// The most names that a session remembers as hidden.
const MAX_HIDDEN: usize = 10_000;
/// Who may keep a result (revision 2026-07-28).
const CACHE_SCOPE: &str = "cacheScope";

impl Relay {
    /// Records the tools of a `tools/list` result, the answer to `asked` with this id. Returns the
    /// result to show in its place, or `None` when it is shown as it is.
    pub(super) async fn list(
        &self,
        result: &str,
        asked: &Pending,
        id: Option<&RequestId>,
    ) -> Option<String> {
        let at = cursor(asked, id);
        let seen = self.seen(result, at.is_none()).await?;
        let row = self.row().await;
        self.shared.recorder.tools_listed(row, &seen.listing).await;
        let mut hidden = self.hidden_of(&seen);
        if self.is_united() {
            return None;
        }
        if let Some(lists) = self.shared.filter.lists() {
            // Passed on because the proxy could not list itself; what is never shown is not here,
            // either.
            let client = self.caller.client_name();
            let now = self.shared.recorder.now();
            let together = self.caller.together(row);
            let mut ask = (self.caller).list_ask(&client, together, self.caller.is_modern(), now);
            ask.client_hash = Some(self.caller.client_hash(&self.shared.recorder));
            hidden = lists.excluded(&ask, self.upstream(), &seen.names);
        }
        self.shared.note_listed(&self.caller);
        let forbidden = (self.shared).forbidden_of(&self.caller, self.upstream(), &seen.names);
        hidden.extend(forbidden);
        hidden.sort_unstable();
        hidden.dedup();
        if self.shared.filter.is_active() {
            self.shared.observe_from(
                &Event::ListShown(ListShownEvent {
                    policy: "patterns",
                    mode: SelectionMode::Names,
                    n_shown: seen.names.len() - hidden.len(),
                    n_available: seen.names.len(),
                    shown_tokens: 0,
                    available_tokens: 0,
                }),
                &self.caller.origin(),
            );
        }
        // What others may not see must not come to them out of a cache.
        let is_shared = self.shared.filter.forbidden().is_some() && is_public(result);
        let shorter =
            (!hidden.is_empty() || is_shared).then(|| private(&seen.page.without(result, &hidden)));
        if !self.shared.needs_offers() {
            return shorter;
        }
        let is_place_of_own = self.turned(&seen, at.as_deref());
        let Some(tool) = self.shared.search_tool.as_ref().filter(|_| is_place_of_own) else {
            return shorter;
        };
        let revision = self.caller.revision();
        let definitions = tool.definitions(revision.as_ref(), self.taken());
        let definitions: Vec<&str> = definitions.into_iter().map(|(_, text)| text).collect();
        if definitions.is_empty() {
            return shorter;
        }
        Some(with_tools(
            shorter.as_deref().unwrap_or(result),
            &definitions,
        ))
    }

    /// Returns the page that a result is, and records it if it was not seen before; `None` if it
    /// cannot be read.
    pub(super) async fn seen(&self, result: &str, is_first: bool) -> Option<Arc<SeenPage>> {
        let seen = self.read_page(result).await?;
        let is_last = next_cursor(result).is_none();
        let now = self.shared.recorder.now();
        self.entry
            .tool_sets
            .listed(&seen.listing, &seen.names, (is_first, is_last), now);
        if let Some(safeguards) = &self.shared.safeguards {
            let n_upstreams = self.shared.upstreams.load().entries.len();
            safeguards.tools_listed(self.upstream(), &seen.names, (is_last, n_upstreams));
        }
        Some(seen)
    }

    async fn read_page(&self, result: &str) -> Option<Arc<SeenPage>> {
        let upstream = self.upstream();
        if let Some(seen) = self.shared.lists.find(upstream, result) {
            // It may have been seen before the upstream was configured anew, or between other
            // pages with the same tools.
            self.entry.params.learn(&seen.page, result);
            return Some(seen);
        }
        self.see(upstream, result).await
    }

    /// Returns the positions of the tools of a page that are not to be shown, and notes them.
    pub(super) fn hidden_of(&self, seen: &SeenPage) -> Vec<usize> {
        let context = SelectionContext {
            principal: &self.caller.principal,
            upstream: self.upstream(),
        };
        let hidden = self.shared.filter.hidden(&context, &seen.names);
        let mut state = self.state();
        if hidden.is_empty() && state.hidden.is_empty() {
            return hidden;
        }
        // A page may have a million tools.
        let positions: HashSet<&usize> = hidden.iter().collect();
        for (position, name) in seen.names.iter().enumerate() {
            if positions.contains(&position) {
                if state.hidden.len() < MAX_HIDDEN {
                    state.hidden.insert(name.clone());
                }
            } else {
                state.hidden.remove(name);
            }
        }
        hidden
    }

    /// Splits and records a page that was not seen before.
    async fn see(&self, upstream: &UpstreamName, result: &str) -> Option<Arc<SeenPage>> {
        let (entry, upstream_name) = (Arc::clone(&self.entry), upstream.clone());
        let text: Box<str> = result.into();
        let read = move || {
            let page = ToolPage::split(&text)?;
            let listing = ToolListing::new(&upstream_name, &page, &text);
            entry.params.learn(&page, &text);
            let seen = SeenPage {
                upstream: upstream_name,
                result: text,
                names: page.tools().iter().map(|tool| tool.name.clone()).collect(),
                listing: listing.id.clone(),
                page,
            };
            Ok((Arc::new(seen), listing))
        };
        let read: Result<_, ToolPageError> = if result.len() > LARGE_BYTES {
            let work = &self.shared.long_work;
            work.done(&self.caller.principal, read).await?
        } else {
            read()
        };
        let (seen, listing) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!("a tool list is passed on unread: {error}");
                return None;
            }
        };
        self.shared.observe_from(
            &Event::ToolsSeen {
                upstream,
                tools: &seen.names,
            },
            &self.caller.origin(),
        );
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

/// Returns whether a cache that several callers share may keep a list.
fn is_public(result: &str) -> bool {
    member(result, CACHE_SCOPE) == Some(r#""public""#)
}

/// Returns a list with more tools at its end.
fn with_tools(result: &str, definitions: &[&str]) -> String {
    let tools = member(result, "tools").unwrap_or("[]").to_owned();
    let all = (definitions.iter()).fold(tools, |tools, tool| with_element(&tools, tool));
    with_member(result, "tools", &all)
}

/// Returns the cursor of a request for a list.
pub(super) fn cursor(asked: &Pending, id: Option<&RequestId>) -> Option<String> {
    let message = asked.message.as_ref()?;
    let mut parts = message.envelopes().iter();
    let part = parts.find(|part| message.single().is_some() || part.id() == id)?;
    let cursor = member(message.params(part)?, "cursor").and_then(unescaped)?;
    Some(cursor.into_owned())
}
