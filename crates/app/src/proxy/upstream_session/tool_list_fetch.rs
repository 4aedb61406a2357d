//! The requests of the proxy for the tools and skills of one upstream, when a search or a list needs them before
//! the client requests them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::protocol::Era;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::UpstreamSession;
use super::error_hints::FailedCall;
use super::upstream_requests::Pending;
use super::upstream_tools::{Pages, WholeList};
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::{ListFetchError, ListTemplate};
use crate::proxy::own_tools::{OwnTool, OwnTools};
use crate::proxy::page_cache::next_cursor;
use riglm_discovery::search::Catalog;

/// The generation of a request that was not sent on any connection yet.
const UNSENT: u64 = u64::MAX;
/// The time that the hint to a failed call waits for the tool list if it is not known.
const HINT_TIMEOUT: Duration = Duration::from_secs(2);

impl UpstreamSession {
    /// Returns the catalog of the client. Fetches the list of the upstream if it is not known.
    /// Returns `None` if the upstream uses the name of this own tool. `request` is the request that
    /// needs the catalog.
    ///
    /// # Errors
    ///
    /// Returns the reason why the list is not available.
    pub(in crate::proxy) async fn catalog_for(
        self: &Arc<Self>,
        tool: &OwnTools,
        own: OwnTool,
        request: &Message,
        era: Era,
    ) -> Result<Option<Arc<Catalog>>, ListFetchError> {
        let known = self.scope.client_context.search.complete_catalog();
        let catalog = match known.filter(|_| self.tools.has_tools()) {
            Some(catalog) => catalog,
            None => match self.fetch(Some(tool), request, era).await? {
                Some(catalog) => catalog,
                None => return Ok(None),
            },
        };
        let taken = tool.taken_in(&catalog);
        tool.warn_of_clash(self.scope.upstream(), taken);
        Ok((!taken.has(own)).then(|| {
            self.scope
                .shared
                .permitted_catalog(&self.scope.client_context, &catalog)
        }))
    }

    /// Fetches all pages of the upstream's list. Returns `None` if the upstream has no tools.
    async fn fetch(
        self: &Arc<Self>,
        tool: Option<&OwnTools>,
        request: &Message,
        era: Era,
    ) -> Result<Option<Arc<Catalog>>, ListFetchError> {
        self.connect().await?;
        if !self.tools.has_tools() {
            return Ok(None);
        }
        let epoch = self.scope.client_context.search.epoch();
        let template = ListTemplate::new(ListKind::Tools, request, era);
        let mut pages = Pages::default();
        let mut cursor: Option<String> = None;
        loop {
            let answer = self
                .send_own_request(template.request(cursor.as_deref()))
                .await?;
            let part = answer.single().ok_or(ListFetchError::Batch)?;
            if part.kind() == MessageKind::Failure {
                let code = answer.error(part).and_then(|error| member(error, "code"));
                return match code {
                    // The code for an unknown method: the server has no tools.
                    Some("-32601") => Ok(None),
                    code => Err(ListFetchError::Code(code.unwrap_or("none").to_owned())),
                };
            }
            let result = answer.result(part).unwrap_or_default();
            let seen = self.tools.record_page(result, cursor.is_none()).await;
            let page = seen.ok_or(ListFetchError::InvalidList)?;
            self.tools.hidden_of(&page);
            let next = page.next_cursor.as_deref().map(str::to_owned);
            pages.add(page);
            if next.is_none() || next == cursor {
                break;
            }
            if pages.is_full() {
                pages.is_cut = true;
                break;
            }
            cursor = next;
        }
        Ok(Some(self.tools.publish_catalog(tool, &pages, epoch)))
    }

    /// Fetches the entries of another list of the upstream, JSON texts, at most `n`.
    ///
    /// # Errors
    ///
    /// Returns the reason why the list is not available.
    pub(in crate::proxy) async fn fetch_entries(
        self: &Arc<Self>,
        template: &ListTemplate,
        n: usize,
    ) -> Result<Vec<String>, ListFetchError> {
        self.connect().await?;
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = template.request(cursor.as_deref());
            let answer = self.send_own_request(request).await?;
            let part = answer.single().ok_or(ListFetchError::Batch)?;
            let Some(result) = answer.result(part) else {
                let code = answer.error(part).and_then(|error| member(error, "code"));
                return Err(ListFetchError::Code(code.unwrap_or("none").to_owned()));
            };
            let page = member(result, template.kind.member()).unwrap_or("[]");
            let page: Vec<&RawValue> =
                serde_json::from_str(page).map_err(|_| ListFetchError::InvalidList)?;
            let n_before = entries.len();
            let room = n.saturating_sub(n_before);
            entries.extend(page.iter().take(room).map(|entry| entry.get().to_owned()));
            let next = next_cursor(result).map(str::to_owned);
            // A server may send empty pages with new cursors without end.
            if next.is_none() || next == cursor || entries.len() == n || entries.len() == n_before {
                return Ok(entries);
            }
            cursor = next;
        }
    }

    /// Returns the complete list of the upstream. Fetches it unless the cached list is fresh. Returns
    /// `None` if it is not available.
    pub(in crate::proxy) async fn whole_list(
        self: &Arc<Self>,
        request: &Message,
        era: Era,
    ) -> Option<Arc<WholeList>> {
        if let Some(known) = self.tools.known_list() {
            return Some(known);
        }
        // Only one of several concurrent requests fetches the list. The others use its result.
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.tools.known_list() {
            return Some(known);
        }
        let tool = self.scope.shared.own_tools().map(|tools| &**tools);
        let fetched = self.fetch(tool, request, era).await;
        let whole = self.tools.last_list();
        match (fetched, whole) {
            (Ok(Some(_)), Some(whole)) => Some(whole),
            (Ok(_), _) => None,
            (Err(reason), Some(whole)) => {
                tracing::debug!(
                    "failed to fetch the tool list, showing the last known list: {reason}"
                );
                Some(whole)
            }
            (Err(reason), None) => {
                tracing::debug!(
                    "failed to fetch the whole tool list, forwarding the request unchanged: \
                     {reason}"
                );
                None
            }
        }
    }

    /// Returns the catalog for the descriptions of tools. With several upstreams only the known
    /// catalog is used, without fetching.
    pub(super) async fn described_catalog(
        self: &Arc<Self>,
        message: &Message,
        era: Era,
    ) -> Option<Arc<Catalog>> {
        let known = self.scope.client_context.search.complete_catalog();
        if known.is_some() {
            return known;
        }
        if self.scope.is_merged() {
            return self.scope.client_context.search.last_complete_catalog();
        }
        let tool = self.scope.shared.own_tools().map(|tools| &**tools);
        let limit = self.scope.shared.limits().unite_timeout;
        let fetched = tokio::time::timeout(limit, self.fetch(tool, message, era)).await;
        fetched.ok()?.ok()?
    }

    /// Returns the catalog for the hint to a failed call, if it is known soon.
    pub(super) async fn catalog_for_hint(
        self: &Arc<Self>,
        call: &FailedCall,
    ) -> Option<Arc<Catalog>> {
        let known = self.scope.shared.catalog_of(&self.scope.client_context);
        if known.is_some() {
            return known;
        }
        if self.scope.is_merged() {
            // The list of one upstream alone is not the catalog of the session.
            return self
                .scope
                .shared
                .last_catalog_of(&self.scope.client_context);
        }
        let tools = self.scope.shared.own_tools().map(|tools| &**tools);
        let asked = self.catalog_for(tools?, OwnTool::Search, &call.request, call.era);
        let asked = tokio::time::timeout(HINT_TIMEOUT, asked).await;
        asked.ok()?.ok().flatten()
    }

    /// Sends a request of the proxy and waits for its answer. The request is cancelled if the
    /// future is dropped.
    async fn send_own_request(
        self: &Arc<Self>,
        request: Message,
    ) -> Result<Message, ListFetchError> {
        self.touch();
        let (answered, answer) = oneshot::channel();
        let (id, message) = {
            let number = self.n_asked.fetch_add(1, Ordering::Relaxed) + 1;
            let id = InternalRequest::ToolList.id(number);
            let mut state = self.state.lock();
            let message = request.with_id(&id);
            let started_at = self.scope.shared.recorder.now();
            let pending = Pending::own(answered, message.clone(), UNSENT, started_at);
            state.insert(id.clone(), pending);
            (id, message)
        };
        let mut inquiry = OwnRequest {
            upstream: Arc::clone(self),
            id,
            is_over: false,
        };
        if let Ok(Some(exchange)) = self.forward(message).await {
            crate::proxy::log_spans::spawn(exchange.run);
        }
        let answer = answer.await;
        inquiry.is_over = true;
        match answer {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(match self.scope.entry.failure() {
                Some(failure) => failure.into(),
                None => ListFetchError::Request("no answer".to_owned()),
            }),
        }
    }
}

/// A request that is in progress for a search.
struct OwnRequest {
    upstream: Arc<UpstreamSession>,
    id: RequestId,
    is_over: bool,
}

impl Drop for OwnRequest {
    /// The request stays in the table, so that a late answer is recognized.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (upstream, id) = (Arc::clone(&self.upstream), self.id.clone());
            runtime.spawn(async move { upstream.cancel_upstream(&id, "no longer wanted").await });
        }
    }
}
