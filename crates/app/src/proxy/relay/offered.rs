//! What can be searched in front of one upstream: the pages of its list, as the client turns them,
//! or asked for by the proxy itself when somebody searches before that.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use riglm_domain::edit::{member, with_member, without_member};
use riglm_domain::id::ToolName;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::scan::unescaped;
use riglm_domain::tool::ToolRef;
use tokio::sync::oneshot;

use super::Relay;
use super::list_memory::SeenPage;
use super::pending::Pending;
use crate::proxy::search_tool::{OwnTool, SearchTool, Taken, server_text};
use crate::proxy::united::hello::declares;
use crate::proxy::united::list_kind::ListKind;
use crate::proxy::united::template::Template;
use crate::search::{Offer, OfferedTool};

/// What the ids begin with of requests that the proxy makes for searches.
const OWN_IDS: &str = "riglm:search:";
/// The generation of a request that was not handed to any connection yet.
const UNSENT: u64 = u64::MAX;
/// The most pages of one list that are searched.
const MAX_PAGES: usize = 1_000;
/// The most tools of one list that are searched.
const MAX_TOOLS: usize = 5_000;
/// How many bytes its pages may have before no further one is searched.
const MAX_BYTES: usize = 16 << 20;

/// The pages of a list, as many as are searched.
#[derive(Debug, Default)]
struct Pages {
    pages: Vec<Arc<SeenPage>>,
    /// There are more tools than these pages have.
    is_cut: bool,
}

impl Pages {
    /// Returns whether no further page is searched.
    fn is_full(&self) -> bool {
        let n_tools: usize = self.pages.iter().map(|page| page.names.len()).sum();
        let n_bytes: usize = self.pages.iter().map(|page| page.result.len()).sum();
        self.pages.len() >= MAX_PAGES || n_tools >= MAX_TOOLS || n_bytes >= MAX_BYTES
    }

    /// Adds a page, unless no further one is searched.
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

/// The whole list of an upstream, as it was when it was asked for.
#[derive(Debug)]
pub(super) struct WholeList {
    /// The first of its pages.
    pub(super) first: Arc<SeenPage>,
    /// The JSON text of the result with all that the server said beside its tools.
    pub(super) rest: Arc<str>,
    /// For how long the server says that it stays as it is, in milliseconds as it wrote it.
    pub(super) ttl_ms: Option<Box<str>>,
    /// What identifies each page.
    pub(super) listings: Vec<String>,
    pub(super) offer: Arc<Offer>,
    pub(super) fetched: Instant,
}

/// What is known of the list of an upstream.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Listed {
    /// The list that was known last as a whole.
    pub(super) whole: Option<Arc<WholeList>>,
    /// The pages so far of the list that the client is paging through.
    pages: Pages,
    /// The cursor of the page that follows them.
    next: Option<String>,
    /// The tools of the proxy itself of whose names the upstream has tools.
    taken: Taken,
    /// The result by which the upstream answered `server/discover`.
    discovered: Option<Arc<str>>,
    n_asked: u64,
}

/// Returns whether an id is that of a request that was made for a search.
pub(super) fn is_own(id: &RequestId) -> bool {
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_IDS))
}

/// Returns the JSON text of the cursor of the page behind this one. Some servers give an empty one
/// with the last page.
pub(super) fn next_cursor(result: &str) -> Option<&str> {
    let cursor = member(result, "nextCursor").filter(|cursor| cursor.starts_with('"'));
    cursor.filter(|cursor| *cursor != r#""""#)
}

impl Relay {
    /// Returns the tools of the proxy itself whose names are known to be the upstream's own.
    pub(super) fn taken(&self) -> Taken {
        self.state().listed.taken
    }

    /// Leaves the name of a tool of the proxy itself to the upstream.
    pub(super) fn leave_name(&self, tool: OwnTool) {
        self.state().listed.taken.add(tool);
    }

    /// Notes the result by which the upstream answered `server/discover`.
    pub(super) fn discovered(&self, result: &str) {
        let discovered = self.entry.catalog.hello(result);
        self.state().listed.discovered = Some(discovered);
    }

    /// Returns what the upstream said of itself in this session.
    pub(in crate::proxy) fn introduction(&self) -> Option<Arc<str>> {
        let state = self.state();
        state.hello.clone().or(state.listed.discovered.clone())
    }

    /// Takes note of a page that the client is shown, which it asked for with `cursor`. Returns
    /// whether the tools of the proxy itself belong at its end, but for those that are
    /// [taken](Self::taken).
    pub(super) fn turned(&self, page: &Arc<SeenPage>, cursor: Option<&str>) -> bool {
        let tool = self.shared.search_tool.as_deref();
        let next = next_cursor(&page.result);
        let is_last = next.is_none();
        // The client may write it in another way than the server did.
        let next = next.and_then(unescaped).map(Cow::into_owned);
        let epoch = self.caller.search.epoch();
        let names_of_page = tool.map_or_else(Taken::default, |tool| {
            tool.taken_by(|name| has_name(page, name))
        });
        let (pages, taken) = {
            let mut state = self.state();
            let listed = &mut state.listed;
            if cursor.is_none() {
                listed.pages = Pages::default();
                listed.taken = Taken::default();
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
            self.know(tool, &pages, epoch);
        }
        if let Some(tool) = tool.filter(|_| is_last) {
            tool.warn_of_clash(self.upstream(), taken);
        }
        is_last && self.has_tools()
    }

    /// Returns what the client could call; `None` where the name of this tool of the proxy itself is
    /// the upstream's own. Asks the upstream for its list where it is not known. `request` is the one
    /// that it is for.
    ///
    /// # Errors
    ///
    /// Returns why the list is not to be had.
    pub(super) async fn offer(
        self: &Arc<Self>,
        (tool, own): (&SearchTool, OwnTool),
        request: &Message,
        is_modern: bool,
    ) -> Result<Option<Arc<Offer>>, String> {
        let known = self.caller.search.whole_offer();
        let offer = match known.filter(|_| self.has_tools()) {
            Some(offer) => offer,
            None => match self.fetch(Some(tool), request, is_modern).await? {
                Some(offer) => offer,
                None => return Ok(None),
            },
        };
        let taken = tool.taken_in(&offer);
        tool.warn_of_clash(self.upstream(), taken);
        Ok((!taken.has(own)).then(|| self.shared.permitted(&self.caller, &offer)))
    }

    /// Asks the upstream for all pages of its list; `None` of one without tools.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        tool: Option<&SearchTool>,
        request: &Message,
        is_modern: bool,
    ) -> Result<Option<Arc<Offer>>, String> {
        self.connect().await.map_err(|error| error.to_string())?;
        if !self.has_tools() {
            return Ok(None);
        }
        let epoch = self.caller.search.epoch();
        let template = Template::new(ListKind::Tools, request, is_modern);
        let mut pages = Pages::default();
        let mut cursor: Option<String> = None;
        loop {
            let answer = self.inquire(template.request(cursor.as_deref())?).await?;
            let part = answer.single().ok_or("it answered with a batch")?;
            if part.kind() == Kind::Failure {
                let code = answer.error(part).and_then(|error| member(error, "code"));
                return match code {
                    Some("-32601") => Ok(None),
                    code => Err(format!(
                        "it refused to list with error code {}",
                        code.unwrap_or("none")
                    )),
                };
            }
            let result = answer.result(part).unwrap_or_default();
            let seen = self.seen(result, cursor.is_none()).await;
            let page = seen.ok_or("its list of tools cannot be read")?;
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
        Ok(Some(self.know(tool, &pages, epoch)))
    }

    /// Makes a request of the proxy's own and waits for its answer. Dropped, it takes it back.
    async fn inquire(self: &Arc<Self>, request: Message) -> Result<Message, String> {
        let (answered, answer) = oneshot::channel();
        let (id, message) = {
            let mut state = self.state();
            state.listed.n_asked += 1;
            let id = RequestId::Text(format!("{OWN_IDS}{}", state.listed.n_asked).into());
            let message = request.with_id(&id);
            let started_at = self.shared.recorder.now();
            let pending = Pending::own(answered, message.clone(), UNSENT, started_at);
            state.pending.insert(id.clone(), pending);
            (id, message)
        };
        let mut inquiry = Inquiry {
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
                Err(failure.unwrap_or_else(|| "did not answer".into()))
            },
            |answer| answer.map_err(|error| error.to_string()),
        )
    }

    /// Makes what these pages offer known, for this session and to the search.
    fn know(&self, tool: Option<&SearchTool>, pages: &Pages, epoch: u64) -> Arc<Offer> {
        let Pages { pages, is_cut } = pages;
        let hidden: Vec<Vec<u8>> = {
            let state = self.state();
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
            let offer = Offer::new(tools.take(MAX_TOOLS).collect(), servers);
            if *is_cut { offer.partial() } else { offer }
        });
        if let Some(tool) = tool.filter(|_| *is_cut) {
            tool.warn_of_limit(self.upstream(), offer.tools().len());
        }
        self.caller.search.note_offer(&offer, epoch);
        if let Some(tool) = tool
            && self.caller.search.is_news(&offer)
        {
            tool.service.learn_offer(&offer);
        }
        self.note_whole(pages, &offer);
        offer
    }

    /// Notes the pages of a list as the whole of it.
    fn note_whole(&self, pages: &[Arc<SeenPage>], offer: &Arc<Offer>) {
        let Some(first) = pages.first() else {
            return;
        };
        let known = self.state().listed.whole.clone();
        let known = known.filter(|known| Arc::ptr_eq(&known.first, first));
        // Such a text may have a megabyte.
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
        self.state().listed.whole = Some(Arc::new(whole));
    }

    fn tools_of<'a>(
        &'a self,
        page: &'a SeenPage,
        hidden: &'a [u8],
    ) -> impl Iterator<Item = OfferedTool> {
        let tools = page.page.tools().iter().zip(hidden);
        tools.map(|(tool, is_hidden)| OfferedTool {
            name: tool.name.as_str().to_owned(),
            tool: ToolRef {
                upstream: self.upstream().clone(),
                tool: tool.name.clone(),
            },
            definition: page.result[tool.at.clone()].into(),
            is_hidden: *is_hidden == 1,
        })
    }

    /// Returns whether the upstream may have tools: it says so, or is not known to say anything.
    pub(super) fn has_tools(&self) -> bool {
        let introduction = self.introduction();
        introduction.is_none_or(|said| declares(&said, ListKind::Tools.change().capability()))
    }
}

fn has_name(page: &SeenPage, name: &str) -> bool {
    page.names.iter().any(|known| known.as_str() == name)
}

/// A request that is being made for a search.
struct Inquiry {
    relay: Arc<Relay>,
    id: RequestId,
    is_over: bool,
}

impl Drop for Inquiry {
    /// The request stays in the table, so that a late answer is known for what it is.
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
