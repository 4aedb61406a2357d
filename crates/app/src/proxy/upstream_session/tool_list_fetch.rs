//! The requests of the proxy for the tools and skills of one upstream, when a search or a list needs them before
//! the client requests them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riglm_domain::mcp::edit::{member, with_member, without_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::is_modern_request;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Era;
use serde_json::value::RawValue;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::timeout;

use super::UpstreamSession;
use super::error_hints::FailedCall;
use super::known_answers::READY_WITHIN;
use super::upstream_requests::{Pending, UNSENT};
use super::upstream_tools::{Pages, WholeList};
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::{ListFetchError, ListTemplate};
use crate::proxy::log_spans::spawn;
use crate::proxy::own_tools::{OwnTool, OwnTools};
use crate::proxy::page_cache::next_cursor;
use crate::proxy::upstream_cache::CachedList;
use riglm_discovery::search::Catalog;

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
            None => match self
                .fetch(&ListTemplate::new(ListKind::Tools, request, era))
                .await?
            {
                Some(catalog) => catalog,
                None => return Ok(None),
            },
        };
        let taken = tool.taken_in(&catalog);
        tool.warn_of_clash(self.scope.upstream(), taken);
        Ok((!taken.has(own))
            .then(|| (self.scope.shared).permitted_catalog(&self.scope.client_context, &catalog)))
    }

    /// Fetches all pages of the upstream's list. Returns `None` if the upstream has no tools.
    async fn fetch(
        self: &Arc<Self>,
        template: &ListTemplate,
    ) -> Result<Option<Arc<Catalog>>, ListFetchError> {
        self.connect().await?;
        if !self.tools.has_tools() {
            return Ok(None);
        }
        let epoch = self.scope.client_context.search.epoch();
        let mut pages = Pages::default();
        let mut list = CachedList::default();
        let mut cursor: Option<String> = None;
        loop {
            let answer = self
                .send_own_request(template.request(cursor.as_deref()))
                .await?;
            let result = match list_result(&answer) {
                // The code for an unknown method: the server has no tools.
                Err(ListFetchError::Code(code)) if code == "-32601" => return Ok(None),
                result => result?,
            };
            let seen = self.tools.record_page(result, cursor.is_none()).await;
            let page = seen.ok_or(ListFetchError::InvalidList)?;
            self.tools.hidden_of(&page);
            if self.scope.entry.starts_processes() {
                list.add_page(ListKind::Tools, result);
            }
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
        if self.scope.entry.starts_processes() {
            let key = self.scope.list_key(template);
            // A list that is too long to be kept is fetched again.
            let _ = self.scope.remember_list(template, key, list).await;
        }
        Ok(Some(self.tools.publish_catalog(&pages, epoch)))
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
            let result = list_result(&answer)?;
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
        let template = ListTemplate::new(ListKind::Tools, request, era);
        let known = self.known_tools(&template);
        // Only one of several concurrent requests fetches the list. The others use its result.
        let fetching = match (Arc::clone(&self.fetching).try_lock_owned(), &known) {
            (Ok(fetching), _) => fetching,
            (Err(_), Some(known)) => return self.show_known(known, era).await,
            (Err(_), None) => Arc::clone(&self.fetching).lock_owned().await,
        };
        if let Some(listed) = self.tools.known_list() {
            return Some(listed);
        }
        if let Some(known) = known {
            return match self.fetch_soon(template, &known, fetching).await {
                None => self.show_known(&known, era).await,
                listed => listed,
            };
        }
        let fetched = self.fetch(&template).await;
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

    /// Returns the last known tools if the process is not ready.
    fn known_tools(&self, template: &ListTemplate) -> Option<Arc<CachedList>> {
        // One with other capabilities may be shown other tools.
        let known = (self.scope.entry.catalog).list(&self.scope.list_key(template));
        known.filter(|_| self.is_not_ready())
    }

    /// Returns the known answer to a request for the whole list that passes unchanged. Begins to fetch
    /// the list; the future returns `None` if it came soon, so that the request can be forwarded.
    pub(super) fn known_list_answer(
        self: &Arc<Self>,
        request: &Message,
    ) -> Option<impl Future<Output = Option<String>> + Send + use<>> {
        let params = request.single().and_then(|part| request.params(part));
        let is_whole = params.is_none_or(|params| member(params, "cursor").is_none());
        let era = era_of(request);
        let template = ListTemplate::new(ListKind::Tools, request, era);
        let known = self.known_tools(&template).filter(|_| is_whole)?;
        let upstream = Arc::clone(self);
        Some(async move {
            let fetching = Arc::clone(&upstream.fetching).try_lock_owned();
            if let Ok(fetching) = fetching
                && (upstream.fetch_soon(template, &known, fetching).await).is_some()
            {
                return None;
            }
            Some(known_page(&known, era))
        })
    }

    /// Fetches the tools. Returns `None` if they do not come soon; the client is then notified if they
    /// turn out to be others than the `known` ones.
    async fn fetch_soon(
        self: &Arc<Self>,
        template: ListTemplate,
        known: &CachedList,
        fetching: OwnedMutexGuard<()>,
    ) -> Option<Arc<WholeList>> {
        let (upstream, asked) = (Arc::clone(self), template.clone());
        let mut fetched = spawn(async move {
            let _fetching = fetching;
            let catalog = upstream.fetch(&asked).await.ok().flatten();
            catalog.and_then(|_| upstream.tools.last_list())
        });
        if let Ok(soon) = timeout(READY_WITHIN, &mut fetched).await {
            return soon.ok().flatten();
        }
        let (upstream, digest) = (Arc::clone(self), known.digest);
        spawn(async move {
            let is_listed = matches!(fetched.await, Ok(Some(_)));
            let key = upstream.scope.list_key(&template);
            let listed = upstream.scope.entry.catalog.list(&key);
            let is_other = is_listed && listed.is_some_and(|now| now.digest != digest);
            let is_promised =
                upstream.scope.client_context.has_promise() || upstream.tools.tells_of_changes();
            // A modern client may not use the known tools again.
            if is_other && is_promised && template.era == Era::Legacy {
                let method = method::NOTIFICATIONS_TOOLS_LIST_CHANGED;
                upstream
                    .pass_as_received(Message::notification(method, None))
                    .await;
            }
        });
        None
    }

    /// Stores known tools as those of the session, as if the upstream had just listed them.
    async fn show_known(&self, known: &CachedList, era: Era) -> Option<Arc<WholeList>> {
        let epoch = self.scope.client_context.search.epoch();
        let page = known_page(known, era);
        let page = self.tools.record_page(&page, true).await?;
        self.tools.hidden_of(&page);
        let mut pages = Pages::default();
        pages.add(page);
        self.tools.publish_catalog(&pages, epoch);
        self.tools.last_list()
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
        let limit = self.scope.shared.limits().unite_timeout;
        let template = ListTemplate::new(ListKind::Tools, message, era);
        let fetched = timeout(limit, self.fetch(&template)).await;
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
            return (self.scope.shared).last_catalog_of(&self.scope.client_context);
        }
        let tools = self.scope.shared.own_tools().map(|tools| &**tools);
        let asked = self.catalog_for(tools?, OwnTool::Search, &call.request, call.era);
        let asked = timeout(HINT_TIMEOUT, asked).await;
        asked.ok()?.ok().flatten()
    }

    /// Sends a request of the proxy and waits for its answer. The request is cancelled if the
    /// future is dropped.
    pub(super) async fn send_own_request(
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
            spawn(exchange.run);
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

/// Returns the era of a request.
pub(super) fn era_of(request: &Message) -> Era {
    if is_modern_request(request) {
        Era::Modern
    } else {
        Era::Legacy
    }
}

/// Returns known tools as the result of a request for them.
fn known_page(known: &CachedList, era: Era) -> String {
    let page = known.to_page(ListKind::Tools);
    if era == Era::Legacy {
        return without_member(&page, "cacheScope");
    }
    let page = with_member(&page, "resultType", r#""complete""#);
    with_member(&page, "ttlMs", "0")
}

/// Returns the result of an answer, or the code of its error.
fn list_result(answer: &Message) -> Result<&str, ListFetchError> {
    let part = answer.single().ok_or(ListFetchError::Batch)?;
    let code = || {
        let code = answer.error(part).and_then(|error| member(error, "code"));
        ListFetchError::Code(code.unwrap_or("none").to_owned())
    };
    answer.result(part).ok_or_else(code)
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
