//! Calls of the tools of the proxy itself in front of one upstream: they end here, or go on as the
//! calls that they stand for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use jiff::Timestamp;
use riglm_domain::invocation::CallSession;
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::rpc_error::RpcError;
use riglm_ports::downstream::Route;
use riglm_ports::upstream::Exchange;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::completion::Ending;
use super::params::{RequestParams, outcome_of};
use super::pending::{Pending, Purpose};
use crate::proxy::listing::Listing;
use crate::proxy::search_tool::{Asking, CallMaker, OwnTool, SearchTool, Unwrapped, failure};
use crate::work_sessions::RequestKind;

/// A call of a tool of the proxy itself.
#[derive(Debug)]
pub(super) struct Search {
    /// The tool.
    pub(super) tool: OwnTool,
    /// Its id.
    pub(super) id: RequestId,
    /// The call as a message of its own.
    pub(super) message: Message,
    /// It is one of a modern client.
    pub(super) is_modern: bool,
    /// When it was received.
    pub(super) received: Instant,
    /// When it was received, by the clock.
    pub(super) received_at: Timestamp,
    /// Cancelled when nobody waits for the answer any more.
    pub(super) cancel: CancellationToken,
}

/// What comes of a call.
enum Found {
    /// This is the JSON text of its result.
    Result(String),
    /// The tool is the upstream's.
    NotOurs,
    /// It stands for this call.
    Call(Message),
}

impl Relay {
    /// Returns the tool of the proxy itself that a call with these parameters is one of. In front of
    /// several upstreams such calls do not come here.
    pub(super) fn own_tool(
        &self,
        params: &RequestParams<'_>,
    ) -> Option<(&Arc<SearchTool>, OwnTool)> {
        let tools = self.shared.search_tool.as_ref()?;
        let own = tools.named(&params.name()?)?;
        (!self.is_united() && !self.taken().has(own)).then_some((tools, own))
    }

    /// Returns the call that a message stands for, where that can be told at once; any other message
    /// as it is. Calls of batches are taken apart first, and come here again.
    pub(super) fn unwrapped(&self, message: Message) -> Message {
        let Some(tools) = self
            .shared
            .search_tool
            .as_ref()
            .filter(|_| !self.is_united())
        else {
            return message;
        };
        let offer = || {
            let known = self.shared.offer_of(&self.caller);
            known.filter(|_| self.has_tools())
        };
        tools
            .call_in(
                &message,
                &CallMaker::of(&self.caller, &self.shared),
                self.taken(),
                offer,
            )
            .unwrap_or(message)
    }

    /// Returns the exchange that answers a call which was noted as in flight.
    pub(super) fn answer_search(
        self: &Arc<Self>,
        tool: &Arc<SearchTool>,
        search: Search,
    ) -> Exchange {
        let tool = Arc::clone(tool);
        let searching = Searching {
            relay: Arc::clone(self),
            id: search.id.clone(),
            cancel: search.cancel.clone(),
        };
        let run = async move {
            let relay = &searching.relay;
            let was_known = relay.caller.search.whole_offer().is_some();
            let found = tokio::select! {
                biased;
                () = search.cancel.cancelled() => return,
                found = relay.found(&tool, &search) => found,
            };
            let Some(mut ending) = searching.ending() else {
                return;
            };
            if !was_known {
                ending.has_asked();
            }
            // There is no row to close.
            drop(ending.take());
            match found {
                Found::Result(result) => {
                    ending.came_to(outcome_of(&result));
                    relay.deliver_result(&search.id, &result).await;
                }
                Found::NotOurs => {
                    relay.leave_name(search.tool);
                    ending.goes_on();
                    drop(ending);
                    relay.pass_after_all(search.message.clone()).await;
                }
                Found::Call(call) => {
                    ending.goes_on();
                    drop(ending);
                    relay.pass_after_all(call).await;
                }
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }

    async fn found(self: &Arc<Self>, tools: &SearchTool, search: &Search) -> Found {
        let asked = self.offer((tools, search.tool), &search.message, search.is_modern);
        let offer = match search.tool {
            // What it calls need not wait for a server that is slow to list.
            OwnTool::CallTool => {
                let limit = self.shared.limits().unite_timeout;
                let asked = tokio::time::timeout(limit, asked).await;
                asked.unwrap_or_else(|_| Err("its list of tools takes too long".into()))
            }
            _ => asked.await,
        };
        let offer = match offer {
            Ok(Some(offer)) => Ok(offer),
            Ok(None) => return Found::NotOurs,
            Err(reason) => Err(reason),
        };
        let part = search.message.single();
        let params = part.and_then(|part| search.message.params(part));
        if search.tool == OwnTool::CallTool {
            let maker = CallMaker::of(&self.caller, &self.shared);
            let unwrapped = tools.unwrapped(&maker, params, offer.as_deref().ok());
            return match unwrapped.await {
                Unwrapped::Call(params) => {
                    let call = search.message.with_params(&params);
                    Found::Call(call.without_param_headers())
                }
                Unwrapped::Wrong(problem) => Found::Result(failure(search.is_modern, &problem)),
            };
        }
        let row = self.row().await;
        let (hints, now) = (search.message.hints(), search.received_at);
        let work_session = (self.caller)
            .work_session(&self.shared, hints, RequestKind::Search, now)
            .await;
        let session = CallSession::of(work_session, row);
        let asking = Asking {
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
        Found::Result(result)
    }

    pub(super) async fn deliver_result(&self, id: &RequestId, result: &str) {
        let route = Route::Related(id.clone());
        self.client
            .deliver(Message::success(id, result), route)
            .await;
    }

    async fn pass_after_all(self: &Arc<Self>, message: Message) {
        match self.receive(message).await {
            Ok(Some(exchange)) => exchange.run.await,
            Ok(None) => {}
            Err(error) => tracing::debug!("a call was not passed on: {}", error.message),
        }
    }

    /// Forwards what is left of a message without the calls that are answered here.
    pub(super) async fn forward_rest(
        self: &Arc<Self>,
        message: &Message,
        here: Vec<(RequestId, Exchange)>,
    ) -> Result<Option<Exchange>, RpcError> {
        let (ids, searches): (Vec<_>, Vec<_>) = here.into_iter().unzip();
        let mut forwarded = None;
        if let Some(rest) = without(message, &ids) {
            // Without requests in it, nobody waits to hear that it cannot be passed on.
            let passed = self.forward(rest).await;
            forwarded = passed.unwrap_or_else(|error| {
                tracing::debug!("a batch was not passed on: {}", error.message);
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

/// Returns a request of a message as a message of its own.
pub(super) fn alone(message: &Message, envelope: &Envelope) -> Option<Message> {
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

/// Returns a batch without the requests with these ids, each part in its own text; `None` if
/// nothing is left, as of what is no batch.
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

/// A call that is being answered. Dropped before its end it gives up its place.
pub(super) struct Searching {
    pub(super) relay: Arc<Relay>,
    pub(super) id: RequestId,
    pub(super) cancel: CancellationToken,
}

impl Searching {
    /// Takes the call out of the requests in flight, if it is still one of them.
    pub(super) fn ending(&self) -> Option<Ending> {
        let pending = {
            let mut state = self.relay.state();
            let is_here = |pending: &mut Pending| matches!(pending.purpose, Purpose::Here(_));
            if self.cancel.is_cancelled() || !state.pending.get_mut(&self.id).is_some_and(is_here) {
                return None;
            }
            state.pending.remove(&self.id)
        };
        self.cancel.cancel();
        pending.map(|pending| Ending::new(&self.relay, pending))
    }
}

impl Drop for Searching {
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
        let message = alone(&batch, &batch.envelopes()[0]).unwrap();
        let part = message.single().unwrap();
        assert_eq!(message.params(part), Some(r#"{"n":1.0}"#));
        assert_eq!(part.id(), batch.envelopes()[0].id());
    }
}
