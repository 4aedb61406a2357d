//! Calls of own tools for one upstream. They are answered locally, or forwarded as the calls that
//! they wrap.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use jiff::Timestamp;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::downstream::Route;
use riglm_ports::upstream::Exchange;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::completion::Ending;
use super::params::{RequestParams, outcome_of};
use super::pending::{Pending, RequestPurpose};
use crate::proxy::listing::Listing;
use crate::proxy::search_tool::{
    CallMaker, OwnTool, OwnTools, SearchRequester, UnwrapOutcome, failure,
};
use crate::work_sessions::RequestKind;

/// A call of an own tool of the proxy.
#[derive(Debug)]
pub(super) struct OwnToolCall {
    pub(super) tool: OwnTool,
    pub(super) id: RequestId,
    /// The call as a separate message, also if it came in a batch.
    pub(super) message: Message,
    pub(super) is_modern: bool,
    /// The time of receipt.
    pub(super) received: Instant,
    /// The time of receipt by the wall clock.
    pub(super) received_at: Timestamp,
    // Cancelled when the client no longer waits for the answer.
    pub(super) cancel: CancellationToken,
}

/// The result of a call of an own tool.
enum OwnToolOutcome {
    /// The JSON text of the result.
    Result(String),
    /// The upstream has a tool of this name.
    NotOurs,
    /// The wrapped call to forward.
    Call(Message),
}

impl Relay {
    /// Returns the own tool that a call with these parameters names. With several upstreams the
    /// aggregator handles such calls.
    pub(super) fn own_tool(&self, params: &RequestParams<'_>) -> Option<(&Arc<OwnTools>, OwnTool)> {
        let tools = self.shared.search_tool.as_ref()?;
        let own = tools.tool_named(&params.name()?)?;
        (!self.is_aggregated() && !self.taken_names().has(own)).then_some((tools, own))
    }

    /// Returns the call that a message wraps, if it is known at once, or else the message
    /// unchanged. Calls in batches are separated first and pass here again.
    pub(super) fn unwrap_call(&self, message: Message) -> Message {
        let Some(tools) = self
            .shared
            .search_tool
            .as_ref()
            .filter(|_| !self.is_aggregated())
        else {
            return message;
        };
        let offer = || {
            let known = self.shared.catalog_of(&self.caller);
            known.filter(|_| self.has_tools())
        };
        tools
            .wrapped_call(
                &message,
                &CallMaker::of(&self.caller, &self.shared),
                self.taken_names(),
                offer,
            )
            .unwrap_or(message)
    }

    /// Returns the exchange that answers a call, which is registered as in flight.
    pub(super) fn answer_search(
        self: &Arc<Self>,
        tool: &Arc<OwnTools>,
        search: OwnToolCall,
    ) -> Exchange {
        let tool = Arc::clone(tool);
        let searching = PendingAnswer {
            relay: Arc::clone(self),
            id: search.id.clone(),
            cancel: search.cancel.clone(),
        };
        let run = async move {
            let relay = &searching.relay;
            let was_known = relay.caller.search.complete_catalog().is_some();
            let found = tokio::select! {
                biased;
                () = search.cancel.cancelled() => return,
                found = relay.run_own_tool(&tool, &search) => found,
            };
            let Some(mut ending) = searching.ending() else {
                return;
            };
            if !was_known {
                ending.mark_upstream_asked();
            }
            // An own tool has no call row to close.
            drop(ending.take());
            match found {
                OwnToolOutcome::Result(result) => {
                    ending.set_outcome(outcome_of(&result));
                    relay.deliver_result(&search.id, &result).await;
                }
                OwnToolOutcome::NotOurs => {
                    relay.leave_name(search.tool);
                    ending.mark_continued();
                    drop(ending);
                    relay.forward_call(search.message.clone()).await;
                }
                OwnToolOutcome::Call(call) => {
                    ending.mark_continued();
                    drop(ending);
                    relay.forward_call(call).await;
                }
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }

    async fn run_own_tool(
        self: &Arc<Self>,
        tools: &OwnTools,
        search: &OwnToolCall,
    ) -> OwnToolOutcome {
        let asked = self.catalog_for((tools, search.tool), &search.message, search.is_modern);
        let offer = match search.tool {
            // The wrapped call must not wait long for a server that is slow to list its tools.
            OwnTool::CallTool => {
                let limit = self.shared.limits().unite_timeout;
                let asked = tokio::time::timeout(limit, asked).await;
                asked.unwrap_or_else(|_| Err("timeout while listing its tools".into()))
            }
            _ => asked.await,
        };
        let offer = match offer {
            Ok(Some(offer)) => Ok(offer),
            Ok(None) => return OwnToolOutcome::NotOurs,
            Err(reason) => Err(reason),
        };
        let part = search.message.single();
        let params = part.and_then(|part| search.message.params(part));
        if search.tool == OwnTool::CallTool {
            let maker = CallMaker::of(&self.caller, &self.shared);
            let unwrapped = tools.unwrap_call(&maker, params, offer.as_deref().ok());
            return match unwrapped.await {
                UnwrapOutcome::Call(params) => {
                    let call = search.message.with_params(&params);
                    OwnToolOutcome::Call(call.without_param_headers())
                }
                UnwrapOutcome::Wrong(problem) => {
                    OwnToolOutcome::Result(failure(search.is_modern, &problem))
                }
            };
        }
        let row = self.row().await;
        let (hints, now) = (search.message.hints(), search.received_at);
        let work_session = (self.caller)
            .work_session(&self.shared, hints, RequestKind::Search, now)
            .await;
        let session = SessionKey::of(work_session, row);
        let asking = SearchRequester {
            caller: &self.caller,
            shared: &self.shared,
            session,
            is_modern: search.is_modern,
            shown: {
                let listing = Listing {
                    caller: &self.caller,
                    shared: &self.shared,
                    is_modern: search.is_modern,
                };
                listing.current(session)
            },
            token_budget: hints.token_budget,
            trace: search.message.trace(),
            received: search.received,
            received_at: search.received_at,
            client: (&self.client, &search.id),
        };
        let arguments = RequestParams::read(params).arguments();
        let call = (search.tool, arguments);
        let result = tools.answer(&asking, call, offer).await;
        self.review_list(session, search.is_modern);
        OwnToolOutcome::Result(result)
    }

    pub(super) async fn deliver_result(&self, id: &RequestId, result: &str) {
        let route = Route::Related(id.clone());
        self.client
            .deliver(Message::success(id, result), route)
            .await;
    }

    async fn forward_call(self: &Arc<Self>, message: Message) {
        match self.receive(message).await {
            Ok(Some(exchange)) => exchange.run.await,
            Ok(None) => {}
            Err(error) => tracing::debug!("failed to forward a call: {}", error.message),
        }
    }

    /// Forwards the rest of a message without the calls that are answered locally.
    pub(super) async fn forward_rest(
        self: &Arc<Self>,
        message: &Message,
        here: Vec<(RequestId, Exchange)>,
    ) -> Result<Option<Exchange>, RpcError> {
        let (ids, searches): (Vec<_>, Vec<_>) = here.into_iter().unzip();
        let mut forwarded = None;
        if let Some(rest) = without(message, &ids) {
            // If the rest contains no requests, an error concerns no request of the client and is
            // only logged.
            let passed = self.forward(rest).await;
            forwarded = passed.unwrap_or_else(|error| {
                tracing::debug!("failed to forward a batch: {}", error.message);
                None
            });
        }
        let searches = join_all(searches.into_iter().map(|search| search.run));
        Ok(Some(match forwarded {
            Some(forwarded) => Exchange {
                run: Box::pin(async move {
                    tokio::join!(forwarded.run, searches);
                }),
                on_its_way: forwarded.on_its_way,
            },
            None => Exchange {
                run: Box::pin(async move {
                    searches.await;
                }),
                on_its_way: Box::pin(std::future::ready(())),
            },
        }))
    }
}

/// Returns a request of a message as a separate message.
pub(super) fn as_single_message(message: &Message, envelope: &Envelope) -> Option<Message> {
    if !message.is_batch() {
        return Some(message.clone());
    }
    let (method, id) = envelope.as_request()?;
    let params = message.params(envelope).unwrap_or("{}");
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{params}}}"#,
        id.to_json(),
        serde_json::Value::from(method)
    );
    let alone = Message::from_text(text).ok()?;
    let alone = alone.with_hints(message.hints().clone());
    Some(alone.with_trace(message.trace().cloned()))
}

/// Returns a batch without the requests with these ids; the other parts keep their text. Returns
/// `None` if nothing is left or the message is no batch.
fn without(message: &Message, ids: &[RequestId]) -> Option<Message> {
    let parts: Vec<&RawValue> = serde_json::from_slice(message.raw()).ok()?;
    let ids: HashSet<&RequestId> = ids.iter().collect();
    let is_left = |part: &Envelope| {
        let request = part.as_request();
        request.is_none_or(|(_, id)| !ids.contains(id))
    };
    let all = parts.iter().zip(message.envelopes());
    let left: Vec<&str> = all
        .filter(|(_, part)| is_left(part))
        .map(|(text, _)| text.get())
        .collect();
    if left.is_empty() {
        return None;
    }
    let rest = Message::from_text(format!("[{}]", left.join(","))).ok()?;
    Some(rest.with_trace(message.trace().cloned()))
}

/// A call that is being answered. Its permit is released if it is dropped before the end.
pub(super) struct PendingAnswer {
    pub(super) relay: Arc<Relay>,
    pub(super) id: RequestId,
    pub(super) cancel: CancellationToken,
}

impl PendingAnswer {
    /// Removes the call from the requests in flight if it is still one of them.
    pub(super) fn ending(&self) -> Option<Ending> {
        let pending = {
            let mut state = self.relay.state.lock();
            let is_here =
                |pending: &mut Pending| matches!(pending.purpose, RequestPurpose::Here(_));
            if self.cancel.is_cancelled() || !state.pending.get_mut(&self.id).is_some_and(is_here) {
                return None;
            }
            state.pending.remove(&self.id)
        };
        self.cancel.cancel();
        pending.map(|pending| Ending::new(&self.relay, pending))
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        drop(self.ending());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Message {
        let text = r#"[ {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n":1.0}},
            {"method":"x", "jsonrpc":"2.0"},{"jsonrpc":"2.0","id":"1","method":"ping"}]"#;
        Message::from_text(text.into()).unwrap()
    }

    #[test]
    fn what_is_left_of_a_batch_keeps_its_text() {
        let id = |json| RequestId::from_json(json).unwrap();
        let left = without(&batch(), &[id("1")]).unwrap();
        assert!(left.is_batch());
        let expected =
            r#"[{"method":"x", "jsonrpc":"2.0"},{"jsonrpc":"2.0","id":"1","method":"ping"}]"#;
        assert_eq!(&**left.raw(), expected.as_bytes());
        let single = Message::from_text(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.into());
        assert!(without(&single.unwrap(), &[id("1")]).is_none());
    }

    #[test]
    fn a_request_of_a_batch_stands_alone_with_its_parameters() {
        let batch = batch();
        let message = as_single_message(&batch, &batch.envelopes()[0]).unwrap();
        let part = message.single().unwrap();
        assert_eq!(message.params(part), Some(r#"{"n":1.0}"#));
        assert_eq!(part.id(), batch.envelopes()[0].id());
    }
}
