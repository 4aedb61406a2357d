//! Requests that the proxy answers itself, in front of one upstream: calls of its own tools, and lists
//! that it chooses.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::message::{Message, RequestId};
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::listing::ListRequest;
use super::params::RequestParams;
use super::search::Search;
use crate::filtering::Lists;
use crate::proxy::search_tool::{OwnTool, SearchTool};
use crate::work_sessions::RequestKind;

/// A request that is answered here.
pub(super) struct Here {
    answer: Answer,
    /// Cancelled when nobody waits for the answer any more.
    pub(super) cancel: CancellationToken,
}

enum Answer {
    Tool(Arc<SearchTool>, OwnTool),
    List(Arc<Lists>),
}

/// Such a request as it came.
pub(super) struct Received {
    pub(super) id: RequestId,
    /// It as a message of its own.
    pub(super) message: Message,
    /// It is one of a modern client.
    pub(super) is_modern: bool,
    pub(super) at: Instant,
    pub(super) at_by_clock: Timestamp,
}

impl Relay {
    /// Returns how a request is answered here, if it is.
    pub(super) fn answered_here(&self, method: &str, params: &RequestParams<'_>) -> Option<Here> {
        let answer = match method {
            "tools/call" => {
                let (tools, tool) = self.own_tool(params)?;
                Answer::Tool(Arc::clone(tools), tool)
            }
            "tools/list" => Answer::List(Arc::clone(self.lists()?)),
            _ => return None,
        };
        Some(Here {
            answer,
            cancel: CancellationToken::new(),
        })
    }

    /// Returns the exchange that answers a request which was noted as in flight.
    pub(super) async fn answer_here(self: &Arc<Self>, here: Here, received: Received) -> Exchange {
        let Received {
            id,
            message,
            is_modern,
            at,
            at_by_clock,
        } = received;
        let cancel = here.cancel;
        match here.answer {
            Answer::Tool(tools, tool) => {
                let search = Search {
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
                let request = ListRequest {
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
