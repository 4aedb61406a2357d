//! Tool lists that the proxy composes for one upstream. The selection needs the complete list, so
//! the proxy fetches it from the upstream, and caches it to fetch as rarely as possible.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::WorkSessionId;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::usage::invocation::{Outcome, SessionKey};
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;
use riglm_ports::tracer::SpanOperation;
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::catalog::WholeList;
use super::pending::{Pending, RequestPurpose};
use super::search::PendingAnswer;
use crate::filtering::{ListedCall, Lists};
use crate::proxy::aggregator::catalog::millis;
use crate::proxy::listing::{Listing, Page};

/// The time to live of a list from a server that does not declare `listChanged`.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// The time to live of a list from a server that declares `listChanged`.
const PROMISED_FRESH_FOR: Duration = Duration::from_mins(10);
/// The maximum time to live that a server may set for its list.
const MAX_TTL: Duration = Duration::from_mins(10);
/// The time within which several changes of a list are reported as one.
const DEBOUNCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct OwnListRequest {
    pub(super) id: RequestId,
    /// The request as a separate message, also if it came in a batch.
    pub(super) message: Message,
    pub(super) is_modern: bool,
    /// The work session of the request.
    pub(super) work_session: Option<WorkSessionId>,
    // Cancelled when the client no longer waits for the answer.
    pub(super) cancel: CancellationToken,
}

impl Relay {
    /// Returns the list selection if the relay answers list requests. With several upstreams the
    /// aggregator answers them.
    pub(super) fn lists(&self) -> Option<&Arc<Lists>> {
        self.shared.filter.lists().filter(|_| !self.is_aggregated())
    }

    /// Returns the exchange that answers a list request, which is registered as in flight.
    pub(super) fn answer_list(
        self: &Arc<Self>,
        lists: &Arc<Lists>,
        request: OwnListRequest,
    ) -> Exchange {
        let lists = Arc::clone(lists);
        let searching = PendingAnswer {
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
                listed = relay.compose_list(&lists, &request) => listed,
            };
            let Some(mut ending) = searching.ending() else {
                return;
            };
            if !was_known {
                ending.mark_upstream_asked();
            }
            let pending = ending.take();
            match (listed, pending) {
                (Ok(result), _) => {
                    ending.set_outcome(Outcome::Ok);
                    relay.deliver_result(&request.id, &result).await;
                }
                (Err(NotListed::Refused(error)), _) => {
                    ending.set_outcome(Outcome::Error);
                    relay.deliver_error(&request.id, &error).await;
                }
                (Err(NotListed::Unknown), Some(pending)) => {
                    ending.mark_continued();
                    drop(ending);
                    relay.forward_list(&request, pending).await;
                }
                (Err(NotListed::Unknown), None) => {}
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }

    /// Returns the result for a list request.
    async fn compose_list(
        self: &Arc<Self>,
        lists: &Arc<Lists>,
        request: &OwnListRequest,
    ) -> Result<String, NotListed> {
        let params = request.message.single();
        let params = params.and_then(|part| request.message.params(part));
        let cursor = params.and_then(|params| member(params, "cursor"));
        let cursor = match cursor.filter(|cursor| *cursor != "null") {
            None => None,
            Some(text) => Some(unescape(text).ok_or_else(|| {
                let text = "unknown cursor; list again from the start";
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
        let session = SessionKey::of(request.work_session, row);
        let predicting = self
            .shared
            .span(&SpanOperation::Prediction, request.message.trace());
        self.shared.note_listed(&self.caller);
        let offer = self.shared.permitted_catalog(&self.caller, &whole.offer);
        let shown = listing
            .select_and_record(lists, (row, session), &offer)
            .await;
        drop(predicting);
        if self.caller.is_new_catalog(&whole.offer) {
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

    /// Returns the complete list of the upstream. Fetches it unless the cached list is fresh.
    async fn whole_list(
        self: &Arc<Self>,
        request: &Message,
        is_modern: bool,
    ) -> Result<Arc<WholeList>, NotListed> {
        if let Some(known) = self.known_list() {
            return Ok(known);
        }
        // Only one of several concurrent requests fetches the list. The others use its result.
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.known_list() {
            return Ok(known);
        }
        let tool = self.shared.search_tool.as_deref();
        let fetched = self.fetch(tool, request, is_modern).await;
        let whole = self.state.lock().listed.whole.clone();
        match (fetched, whole) {
            (Ok(Some(_)), Some(whole)) => Ok(whole),
            (Ok(_), _) => Err(NotListed::Unknown),
            (Err(reason), Some(whole)) => {
                tracing::debug!(
                    "failed to fetch the tool list, showing the last known list: {reason}"
                );
                Ok(whole)
            }
            (Err(reason), None) => {
                tracing::debug!(
                    "failed to fetch the whole tool list, forwarding the request unchanged: \
                     {reason}"
                );
                Err(NotListed::Unknown)
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

    /// Forwards a list request in the end. Its answer is shown without selection.
    async fn forward_list(self: &Arc<Self>, request: &OwnListRequest, pending: Pending) {
        let pending = Pending {
            purpose: RequestPurpose::ListTools,
            ..pending
        };
        if let Err(error) = self.reserve("tools/list", &request.id, pending) {
            return self.deliver_error(&request.id, &error).await;
        }
        match self.forward(request.message.clone()).await {
            Ok(Some(exchange)) => exchange.run.await,
            Ok(None) => {}
            Err(error) => tracing::debug!("failed to forward a list request: {}", error.message),
        }
    }

    /// Registers a call for the selection of its session. Returns the list that the client sees,
    /// and whether the tool is hidden in it.
    pub(super) fn note_for_list(
        &self,
        tool: &ToolRef,
        session: SessionKey,
        is_modern: bool,
    ) -> Option<(ListedCall, bool)> {
        let lists = self.shared.filter.lists()?;
        let client = self.caller.client_name();
        let ask = self
            .caller
            .list_request(&client, session, is_modern, self.shared.recorder.now());
        let listed = lists.record_call(&ask, tool)?;
        let is_hidden = listed.shown.hides(tool);
        Some((listed, is_hidden))
    }

    /// Checks in the background whether a call or a search changed the list of the client, and
    /// notifies the client.
    pub(in crate::proxy) fn review_list(self: &Arc<Self>, session: SessionKey, is_modern: bool) {
        let Some(lists) = self.shared.filter.lists() else {
            return;
        };
        if is_modern || !self.caller.is_initialized() {
            return;
        }
        let client = self.caller.client_name();
        let now = self.shared.recorder.now();
        let ask = self.caller.list_request(&client, session, is_modern, now);
        if !lists.may_change(&ask) || self.caller.begin_review(session) {
            return;
        }
        let (relay, lists) = (Arc::clone(self), Arc::clone(lists));
        tokio::spawn(async move {
            tokio::time::sleep(DEBOUNCE).await;
            relay.caller.end_review(session);
            let client = relay.caller.client_name();
            let now = relay.shared.recorder.now();
            let mut ask = relay.caller.list_request(&client, session, is_modern, now);
            let stated = relay.shared.stated_intent(relay.row().await, session, now);
            ask.stated = stated.as_ref();
            let search = &relay.caller.search;
            if lists.has_changed(&ask, |tool| search.has_found(session, tool)) && !relay.is_closed()
            {
                relay.send_list_changed().await;
            }
        });
    }

    /// Notifies the client of a changed list: over its only stream, or over each stream that
    /// subscribes to tool list changes.
    pub(in crate::proxy) async fn notify_list_changed(&self) {
        if self.caller.is_initialized() {
            return self.send_list_changed().await;
        }
        let streams = self.state.lock().pending.tool_streams();
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

    /// Sends the client a notification of a changed tool list.
    async fn send_list_changed(&self) {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        if let Ok(message) = Message::from_text(text.into()) {
            self.caller.note_change_notification(Instant::now());
            self.shared
                .observe_from(&Event::ListChangeTold, &self.caller.origin());
            self.client.deliver(message, Route::Standalone).await;
        }
    }
}

/// The reason why a list request is not answered locally.
#[derive(Debug)]
enum NotListed {
    /// The list of the upstream is not available, so the upstream answers the request itself.
    Unknown,
    /// The request is invalid.
    Refused(RpcError),
}

/// Adds the `listChanged` capability to a handshake result if the server has tools. Returns `None`
/// if nothing changes.
pub(super) fn with_list_changed(result: &str) -> Option<String> {
    let capabilities = member(result, "capabilities").filter(|text| text.starts_with('{'))?;
    let tools = member(capabilities, "tools").filter(|text| text.starts_with('{'))?;
    if member(tools, "listChanged") == Some("true") {
        return None;
    }
    let tools = with_member(tools, "listChanged", "true");
    let capabilities = with_member(capabilities, "tools", &tools);
    Some(with_member(result, "capabilities", &capabilities))
}

/// Joins definitions to one JSON array, with own tools of the proxy before or after the others.
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
        let promised = with_list_changed(r#"{"capabilities":{"tools":{},"x":1.0},"y":2}"#);
        let expected = r#"{"capabilities":{"tools":{"listChanged":true},"x":1.0},"y":2}"#;
        assert_eq!(promised.as_deref(), Some(expected));
        assert_eq!(with_list_changed(r#"{"capabilities":{}}"#), None);
        assert_eq!(
            with_list_changed(r#"{"capabilities":{"tools":{"listChanged":true}}}"#),
            None
        );
        assert_eq!(with_list_changed("[]"), None);
    }
}
