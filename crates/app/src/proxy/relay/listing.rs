//! Lists of tools that the proxy answers itself, in front of one upstream: what is learned decides
//! over the whole of a list, which the upstream is asked for as seldom as can be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::edit::{member, with_member};
use riglm_domain::id::WorkSessionId;
use riglm_domain::invocation::{CallSession, Outcome};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::meta::SUBSCRIPTION_ID;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::scan::unescaped;
use riglm_domain::tool::ToolRef;
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;
use riglm_ports::tracer::Operation;
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::offered::WholeList;
use super::pending::{Pending, Purpose};
use super::search::Searching;
use crate::filtering::{ListedCall, Lists};
use crate::proxy::listing::{Listing, Page};
use crate::proxy::united::catalog::millis;

/// How long a list counts as known of a server that does not promise to tell of changes.
const FRESH: Duration = Duration::from_secs(5);
/// The same of one that does.
const PROMISED: Duration = Duration::from_mins(10);
/// The longest time for which the list of a server is taken for the one that it was, as it says.
const MAX_TTL: Duration = Duration::from_mins(10);
/// How long several changes of a list are told as one.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// A request for a list.
#[derive(Debug)]
pub(super) struct ListRequest {
    /// Its id.
    pub(super) id: RequestId,
    /// It as a message of its own.
    pub(super) message: Message,
    /// It is one of a modern client.
    pub(super) is_modern: bool,
    /// The work session that it belongs to.
    pub(super) work_session: Option<WorkSessionId>,
    /// Cancelled when nobody waits for the answer any more.
    pub(super) cancel: CancellationToken,
}

impl Relay {
    /// Returns what chooses lists, where the proxy answers them itself. In front of several
    /// upstreams their session does.
    pub(super) fn lists(&self) -> Option<&Arc<Lists>> {
        self.shared.filter.lists().filter(|_| !self.is_united())
    }

    /// Returns the exchange that answers a request for a list which was noted as in flight.
    pub(super) fn answer_list(
        self: &Arc<Self>,
        lists: &Arc<Lists>,
        request: ListRequest,
    ) -> Exchange {
        let lists = Arc::clone(lists);
        let searching = Searching {
            relay: Arc::clone(self),
            id: request.id.clone(),
            cancel: request.cancel.clone(),
        };
        let run = async move {
            let relay = &searching.relay;
            let was_known = relay.known_list().is_some();
            let listed = tokio::select! {
                biased;
                () = request.cancel.cancelled() => return,
                listed = relay.listed(&lists, &request) => listed,
            };
            let Some(mut ending) = searching.ending() else {
                return;
            };
            if !was_known {
                ending.has_asked();
            }
            let pending = ending.take();
            match (listed, pending) {
                (Ok(result), _) => {
                    ending.came_to(Outcome::Ok);
                    relay.deliver_result(&request.id, &result).await;
                }
                (Err(NotListed::Refused(error)), _) => {
                    ending.came_to(Outcome::Error);
                    relay.deliver_error(&request.id, &error).await;
                }
                (Err(NotListed::Unknown), Some(pending)) => {
                    ending.goes_on();
                    drop(ending);
                    relay.pass_list_on(&request, pending).await;
                }
                (Err(NotListed::Unknown), None) => {}
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }

    /// Returns the result that a request for a list is answered with.
    async fn listed(
        self: &Arc<Self>,
        lists: &Arc<Lists>,
        request: &ListRequest,
    ) -> Result<String, NotListed> {
        let params = request.message.single();
        let params = params.and_then(|part| request.message.params(part));
        let cursor = params.and_then(|params| member(params, "cursor"));
        let cursor = match cursor.filter(|cursor| *cursor != "null") {
            None => None,
            Some(text) => Some(unescaped(text).ok_or_else(|| {
                let text = "the cursor is none of this list; list again from its start";
                NotListed::Refused(RpcError::new(RpcErrorCode::InvalidParams, text))
            })?),
        };
        let whole = self.whole_list(&request.message, request.is_modern).await?;
        self.caller.note_listing(lists);
        let listing = Listing {
            caller: &self.caller,
            shared: &self.shared,
            is_modern: request.is_modern,
        };
        let row = self.row().await;
        let session = CallSession::of(request.work_session, row);
        let predicting = self
            .shared
            .span(&Operation::Prediction, request.message.trace());
        self.shared.note_listed(&self.caller);
        let offer = self.shared.permitted(&self.caller, &whole.offer);
        let shown = listing.choose(lists, (row, session), &offer).await;
        drop(predicting);
        if self.caller.is_first_of(&whole.offer) {
            for page in &whole.listings {
                self.shared.recorder.tools_listed(row, page).await;
            }
        }
        let page = Page::of(
            &shown,
            cursor.as_deref(),
            self.shared.limits().list_page_entries,
        );
        let page = page
            .map_err(|text| NotListed::Refused(RpcError::new(RpcErrorCode::InvalidParams, text)))?;
        let taken = self.shared.search_tool.as_ref().map(|tools| {
            let taken = tools.taken_in(&whole.offer);
            tools.warn_of_clash(self.upstream(), taken);
            taken
        });
        let tools = listing.tools(&shown, &page, taken.unwrap_or_default());
        let mut result = (*whole.rest).to_owned();
        if let Some(next) = page.next_cursor() {
            result = with_member(&result, "nextCursor", &next);
        }
        if member(&result, "cacheScope").is_some() {
            result = with_member(&result, "cacheScope", r#""private""#);
        }
        if let Some(ttl_ms) = whole.ttl_ms.as_deref().and_then(millis) {
            let ttl_ms = shown.ttl_ms(ttl_ms, self.shared.recorder.now());
            result = with_member(&result, "ttlMs", &ttl_ms.to_string());
        }
        let result = with_member(&result, "tools", &tools);
        let shown_to = (session, request.message.hints());
        self.shared.note_shown(&self.caller, shown_to, &result);
        Ok(result)
    }

    /// Returns the whole list of the upstream, which is asked for it unless it is known well enough.
    async fn whole_list(
        self: &Arc<Self>,
        request: &Message,
        is_modern: bool,
    ) -> Result<Arc<WholeList>, NotListed> {
        if let Some(known) = self.known_list() {
            return Ok(known);
        }
        // Of several requests at once, one asks for all.
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.known_list() {
            return Ok(known);
        }
        let tool = self.shared.search_tool.as_deref();
        let fetched = self.fetch(tool, request, is_modern).await;
        let whole = self.state().listed.whole.clone();
        match (fetched, whole) {
            (Ok(Some(_)), Some(whole)) => Ok(whole),
            (Ok(_), _) => Err(NotListed::Unknown),
            (Err(reason), Some(whole)) => {
                tracing::debug!("the list that was known last is shown: {reason}");
                Ok(whole)
            }
            (Err(reason), None) => {
                tracing::debug!("a list of tools is passed on as it is: {reason}");
                Err(NotListed::Unknown)
            }
        }
    }

    /// Returns the whole list, if what is known of it need not be asked for again.
    fn known_list(&self) -> Option<Arc<WholeList>> {
        // Forgotten when the server says that it changed.
        self.caller.search.whole_offer()?;
        let whole = self.state().listed.whole.clone()?;
        let fresh = match &whole.ttl_ms {
            Some(ttl) => {
                let ttl = millis(ttl).map_or(Duration::ZERO, Duration::from_millis);
                ttl.clamp(FRESH, MAX_TTL)
            }
            None if self.tells_of_changes() => PROMISED,
            None => FRESH,
        };
        (whole.fetched.elapsed() < fresh).then_some(whole)
    }

    /// Returns whether the server promised to tell of changes of its list.
    pub(in crate::proxy) fn tells_of_changes(&self) -> bool {
        let hello = self.state().hello.clone();
        let promised = hello.as_deref().and_then(|hello| {
            let tools = member(member(hello, "capabilities")?, "tools")?;
            member(tools, "listChanged")
        });
        promised == Some("true")
    }

    /// Passes a request for a list on after all; what its answer shows is not chosen.
    async fn pass_list_on(self: &Arc<Self>, request: &ListRequest, pending: Pending) {
        let pending = Pending {
            purpose: Purpose::ListTools,
            ..pending
        };
        if let Err(error) = self.reserve("tools/list", &request.id, pending) {
            return self.deliver_error(&request.id, &error).await;
        }
        match self.forward(request.message.clone()).await {
            Ok(Some(exchange)) => exchange.run.await,
            Ok(None) => {}
            Err(error) => tracing::debug!("a list was not passed on: {}", error.message),
        }
    }

    /// Takes note of a call, for the list of its session; returns the list that the caller sees, and
    /// whether it leaves the tool out.
    pub(super) fn note_for_list(
        &self,
        tool: &ToolRef,
        session: CallSession,
        is_modern: bool,
    ) -> Option<(ListedCall, bool)> {
        let lists = self.shared.filter.lists()?;
        let client = self.caller.client_name();
        let ask = self
            .caller
            .list_ask(&client, session, is_modern, self.shared.recorder.now());
        let listed = lists.called(&ask, tool)?;
        let is_hidden = listed.shown.hides(tool);
        Some((listed, is_hidden))
    }

    /// Looks whether the client's list is another one after a call or a search, and tells it, in the
    /// background.
    pub(in crate::proxy) fn review_list(self: &Arc<Self>, session: CallSession, is_modern: bool) {
        let Some(lists) = self.shared.filter.lists() else {
            return;
        };
        if is_modern || !self.caller.is_initialized() {
            return;
        }
        let client = self.caller.client_name();
        let now = self.shared.recorder.now();
        let ask = self.caller.list_ask(&client, session, is_modern, now);
        if !lists.may_change(&ask) || self.caller.begin_review(session) {
            return;
        }
        let (relay, lists) = (Arc::clone(self), Arc::clone(lists));
        tokio::spawn(async move {
            tokio::time::sleep(DEBOUNCE).await;
            relay.caller.end_review(session);
            let client = relay.caller.client_name();
            let now = relay.shared.recorder.now();
            let mut ask = relay.caller.list_ask(&client, session, is_modern, now);
            let stated = relay.shared.stated(relay.row().await, session, now);
            ask.stated = stated.as_ref();
            let search = &relay.caller.search;
            if lists.has_changed(&ask, |tool| search.has_found(session, tool)) && !relay.is_closed()
            {
                relay.tell_of_change().await;
            }
        });
    }

    /// Tells the client that the proxy shows another list now: over its one stream, or over each of
    /// those that it opened for such changes.
    pub(in crate::proxy) async fn tell_of_other_list(&self) {
        if self.caller.is_initialized() {
            return self.tell_of_change().await;
        }
        let streams = self.state().pending.tool_streams();
        if !streams.is_empty() {
            self.shared
                .observe_from(&Event::ListChangeTold, &self.caller.origin());
        }
        for id in streams {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#
            );
            if let Ok(message) = Message::from_text(text) {
                self.client.deliver(message, Route::Related(id)).await;
            }
        }
    }

    /// Tells the client that its list of tools is another one.
    async fn tell_of_change(&self) {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        if let Ok(message) = Message::from_text(text.into()) {
            self.caller.note_told(Instant::now());
            self.shared
                .observe_from(&Event::ListChangeTold, &self.caller.origin());
            self.client.deliver(message, Route::Standalone).await;
        }
    }
}

/// Why a list cannot be answered here.
#[derive(Debug)]
enum NotListed {
    /// The upstream's list cannot be had: it answers itself.
    Unknown,
    /// The request is wrong.
    Refused(RpcError),
}

/// Returns the answer to a handshake, with the promise to tell of changes of the list of tools
/// where the server has tools.
pub(super) fn promising(result: &str) -> Option<String> {
    let capabilities = member(result, "capabilities").filter(|text| text.starts_with('{'))?;
    let tools = member(capabilities, "tools").filter(|text| text.starts_with('{'))?;
    if member(tools, "listChanged") == Some("true") {
        return None;
    }
    let tools = with_member(tools, "listChanged", "true");
    let capabilities = with_member(capabilities, "tools", &tools);
    Some(with_member(result, "capabilities", &capabilities))
}

/// Returns definitions as one JSON array, those of the proxy itself in front or behind.
pub(in crate::proxy) fn array(before: &[&str], tools: &str, behind: &[&str]) -> String {
    let parts = before
        .iter()
        .copied()
        .chain([tools])
        .chain(behind.iter().copied());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let n_bytes: usize = parts.iter().map(|part| part.len() + 1).sum();
    let mut all = String::with_capacity(n_bytes + 2);
    all.push('[');
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            all.push(',');
        }
        all.push_str(part);
    }
    all.push(']');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_joined_in_their_order() {
        assert_eq!(array(&[], "", &[]), "[]");
        assert_eq!(array(&["1"], "", &[]), "[1]");
        assert_eq!(array(&["1"], "2,3", &["4", "5"]), "[1,2,3,4,5]");
        assert_eq!(array(&[], "2", &["4"]), "[2,4]");
    }

    #[test]
    fn a_handshake_promises_changes_of_tools_where_there_are_tools() {
        let promised = promising(r#"{"capabilities":{"tools":{},"x":1.0},"y":2}"#);
        let expected = r#"{"capabilities":{"tools":{"listChanged":true},"x":1.0},"y":2}"#;
        assert_eq!(promised.as_deref(), Some(expected));
        assert_eq!(promising(r#"{"capabilities":{}}"#), None);
        assert_eq!(
            promising(r#"{"capabilities":{"tools":{"listChanged":true}}}"#),
            None
        );
        assert_eq!(promising("[]"), None);
    }
}
