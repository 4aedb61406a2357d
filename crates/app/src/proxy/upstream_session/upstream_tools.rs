//! The tools of one upstream: its catalog, built from the pages that the client requests or that the
//! proxy fetches, and the own tools of the proxy whose names it uses.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::id::ToolName;
use riglm_domain::mcp::edit::{member, with_member, without_member};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::prediction::SelectionContext;

use super::scope::UpstreamScope;
use crate::proxy::aggregator::initialize::declares;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::list_kind::ListKind;
use crate::proxy::own_tools::{OwnTool, TakenNames, server_text};
use crate::proxy::page_cache::SeenPage;
use crate::proxy::upstream_cache::millis;
use riglm_discovery::search::{Catalog, CatalogTool};

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

/// The maximum number of hidden tool names that a session remembers.
const MAX_HIDDEN: usize = 10_000;

/// The pages of a list, up to the limits of searches.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Arc<SeenPage>>,
    /// Whether the list has more tools than these pages.
    pub(super) is_cut: bool,
}

impl Pages {
    /// Returns whether the limits allow no further page.
    pub(super) fn is_full(&self) -> bool {
        let n_tools: usize = self.pages.iter().map(|page| page.names.len()).sum();
        let n_bytes: usize = self.pages.iter().map(|page| page.result.len()).sum();
        self.pages.len() >= MAX_PAGES || n_tools >= MAX_TOOLS || n_bytes >= MAX_BYTES
    }

    /// Adds a page if the limits allow it.
    pub(super) fn add(&mut self, page: Arc<SeenPage>) {
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
    pub(in crate::proxy) catalog: Arc<Catalog>,
    pub(super) fetched: Instant,
}

#[derive(Debug, Default)]
struct ToolsState {
    /// The result of the handshake.
    initialized: Option<Arc<str>>,
    /// The result of discovery (revision 2026-07-28).
    discovered: Option<Arc<str>>,
    /// The tools that the last list left out.
    hidden: HashSet<ToolName>,
    /// The last complete list.
    whole: Option<Arc<WholeList>>,
    /// The digest of the list that was last shown without asking the upstream.
    known: Option<[u8; 32]>,
    /// The pages so far of the list that the client pages through.
    pages: Pages,
    /// The cursor of the next page.
    next: Option<String>,
    /// The own tools of the proxy whose names the upstream uses.
    taken: TakenNames,
}

/// The tools of one upstream as one client sees them, and what the upstream said about itself.
#[derive(Debug)]
pub(in crate::proxy) struct UpstreamTools {
    pub(super) scope: Arc<UpstreamScope>,
    state: Mutex<ToolsState>,
}

impl UpstreamTools {
    pub(super) fn new(scope: &Arc<UpstreamScope>) -> Self {
        Self {
            scope: Arc::clone(scope),
            state: Mutex::default(),
        }
    }

    /// Stores the result of the handshake.
    pub(super) fn note_initialized(&self, result: &str) {
        let entry = &self.scope.entry;
        let initialize = self.scope.client_context.handshake().initialize;
        let params = (initialize.as_ref()).and_then(|it| it.params(it.single()?));
        let (_, asked) = ClientDescription::of_initialize(params);
        let (era, asked) = (entry.era_of(Era::Legacy), asked.unwrap_or_default());
        let hello = entry.catalog.note_greeting(era, Some(&asked), result);
        self.state.lock().initialized = Some(hello);
        // The upstream may be another server by now, with other tools.
        self.scope.client_context.search.forget_catalog();
    }

    /// Stores a result of the handshake that the client is told before the upstream has answered.
    pub(super) fn note_told(&self, result: &str) {
        self.state
            .lock()
            .initialized
            .get_or_insert_with(|| result.into());
    }

    /// Returns the result of the handshake.
    pub(in crate::proxy) fn initialize_result(&self) -> Option<Arc<str>> {
        self.state.lock().initialized.clone()
    }

    /// Returns whether the last list left a tool out.
    pub(super) fn is_hidden(&self, tool: &ToolName) -> bool {
        self.scope.shared.selection.is_active() && self.state.lock().hidden.contains(tool)
    }

    /// Returns whether a cursor is that of the page after the last one that the client got.
    pub(in crate::proxy) fn expects_cursor(&self, cursor: &str) -> bool {
        self.state.lock().next.as_deref() == Some(cursor)
    }

    /// Stores the digest of a list that is shown without asking the upstream. Returns whether it is
    /// another one than the last.
    pub(super) fn is_new_known(&self, digest: [u8; 32]) -> bool {
        self.state.lock().known.replace(digest) != Some(digest)
    }

    /// Returns the last complete list, which may be outdated.
    pub(super) fn last_list(&self) -> Option<Arc<WholeList>> {
        self.state.lock().whole.clone()
    }

    /// Returns the own tools of the proxy whose names the upstream is known to use.
    pub(in crate::proxy) fn taken_names(&self) -> TakenNames {
        self.state.lock().taken
    }

    /// Marks the name of an own tool as used by the upstream.
    pub(in crate::proxy) fn mark_name_taken(&self, tool: OwnTool) {
        self.state.lock().taken.add(tool);
    }

    pub(super) fn note_discovery(&self, result: &str) {
        let entry = &self.scope.entry;
        let discovered = (entry.catalog).note_greeting(entry.era_of(Era::Modern), None, result);
        self.state.lock().discovered = Some(discovered);
    }

    /// Returns the handshake or discovery result of the upstream in this session. If the session has
    /// no connection whose start would cost a process, it is the last known one.
    pub(in crate::proxy) fn handshake_result(&self) -> Option<Arc<str>> {
        let own = {
            let state = self.state.lock();
            state.initialized.clone().or(state.discovered.clone())
        };
        let entry = &self.scope.entry;
        let client = self.scope.client_context.era();
        own.or_else(|| entry.greeting(client).filter(|_| entry.starts_processes()))
    }

    /// Processes a page that the client is shown and that it requested with `cursor`. Returns
    /// whether the own tools of the proxy belong at its end, except for the [taken](Self::taken_names)
    /// ones.
    pub(super) fn note_page(&self, page: &Arc<SeenPage>, cursor: Option<&str>) -> bool {
        let tool = self.scope.shared.own_tools().map(|tools| &**tools);
        let next = page.next_cursor.as_deref();
        let is_last = next.is_none();
        // Client and server may escape the cursor differently, so it is compared unescaped.
        let next = next.and_then(unescape).map(Cow::into_owned);
        let epoch = self.scope.client_context.search.epoch();
        let names_of_page = tool.map_or_else(TakenNames::default, |tool| {
            tool.taken_by(|name| has_name(page, name))
        });
        let (pages, taken) = {
            let mut state = self.state.lock();
            let listed = &mut *state;
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
            self.publish_catalog(&pages, epoch);
        }
        if let Some(tool) = tool.filter(|_| is_last) {
            tool.warn_of_clash(self.scope.upstream(), taken);
        }
        is_last && self.has_tools()
    }

    /// Returns the cached complete list if it is still fresh.
    pub(in crate::proxy) fn known_list(&self) -> Option<Arc<WholeList>> {
        // The catalog is dropped when the server reports a change.
        self.scope.client_context.search.complete_catalog()?;
        let whole = self.state.lock().whole.clone()?;
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
        let hello = self.initialize_result();
        let promised = hello.as_deref().and_then(|hello| {
            let tools = member(member(hello, "capabilities")?, "tools")?;
            member(tools, "listChanged")
        });
        promised == Some("true")
    }

    /// Returns the positions of the hidden tools of a page, and stores their names.
    pub(super) fn hidden_of(&self, seen: &SeenPage) -> Vec<usize> {
        let context = SelectionContext {
            principal: &self.scope.client_context.principal,
            upstream: self.scope.upstream(),
        };
        let hidden = (self.scope.shared.selection).hidden_positions(&context, &seen.names);
        let mut state = self.state.lock();
        if hidden.is_empty() && state.hidden.is_empty() {
            return hidden;
        }
        // A page may have a million tools, so lookups use a set.
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

    /// Publishes the catalog of these pages to this session and to the search.
    pub(super) fn publish_catalog(&self, pages: &Pages, epoch: u64) -> Arc<Catalog> {
        let tool = self.scope.shared.own_tools();
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
        let text = server_text(self.scope.upstream(), self.handshake_result().as_deref());
        let servers = vec![(self.scope.upstream().clone(), text)];
        let catalog = self
            .scope
            .shared
            .catalog_cache
            .get(&lists, servers, |servers| {
                let all = pages.iter().zip(&hidden);
                let tools = all.flat_map(|(page, hidden)| self.tools_of(page, hidden));
                let catalog = Catalog::new(tools.take(MAX_TOOLS).collect(), servers);
                if *is_cut {
                    catalog.mark_truncated()
                } else {
                    catalog
                }
            });
        if let Some(tool) = tool.filter(|_| *is_cut) {
            tool.warn_of_limit(self.scope.upstream(), catalog.tools().len());
        }
        (self.scope.client_context.search).note_catalog(&catalog, epoch);
        if let Some(tool) = tool
            && self.scope.client_context.search.is_news(&catalog)
        {
            tool.service.index_catalog(&catalog);
        }
        self.note_whole(pages, &catalog);
        catalog
    }

    /// Stores the pages of a list as the complete list.
    fn note_whole(&self, pages: &[Arc<SeenPage>], catalog: &Arc<Catalog>) {
        let Some(first) = pages.first() else {
            return;
        };
        let known = self.state.lock().whole.clone();
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
            catalog: Arc::clone(catalog),
            fetched: Instant::now(),
        };
        self.state.lock().whole = Some(Arc::new(whole));
    }

    fn tools_of<'a>(
        &'a self,
        page: &'a SeenPage,
        hidden: &'a [u8],
    ) -> impl Iterator<Item = CatalogTool> {
        let tools = page.page.tools().iter().zip(hidden);
        tools.map(|(tool, is_hidden)| CatalogTool {
            name: tool.name.as_str().to_owned(),
            tool: self.scope.tool_ref(&tool.name),
            definition: page.result[tool.at.clone()].into(),
            is_hidden: *is_hidden == 1,
        })
    }

    /// Returns whether the upstream may have tools: it declares them, or its capabilities are
    /// unknown.
    pub(in crate::proxy) fn has_tools(&self) -> bool {
        let handshake_result = self.handshake_result();
        handshake_result.is_none_or(|said| declares(&said, ListKind::Tools.change().capability()))
    }
}

fn has_name(page: &SeenPage, name: &str) -> bool {
    page.names.iter().any(|known| known.as_str() == name)
}
