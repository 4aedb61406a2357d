//! The `tools/list` answers of the upstream: records the available tools and applies the configured
//! selection.

use std::sync::Arc;

use riglm_domain::catalog::tool::{ToolListing, ToolPage, ToolPageError};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::{member, with_element, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::selection::shown::SelectionMode;
use riglm_ports::observer::{Event, ListShownEvent};

use super::scope::UpstreamScope;
use super::tool_list_fetch::era_of;
use super::upstream_requests::{Pending, UNSENT};
use super::upstream_tools::UpstreamTools;
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::ListTemplate;
use crate::proxy::page_cache::SeenPage;
use crate::proxy::tool_sets::PagePosition;
use crate::proxy::upstream_cache::CachedList;
use crate::safeguards::ListText;

/// The size in bytes above which a page is parsed outside the request workers.
const LARGE_BYTES: usize = 256 << 10;
/// The result member that says which caches may store a list (revision 2026-07-28).
const CACHE_SCOPE: &str = "cacheScope";

/// A recorded `tools/list` result.
#[derive(Debug, Default)]
pub(super) struct RecordedList {
    /// Its page; `None` if it could not be parsed.
    seen: Option<Arc<SeenPage>>,
    /// The result to show in its place.
    pub(super) replacement: Option<String>,
}

impl RecordedList {
    /// Returns the array of tools that is shown, of a list with this result.
    pub(super) fn shown_tools<'a>(&'a self, result: &'a str) -> ListText<'a> {
        match (&self.replacement, &self.seen) {
            (Some(shown), _) => ListText::of_result(shown),
            (None, Some(seen)) => seen.tools(),
            (None, None) => ListText::of_result(result),
        }
    }
}

impl UpstreamTools {
    /// Records the tools of a `tools/list` result, the answer to the request `asked` with this id.
    pub(super) async fn record_list(
        &self,
        result: &str,
        asked: &Pending,
        id: Option<&RequestId>,
    ) -> RecordedList {
        let at = cursor(asked, id);
        let seen = self.record_page(result, at.is_none()).await;
        if let Some(page) = &seen
            && at.is_none()
            && page.next_cursor.is_none()
            && self.scope.entry.starts_processes()
            && !self.scope.is_merged()
            && let Some(request) = (asked.message.as_ref()).filter(|_| asked.generation != UNSENT)
        {
            self.remember_whole(request, result).await;
        }
        let replacement = match &seen {
            Some(seen) => {
                self.replacement(result, seen, at.as_deref(), asked, id)
                    .await
            }
            None => None,
        };
        RecordedList { seen, replacement }
    }

    /// Keeps a list of one page for clients that come while the process is starting.
    async fn remember_whole(&self, request: &Message, result: &str) {
        let template = ListTemplate::new(ListKind::Tools, request, era_of(request));
        let mut list = CachedList::default();
        list.add_page(ListKind::Tools, result);
        let key = self.scope.list_key(&template);
        // One that is too long to be kept is fetched again.
        let _ = self.scope.remember_list(&template, key, list).await;
    }

    /// Records the tools of a list that is shown without asking the upstream, once while it stays the
    /// same.
    pub(in crate::proxy) async fn record_known(&self, list: &CachedList) {
        if !self.is_new_known(list.digest) {
            return;
        }
        let page = list.to_page(ListKind::Tools);
        if let Some(seen) = self.record_page(&page, true).await {
            let row = self.scope.session_id().await;
            let recorder = &self.scope.shared.recorder;
            recorder.tools_listed(row, &seen.listing).await;
            self.hidden_of(&seen);
        }
    }

    /// Returns the result to show in place of a recorded page, or `None` to show it unchanged. The
    /// page was requested with the cursor `at`, by the request `asked` with this id.
    async fn replacement(
        &self,
        result: &str,
        seen: &Arc<SeenPage>,
        at: Option<&str>,
        asked: &Pending,
        id: Option<&RequestId>,
    ) -> Option<String> {
        let row = self.scope.session_id().await;
        self.scope
            .shared
            .recorder
            .tools_listed(row, &seen.listing)
            .await;
        let mut hidden = self.hidden_of(seen);
        if id.is_some_and(|id| InternalRequest::FanOut.has(id)) {
            return None; // The aggregator selects from the merged list.
        }
        if let Some(lists) = self.scope.shared.selection.lists() {
            // The proxy could not compose this list and forwards it. Tools that are never listed
            // must be left out here too.
            let client = self.scope.client_context.client_name();
            let now = self.scope.shared.recorder.now();
            let session_key = self.scope.client_context.session_key(row);
            let mut ask = (self.scope.client_context).list_request(
                &client,
                session_key,
                self.scope.client_context.era(),
                now,
            );
            ask.client_hash =
                Some((self.scope.client_context).client_hash(&self.scope.shared.recorder));
            hidden = lists.excluded_positions(&ask, self.scope.upstream(), &seen.names);
        }
        self.scope.shared.note_listed(&self.scope.client_context);
        let forbidden = (self.scope.shared).forbidden_of(
            &self.scope.client_context,
            self.scope.upstream(),
            &seen.names,
        );
        hidden.extend(forbidden);
        hidden.sort_unstable();
        hidden.dedup();
        if self.scope.shared.selection.is_active() {
            self.scope.shared.observe_from(
                &Event::ListShown(ListShownEvent {
                    policy: "patterns",
                    mode: SelectionMode::Names,
                    n_shown: seen.names.len() - hidden.len(),
                    n_available: seen.names.len(),
                    shown_tokens: 0,
                    available_tokens: 0,
                }),
                &self.scope.client_context.origin(),
            );
        }
        // A shared cache must not pass this list to clients for which tools are forbidden.
        let is_shared = self.scope.shared.selection.forbidden().is_some() && is_public(result);
        let shorter =
            (!hidden.is_empty() || is_shared).then(|| private(&seen.page.without(result, &hidden)));
        if !self.scope.shared.needs_catalogs() {
            return shorter;
        }
        let is_place_of_own = self.note_page(seen, at);
        let Some(tool) = self.scope.shared.own_tools().filter(|_| is_place_of_own) else {
            return shorter;
        };
        self.scope.client_context.note_own_tools();
        let revision = self.scope.client_context.revision();
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        let useless = shared.useless_own_tools(client_context, params(asked, id));
        let definitions = tool.definitions(revision.as_ref(), self.taken_names().and(useless));
        let definitions: Vec<&str> = definitions.into_iter().map(|(_, text)| text).collect();
        if definitions.is_empty() {
            return shorter;
        }
        let all = with_tools(shorter.as_deref().unwrap_or(result), &definitions);
        // Only clients that show apps get the tool that shows the session.
        Some(if shared.has_session_app() {
            private(&all)
        } else {
            all
        })
    }

    /// Returns the page of a result and records it if it is new. Returns `None` if it cannot be
    /// parsed.
    pub(super) async fn record_page(&self, result: &str, is_first: bool) -> Option<Arc<SeenPage>> {
        let seen = self.read_page(result).await?;
        let is_last = seen.next_cursor.is_none();
        let now = self.scope.shared.recorder.now();
        let position = PagePosition { is_first, is_last };
        (self.scope.entry.tool_sets).add_page(&seen.listing, &seen.names, position, now);
        if let Some(safeguards) = self.scope.shared.safeguards() {
            let n_upstreams = self.scope.shared.upstreams.load().entries.len();
            safeguards.tools_listed(self.scope.upstream(), &seen.names, is_last, n_upstreams);
        }
        Some(seen)
    }

    async fn read_page(&self, result: &str) -> Option<Arc<SeenPage>> {
        let upstream = self.scope.upstream();
        if let Some(seen) = self.scope.shared.page_cache.find(upstream, result) {
            // The page may have been cached under an earlier configuration, or between other pages
            // with the same tools.
            self.scope.entry.params.learn(&seen.page, result);
            return Some(seen);
        }
        self.parse_and_record(upstream, result).await
    }

    /// Parses and records a new page.
    async fn parse_and_record(
        &self,
        upstream: &UpstreamName,
        result: &str,
    ) -> Option<Arc<SeenPage>> {
        let (entry, upstream_name) = (Arc::clone(&self.scope.entry), upstream.clone());
        let text: Box<str> = result.into();
        let read = move || {
            let page = ToolPage::split(&text)?;
            let listing = ToolListing::new(&upstream_name, &page, &text);
            entry.params.learn(&page, &text);
            let seen = SeenPage::new(upstream_name, page, listing.id.clone(), text);
            Ok((Arc::new(seen), listing))
        };
        let read: Result<_, ToolPageError> = if result.len() > LARGE_BYTES {
            let work = &self.scope.shared.long_work;
            work.run(&self.scope.client_context.principal, read).await?
        } else {
            read()
        };
        let (seen, listing) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!("failed to read a tool list, forwarding it unchanged: {error}");
                return None;
            }
        };
        self.scope.shared.observe_from(
            &Event::ToolsSeen {
                upstream,
                tools: &seen.names,
            },
            &self.scope.client_context.origin(),
        );
        self.scope.shared.recorder.tools_seen(listing).await;
        self.scope.shared.page_cache.remember(&seen);
        Some(seen)
    }
}

/// Marks a shortened list as private, because it depends on the client. A shared cache must not
/// store it (SEP-2549). A list without a cache scope stays unchanged.
fn private(result: &str) -> String {
    if member(result, CACHE_SCOPE).is_none() {
        return result.to_owned();
    }
    with_member(result, CACHE_SCOPE, r#""private""#)
}

/// Returns whether a shared cache may store a list.
fn is_public(result: &str) -> bool {
    member(result, CACHE_SCOPE) == Some(r#""public""#)
}

fn with_tools(result: &str, definitions: &[&str]) -> String {
    let tools = member(result, "tools").unwrap_or("[]").to_owned();
    let all = (definitions.iter()).fold(tools, |tools, tool| with_element(&tools, tool));
    with_member(result, "tools", &all)
}

pub(super) fn cursor(asked: &Pending, id: Option<&RequestId>) -> Option<String> {
    let cursor = member(params(asked, id)?, "cursor").and_then(unescape)?;
    Some(cursor.into_owned())
}

/// Returns the `params` of a list request.
fn params<'a>(asked: &'a Pending, id: Option<&RequestId>) -> Option<&'a str> {
    let message = asked.message.as_ref()?;
    let mut parts = message.envelopes().iter();
    let part = parts.find(|part| message.single().is_some() || part.id() == id)?;
    message.params(part)
}
