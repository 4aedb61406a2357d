//! Calls of the tool for searching in front of one upstream: they end here.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use jiff::Timestamp;
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::rpc_error::RpcError;
use riglm_ports::downstream::Route;
use riglm_ports::upstream::Exchange;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::completion::Ending;
use super::params::RequestParams;
use super::pending::{Pending, Purpose};
use crate::proxy::search_tool::{Asking, SearchTool};

/// A call of the tool for searching.
#[derive(Debug)]
pub(super) struct Search {
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
}

impl Relay {
    /// Returns the tool for searching if a call with these parameters is one of it. In front of
    /// several upstreams such calls do not come here.
    pub(super) fn searched(&self, params: &RequestParams<'_>) -> Option<&Arc<SearchTool>> {
        let tool = self.shared.search_tool.as_ref()?;
        let is_named = params.name().is_some_and(|name| name == tool.name());
        (is_named && !self.is_united() && !self.is_name_taken()).then_some(tool)
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
            let found = tokio::select! {
                biased;
                () = search.cancel.cancelled() => return,
                found = relay.found(&tool, &search) => found,
            };
            let Some(mut ending) = searching.ending() else {
                return;
            };
            // There is no row to close.
            drop(ending.take());
            match found {
                Found::Result(result) => {
                    relay.deliver_result(&search.id, &result).await;
                }
                Found::NotOurs => {
                    relay.leave_name();
                    drop(ending);
                    relay.pass_after_all(search.message.clone()).await;
                }
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }

    async fn found(self: &Arc<Self>, tool: &SearchTool, search: &Search) -> Found {
        let offer = self.offer(tool, &search.message, search.is_modern).await;
        let offer = match offer {
            Ok(Some(offer)) => Ok(offer),
            Ok(None) => return Found::NotOurs,
            Err(reason) => Err(reason),
        };
        let asking = Asking {
            caller: &self.caller,
            shared: &self.shared,
            hints: search.message.hints(),
            is_modern: search.is_modern,
            received: search.received,
            received_at: search.received_at,
        };
        let part = search.message.single();
        let params = RequestParams::read(part.and_then(|part| search.message.params(part)));
        Found::Result(tool.answer(&asking, params.arguments(), offer).await)
    }

    async fn deliver_result(&self, id: &RequestId, result: &str) {
        let id_text = id.to_json();
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id_text},"result":{result}}}"#);
        match Message::from_text(text) {
            Ok(message) => {
                let route = Route::Related(id.clone());
                self.client.deliver(message, route).await;
            }
            Err(source) => tracing::error!("the answer to a search is no message: {source}"),
        }
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
    Some(alone.with_hints(message.hints().clone()))
}

/// Returns a batch without the requests with these ids, each part in its own text; `None` if
/// nothing is left, as of what is no batch.
fn without(message: &Message, ids: &[RequestId]) -> Option<Message> {
    let parts: Vec<&RawValue> = serde_json::from_slice(message.raw()).ok()?;
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
    Message::from_text(format!("[{}]", left.join(","))).ok()
}

/// A call that is being answered. Dropped before its end it gives up its place.
struct Searching {
    relay: Arc<Relay>,
    id: RequestId,
    cancel: CancellationToken,
}

impl Searching {
    /// Takes the call out of the requests in flight, if it is still one of them.
    fn ending(&self) -> Option<Ending> {
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
