//! The answer to a call of the tool for searching, or of the one by which a client says what it does.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::context::ContextSource;
use riglm_domain::invocation::CallSession;
use riglm_domain::trace_context::TraceContext;
use riglm_ports::observer::Event;
use riglm_ports::tracer::Operation;
use serde_json::Value;

use super::SearchTool;
use super::arguments::Arguments;
use super::own::OwnTool;
use crate::filtering::ShownList;
use crate::proxy::caller::Caller;
use crate::proxy::shared::Shared;
use crate::search::{Offer, SearchCall};
use crate::tracking::SearchDetails;

/// Who searches, and since when.
#[derive(Debug)]
pub(in crate::proxy) struct Asking<'a> {
    pub(in crate::proxy) caller: &'a Caller,
    pub(in crate::proxy) shared: &'a Shared,
    /// What the request belongs to.
    pub(in crate::proxy) session: CallSession,
    /// The result is for a modern client.
    pub(in crate::proxy) is_modern: bool,
    /// The list that the client sees, where lists are chosen as a whole.
    pub(in crate::proxy) shown: Option<Arc<ShownList>>,
    /// The place of the request's span.
    pub(in crate::proxy) trace: Option<&'a Arc<TraceContext>>,
    pub(in crate::proxy) received: Instant,
    pub(in crate::proxy) received_at: Timestamp,
}

impl SearchTool {
    /// Returns the JSON text of the result of a call of `tool` with these arguments; `offer` is what
    /// can be searched, or why there is nothing. What is wrong is told to the model.
    pub(in crate::proxy) async fn answer(
        &self,
        asking: &Asking<'_>,
        (tool, arguments): (OwnTool, Option<&str>),
        offer: Result<Arc<Offer>, String>,
    ) -> String {
        let arguments = match Arguments::read(tool, arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return failure(asking.is_modern, &problem),
        };
        let text = arguments.text();
        let offer = match offer {
            Ok(offer) => offer,
            Err(reason) => {
                let problem = format!("the tools cannot be searched now: {reason}");
                return failure(asking.is_modern, &problem);
            }
        };
        let recorder = &asking.shared.recorder;
        let session = asking.caller.row(recorder).await;
        let source = match tool {
            OwnTool::SetContext => ContextSource::SetContext,
            OwnTool::Search | OwnTool::CallTool => ContextSource::Search,
        };
        if let Some(intents) = &asking.shared.intents {
            intents.note(asking.session, source, &text, asking.received_at);
        }
        let call = SearchCall {
            session,
            together: asking.session,
            principal: asking.caller.principal.clone(),
            client: asking.caller.client_name(),
            query: text.clone(),
            limit: arguments.limit,
            offer,
            shown: asking.shown.clone(),
            told: asking.caller.search.told(asking.session),
        };
        let span = |operation| asking.shared.span(&operation, asking.trace);
        let predicting = span(Operation::Prediction);
        let reply = self.service.search(call).await;
        drop(predicting);
        asking.shared.observe(&Event::Searched {
            quality: reply.quality,
            n_matches: reply.results.len(),
            is_repeated: reply.was_cached,
            took: asking.received.elapsed(),
        });
        tracing::debug!(
            n_results = reply.results.len(),
            quality = reply.quality.as_str(),
            was_cached = reply.was_cached,
            "a search was answered"
        );
        let details = SearchDetails {
            session,
            principal: &asking.caller.principal,
            source,
            query: &text,
            searched_at: asking.received_at,
            duration: asking.received.elapsed(),
            quality: reply.quality,
            results: reply.results.clone(),
            embedding: reply.query_vector,
        };
        let storing = span(Operation::Store);
        let context = recorder.searched(details).await;
        drop(storing);
        let search = &asking.caller.search;
        let named = reply.results.iter().map(|result| &result.tool);
        search.found(
            asking.session,
            named.clone().chain(&reply.predicted),
            context,
            Instant::now(),
        );
        if let Some(lists) = asking.shared.filter.lists() {
            let client = asking.caller.client_name();
            let ask = (asking.caller).list_ask(
                &client,
                asking.session,
                asking.is_modern,
                asking.received_at,
            );
            lists.searched(&ask, named);
        }
        result(asking, &reply.text, Some(&reply.structured))
    }
}

/// Returns the JSON text of a result that says what went wrong.
pub(in crate::proxy) fn failure(is_modern: bool, problem: &str) -> String {
    let kind = kind(is_modern);
    let text = Value::from(problem);
    format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

fn result(asking: &Asking<'_>, text: &str, structured: Option<&str>) -> String {
    let kind = kind(asking.is_modern);
    let revision = asking.caller.revision();
    let is_known = revision.is_some_and(|revision| revision.has_structured_results());
    let structured = structured.filter(|_| is_known);
    let structured = structured.map(|object| format!(r#","structuredContent":{object}"#));
    format!(
        r#"{{{kind}"content":[{{"type":"text","text":{}}}]{}}}"#,
        Value::from(text),
        structured.unwrap_or_default()
    )
}

/// Returns the member that results of modern revisions begin with.
fn kind(is_modern: bool) -> &'static str {
    if is_modern {
        r#""resultType":"complete","#
    } else {
        ""
    }
}
