//! Local answers for one upstream: calls of own tools, and lists that the proxy selects.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::listing::OwnListRequest;
use super::params::RequestParams;
use super::search::OwnToolCall;
use crate::filtering::Lists;
use crate::proxy::search_tool::{OwnTool, OwnTools};
use crate::work_sessions::RequestKind;

/// A request that is answered locally.
pub(super) struct LocalAnswer {
    answer: Answer,
    // Cancelled when the client no longer waits for the answer.
    pub(super) cancel: CancellationToken,
}

enum Answer {
    Tool(Arc<OwnTools>, OwnTool),
    List(Arc<Lists>),
}

pub(super) struct ReceivedRequest {
    pub(super) id: RequestId,
    /// The request as a separate message, also if it came in a batch.
    pub(super) message: Message,
    pub(super) is_modern: bool,
    pub(super) at: Instant,
    pub(super) at_by_clock: Timestamp,
}

impl Relay {
    /// Returns the local answer for a request if there is one.
    pub(super) fn local_answer_for(
        &self,
        method: &str,
        params: &RequestParams<'_>,
    ) -> Option<LocalAnswer> {
        let answer = match method {
            "tools/call" => {
                let (tools, tool) = self.own_tool(params)?;
                Answer::Tool(Arc::clone(tools), tool)
            }
            "tools/list" => Answer::List(Arc::clone(self.lists()?)),
            _ => return None,
        };
        Some(LocalAnswer {
            answer,
            cancel: CancellationToken::new(),
        })
    }

    /// Returns the exchange that answers a request which was registered as in flight.
    pub(super) async fn answer_locally(
        self: &Arc<Self>,
        here: LocalAnswer,
        received: ReceivedRequest,
    ) -> Exchange {
        let ReceivedRequest {
            id,
            message,
            is_modern,
            at,
            at_by_clock,
        } = received;
        let cancel = here.cancel;
        match here.answer {
            Answer::Tool(tools, tool) => {
                let search = OwnToolCall {
                    tool,
                    id,
                    message,
                    is_modern,
                    received: at,
                    received_at: at_by_clock,
                    cancel,
                };
                self.answer_search(&tools, search)
            }
            Answer::List(lists) => {
                let hints = message.hints();
                let work =
                    (self.caller).work_session(&self.shared, hints, RequestKind::List, at_by_clock);
                let request = OwnListRequest {
                    id,
                    work_session: work.await,
                    message: message.clone(),
                    is_modern,
                    cancel,
                };
                self.answer_list(&lists, request)
            }
        }
    }
}
