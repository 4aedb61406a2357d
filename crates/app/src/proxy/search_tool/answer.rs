//! The answer to a call of the tool for searching.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::invocation::CallSession;
use riglm_domain::request_hints::RequestHints;
use serde_json::Value;

use super::SearchTool;
use super::arguments::Arguments;
use crate::proxy::caller::Caller;
use crate::proxy::shared::Shared;
use crate::search::{Offer, SearchCall};
use crate::tracking::SearchDetails;

/// Who searches, and since when.
#[derive(Debug)]
pub(in crate::proxy) struct Asking<'a> {
    pub(in crate::proxy) caller: &'a Caller,
    pub(in crate::proxy) shared: &'a Shared,
    pub(in crate::proxy) hints: &'a RequestHints,
    /// The result is for a modern client.
    pub(in crate::proxy) is_modern: bool,
    pub(in crate::proxy) received: Instant,
    pub(in crate::proxy) received_at: Timestamp,
}

impl SearchTool {
    /// Returns the JSON text of the result of a call with these arguments; `offer` is what can be
    /// searched, or why there is nothing. What is wrong is told to the model.
    pub(in crate::proxy) async fn answer(
        &self,
        asking: &Asking<'_>,
        arguments: Option<&str>,
        offer: Result<Arc<Offer>, String>,
    ) -> String {
        let arguments = match Arguments::read(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return failure(asking, &problem),
        };
        let offer = match offer {
            Ok(offer) => offer,
            Err(reason) => {
                let problem = format!("the tools cannot be searched now: {reason}");
                return failure(asking, &problem);
            }
        };
        let recorder = &asking.shared.recorder;
        let session = asking.caller.row(recorder).await;
        let (hints, now) = (asking.hints, asking.received_at);
        let work_session = (asking.caller)
            .work_session(asking.shared, hints, false, now)
            .await;
        let call = SearchCall {
            session,
            together: CallSession::of(work_session, session),
            principal: asking.caller.principal.clone(),
            client: asking.caller.client_name(),
            query: arguments.query.clone(),
            limit: arguments.limit,
            offer,
        };
        let reply = self.service.search(call).await;
        tracing::debug!(
            n_results = reply.results.len(),
            quality = reply.quality.as_str(),
            was_cached = reply.was_cached,
            "a search was answered"
        );
        let details = SearchDetails {
            session,
            principal: &asking.caller.principal,
            query: &arguments.query,
            searched_at: asking.received_at,
            duration: asking.received.elapsed(),
            quality: reply.quality,
            results: reply.results.clone(),
            embedding: reply.query_vector,
        };
        let context = recorder.searched(details).await;
        let search = &asking.caller.search;
        let named = reply.results.iter().map(|result| &result.tool);
        search.found(named.chain(&reply.predicted), context, Instant::now());
        result(asking, &reply.text, Some(&reply.structured))
    }
}

/// Returns a result that says what went wrong.
fn failure(asking: &Asking<'_>, problem: &str) -> String {
    let mut text = result(asking, problem, None);
    text.truncate(text.len() - 1);
    text + r#","isError":true}"#
}

fn result(asking: &Asking<'_>, text: &str, structured: Option<&str>) -> String {
    let kind = if asking.is_modern {
        r#""resultType":"complete","#
    } else {
        ""
    };
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
