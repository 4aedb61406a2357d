//! The catalog of one upstream: built from the pages that the client requests, or fetched by the
//! proxy when a search needs it earlier.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::edit::{member, with_member, without_member};
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::unescape;
use tokio::sync::oneshot;

use super::Relay;
use super::list_memory::SeenPage;
use super::pending::Pending;
use crate::proxy::aggregator::catalog::millis;
use crate::proxy::aggregator::initialize::declares;
use crate::proxy::aggregator::list_kind::ListKind;
use crate::proxy::aggregator::template::ListTemplate;
use crate::proxy::search_tool::{OwnTool, OwnTools, TakenNames, server_text};
use riglm_discovery::search::{Catalog, CatalogTool};

/// The prefix of ids of requests that the proxy makes for searches.
const OWN_IDS: &str = "riglm:search:";
/// The generation of a request that was not sent on any connection yet.
const UNSENT: u64 = u64::MAX;
/// The maximum number of pages of one list that are searched.
const MAX_PAGES: usize = 1_000;
/// The maximum number of tools of one list that are searched.
const MAX_TOOLS: usize = 5_000;
/// The total size of pages in bytes after which no further page is searched.
const MAX_BYTES: usize = 16 << 20;

/// The time to live of a list from a server that does not declare `listChanged`.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// The time to live of a list from a server that declares `listChanged`.
const PROMISED_FRESH_FOR: Duration = Duration::from_mins(10);
/// The maximum time to live that a server may set for its list.
const MAX_TTL: Duration = Duration::from_mins(10);

/// The pages of a list, up to the limits of searches.
#[derive(Debug, Default)]
struct Pages {
    pages: Vec<Arc<SeenPage>>,
    /// Whether the list has more tools than these pages.
    is_cut: bool,
}

impl Pages {
    /// Returns whether the limits allow no further page.
    fn is_full(&self) -> bool {
        let n_tools: usize = self.pages.iter().map(|page| page.names.len()).sum();
        let n_bytes: usize = self.pages.iter().map(|page| page.result.len()).sum();
        self.pages.len() >= MAX_PAGES || n_tools >= MAX_TOOLS || n_bytes >= MAX_BYTES
    }

    /// Adds a page if the limits allow it.
    fn add(&mut self, page: Arc<SeenPage>) {
        if self.is_full() {
            self.is_cut |= !page.names.is_empty();
        } else {
            self.pages.push(page);
        }
        let n_tools: usize = self.pages.iter().map(|page| page.names.len()).sum();
        self.is_cut |= n_tools > MAX_TOOLS;
    }
}

/// The complete list of an upstream at the time of fetching.
#[derive(Debug)]
pub(in crate::proxy) struct WholeList {
    pub(super) first: Arc<SeenPage>,
    /// The JSON text of the first result without its tools.
    pub(in crate::proxy) rest: Arc<str>,
    /// The time to live in milliseconds, in the notation of the server.
    pub(in crate::proxy) ttl_ms: Option<Box<str>>,
    /// The id of each page.
    pub(in crate::proxy) listings: Vec<String>,
    pub(in crate::proxy) offer: Arc<Catalog>,
    pub(super) fetched: Instant,
}

/// The state of the list of an upstream.
#[derive(Debug, Default)]
pub(in crate::proxy) struct UpstreamList {
    /// The last complete list.
    pub(super) whole: Option<Arc<WholeList>>,
    /// The pages so far of the list that the client pages through.
    pages: Pages,
    /// The cursor of the next page.
    next: Option<String>,
    /// The own tools of the proxy whose names the upstream uses.
    taken: TakenNames,
    discovered: Option<Arc<str>>,
    n_asked: u64,
}

/// Returns whether an id belongs to a request that was made for a search.
pub(super) fn is_own(id: &RequestId) -> bool {
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_IDS))
}

/// Returns the JSON text of the cursor of the next page. Some servers send an empty cursor with the
/// last page.
pub(super) fn next_cursor(result: &str) -> Option<&str> {
    let cursor = member(result, "nextCursor").filter(|cursor| cursor.starts_with('"'));
    cursor.filter(|cursor| *cursor != r#""""#)
}

impl Relay {
    /// Returns the own tools of the proxy whose names the upstream is known to use.
    pub(in crate::proxy) fn taken_names(&self) -> TakenNames {
        self.state.lock().listed.taken
    }

    /// Marks the name of an own tool as used by the upstream.
    pub(in crate::proxy) fn leave_name(&self, tool: OwnTool) {
        self.state.lock().listed.taken.add(tool);
    }

    pub(super) fn note_discovery(&self, result: &str) {
        let discovered = self.entry.catalog.initialize_result(result);
        self.state.lock().listed.discovered = Some(discovered);
    }

    /// Returns the handshake or discovery result of the upstream in this session.
    pub(in crate::proxy) fn introduction(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.hello.clone().or(state.listed.discovered.clone())
    }

    /// Processes a page that the client is shown and that it requested with `cursor`. Returns
    /// whether the own tools of the proxy belong at its end, except for the [taken](Self::taken_names)
    /// ones.
    pub(super) fn note_page(&self, page: &Arc<SeenPage>, cursor: Option<&str>) -> bool {
        let tool = self.shared.search_tool.as_deref();
        let next = next_cursor(&page.result);
        let is_last = next.is_none();
        // Client and server may escape the cursor differently, so it is compared unescaped.
        let next = next.and_then(unescape).map(Cow::into_owned);
        let epoch = self.caller.search.epoch();
        let names_of_page = tool.map_or_else(TakenNames::default, |tool| {
            tool.taken_by(|name| has_name(page, name))
        });
        let (pages, taken) = {
            let mut state = self.state.lock();
            let listed = &mut state.listed;
            if cursor.is_none() {
                listed.pages = Pages::default();
                listed.taken = TakenNames::default();
            }
            listed.taken = listed.taken.and(names_of_page);
            let follows = cursor.is_none() || listed.next.as_deref() == cursor;
            listed.next = next.filter(|_| follows);
            if follows {
                listed.pages.add(Arc::clone(page));
            }
            let is_complete = follows && is_last;
            let pages = is_complete.then(|| std::mem::take(&mut listed.pages));
            (pages, listed.taken)
        };
        if let Some(pages) = pages {
            self.publish_catalog(tool, &pages, epoch);
        }
        if let Some(tool) = tool.filter(|_| is_last) {
            tool.warn_of_clash(self.upstream(), taken);
        }
        is_last && self.has_tools()
    }

    /// Returns the catalog of the client. Fetches the list of the upstream if it is not known.
    /// Returns `None` if the upstream uses the name of this own tool. `request` is the request that
    /// needs the catalog.
    ///
    /// # Errors
    ///
    /// Returns the reason why the list is not available.
    pub(in crate::proxy) async fn catalog_for(
        self: &Arc<Self>,
        (tool, own): (&OwnTools, OwnTool),
        request: &Message,
        era: Era,
    ) -> Result<Option<Arc<Catalog>>, String> {
        let known = self.caller.search.complete_catalog();
        let offer = match known.filter(|_| self.has_tools()) {
            Some(offer) => offer,
            None => match self.fetch(Some(tool), request, era).await? {
                Some(offer) => offer,
                None => return Ok(None),
            },
        };
        let taken = tool.taken_in(&offer);
        tool.warn_of_clash(self.upstream(), taken);
        Ok((!taken.has(own)).then(|| self.shared.permitted_catalog(&self.caller, &offer)))
    }

    /// Fetches all pages of the upstream's list. Returns `None` if the upstream has no tools.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        tool: Option<&OwnTools>,
        request: &Message,
        era: Era,
    ) -> Result<Option<Arc<Catalog>>, String> {
        self.connect().await.map_err(|error| error.to_string())?;
        if !self.has_tools() {
            return Ok(None);
        }
        let epoch = self.caller.search.epoch();
        let template = ListTemplate::new(ListKind::Tools, request, era);
        let mut pages = Pages::default();
        let mut cursor: Option<String> = None;
        loop {
            let answer = self
                .send_own_request(template.request(cursor.as_deref())?)
                .await?;
            let part = answer
                .single()
                .ok_or("invalid answer to the list request: a batch")?;
            if part.kind() == MessageKind::Failure {
                let code = answer.error(part).and_then(|error| member(error, "code"));
                return match code {
                    // The code for an unknown method: the server has no tools.
                    Some("-32601") => Ok(None),
                    code => Err(format!(
                        "list request failed with error code {}",
                        code.unwrap_or("none")
                    )),
                };
            }
            let result = answer.result(part).unwrap_or_default();
            let seen = self.record_page(result, cursor.is_none()).await;
            let page = seen.ok_or("invalid tool list")?;
            self.hidden_of(&page);
            let next = next_cursor(result).map(str::to_owned);
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
        Ok(Some(self.publish_catalog(tool, &pages, epoch)))
    }

    /// Returns the complete list of the upstream. Fetches it unless the cached list is fresh. Returns
    /// `None` if it is not available.
    pub(in crate::proxy) async fn whole_list(
        self: &Arc<Self>,
        request: &Message,
        era: Era,
    ) -> Option<Arc<WholeList>> {
        if let Some(known) = self.known_list() {
            return Some(known);
        }
        // Only one of several concurrent requests fetches the list. The others use its result.
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.known_list() {
            return Some(known);
        }
        let tool = self.shared.search_tool.as_deref();
        let fetched = self.fetch(tool, request, era).await;
        let whole = self.state.lock().listed.whole.clone();
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

    /// Returns the cached complete list if it is still fresh.
    fn known_list(&self) -> Option<Arc<WholeList>> {
        // The catalog is dropped when the server reports a change.
        self.caller.search.complete_catalog()?;
        let whole = self.state.lock().listed.whole.clone()?;
        let fresh = match &whole.ttl_ms {
            Some(ttl) => {
                let ttl = millis(ttl).map_or(Duration::ZERO, Duration::from_millis);
                // A server must neither force a fetch for each request nor freeze its list.
                ttl.clamp(FRESH_FOR, MAX_TTL)
            }
            None if self.tells_of_changes() => PROMISED_FRESH_FOR,
            None => FRESH_FOR,
        };
        (whole.fetched.elapsed() < fresh).then_some(whole)
    }

    /// Returns whether the server declares `listChanged` for its tools.
    pub(in crate::proxy) fn tells_of_changes(&self) -> bool {
        let hello = self.state.lock().hello.clone();
        let promised = hello.as_deref().and_then(|hello| {
            let tools = member(member(hello, "capabilities")?, "tools")?;
            member(tools, "listChanged")
        });
        promised == Some("true")
    }

    /// Sends a request of the proxy and waits for its answer. The request is cancelled if the
    /// future is dropped.
    async fn send_own_request(self: &Arc<Self>, request: Message) -> Result<Message, String> {
        let (answered, answer) = oneshot::channel();
        let (id, message) = {
            let mut state = self.state.lock();
            state.listed.n_asked += 1;
            let id = RequestId::Text(format!("{OWN_IDS}{}", state.listed.n_asked).into());
            let message = request.with_id(&id);
            let started_at = self.shared.recorder.now();
            let pending = Pending::own(answered, message.clone(), UNSENT, started_at);
            state.pending.insert(id.clone(), pending);
            (id, message)
        };
        let mut inquiry = OwnRequest {
            relay: Arc::clone(self),
            id,
            is_over: false,
        };
        if let Ok(Some(exchange)) = self.forward(message).await {
            tokio::spawn(exchange.run);
        }
        let answer = answer.await;
        inquiry.is_over = true;
        answer.map_or_else(
            |_| {
                let failure = self.entry.failure().map(|failure| failure.to_string());
                Err(failure.unwrap_or_else(|| "no answer".into()))
            },
            |answer| answer.map_err(|error| error.to_string()),
        )
    }

    /// Publishes the catalog of these pages to this session and to the search.
    fn publish_catalog(&self, tool: Option<&OwnTools>, pages: &Pages, epoch: u64) -> Arc<Catalog> {
        let Pages { pages, is_cut } = pages;
        let hidden: Vec<Vec<u8>> = {
            let state = self.state.lock();
            let is_hidden = |name: &ToolName| u8::from(state.hidden.contains(name));
            let of_page = |page: &Arc<SeenPage>| page.names.iter().map(is_hidden).collect();
            pages.iter().map(of_page).collect()
        };
        let lists: Vec<&[u8]> = pages
            .iter()
            .zip(&hidden)
            .flat_map(|(page, hidden)| [page.listing.as_bytes(), hidden.as_slice()])
            .chain(is_cut.then_some(&b"cut"[..]))
            .collect();
        let text = server_text(self.upstream(), self.introduction().as_deref());
        let servers = vec![(self.upstream().clone(), text)];
        let offer = self.shared.offers.get(&lists, servers, |servers| {
            let all = pages.iter().zip(&hidden);
            let tools = all.flat_map(|(page, hidden)| self.tools_of(page, hidden));
            let offer = Catalog::new(tools.take(MAX_TOOLS).collect(), servers);
            if *is_cut {
                offer.mark_truncated()
            } else {
                offer
            }
        });
        if let Some(tool) = tool.filter(|_| *is_cut) {
            tool.warn_of_limit(self.upstream(), offer.tools().len());
        }
        self.caller.search.note_catalog(&offer, epoch);
        if let Some(tool) = tool
            && self.caller.search.is_news(&offer)
        {
            tool.service.index_catalog(&offer);
        }
        self.note_whole(pages, &offer);
        offer
    }

    /// Stores the pages of a list as the complete list.
    fn note_whole(&self, pages: &[Arc<SeenPage>], offer: &Arc<Catalog>) {
        let Some(first) = pages.first() else {
            return;
        };
        let known = self.state.lock().listed.whole.clone();
        let known = known.filter(|known| Arc::ptr_eq(&known.first, first));
        // This text may have a megabyte, so an equal one is shared.
        let rest = known.as_ref().map_or_else(
            || {
                let rest = with_member(&first.result, "tools", "[]");
                without_member(&rest, "nextCursor").into()
            },
            |known| Arc::clone(&known.rest),
        );
        let whole = WholeList {
            first: Arc::clone(first),
            ttl_ms: member(&rest, "ttlMs").map(Into::into),
            rest,
            listings: pages.iter().map(|page| page.listing.clone()).collect(),
            offer: Arc::clone(offer),
            fetched: Instant::now(),
        };
        self.state.lock().listed.whole = Some(Arc::new(whole));
    }

    fn tools_of<'a>(
        &'a self,
        page: &'a SeenPage,
        hidden: &'a [u8],
    ) -> impl Iterator<Item = CatalogTool> {
        let tools = page.page.tools().iter().zip(hidden);
        tools.map(|(tool, is_hidden)| CatalogTool {
            name: tool.name.as_str().to_owned(),
            tool: ToolRef {
                upstream: self.upstream().clone(),
                tool: tool.name.clone(),
            },
            definition: page.result[tool.at.clone()].into(),
            is_hidden: *is_hidden == 1,
        })
    }

    /// Returns whether the upstream may have tools: it declares them, or its capabilities are
    /// unknown.
    pub(in crate::proxy) fn has_tools(&self) -> bool {
        let introduction = self.introduction();
        introduction.is_none_or(|said| declares(&said, ListKind::Tools.change().capability()))
    }
}

fn has_name(page: &SeenPage, name: &str) -> bool {
    page.names.iter().any(|known| known.as_str() == name)
}

/// A request that is in progress for a search.
struct OwnRequest {
    relay: Arc<Relay>,
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
            let (relay, id) = (Arc::clone(&self.relay), self.id.clone());
            runtime.spawn(async move { relay.cancel_upstream(&id, "no longer wanted").await });
        }
    }
}
