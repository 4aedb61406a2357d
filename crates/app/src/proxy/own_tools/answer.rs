//! The answers to calls of own tools: search, setting the context, and the dispatch to the others.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, ToolName};
use riglm_domain::intent::context::ContextSource;
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::downstream::ClientLink;
use riglm_ports::observer::{Event, EventOrigin};
use riglm_ports::reranker::Reranker;
use riglm_ports::tracer::SpanOperation;
use serde_json::Value;

use super::OwnTools;
use super::arguments::Arguments;
use super::own_tool::OwnTool;
use super::paging::{read_on, truncation_disabled};
use super::rating::rate;
use super::recommending::recommend;
use crate::proxy::client_context::ClientContext;
use crate::proxy::shared_state::SharedState;
use crate::safeguards::{Admission, GuardedCall, OwnKind};
use crate::selection::ShownList;
use crate::tracking::SearchDetails;
use riglm_discovery::search::{
    Catalog, GuardedModel, ListedTools, ModelLimits, SearchRequest, given_before,
};

/// The context of a call of an own tool: the client, the session and the time of receipt.
#[derive(Debug)]
pub(in crate::proxy) struct SearchRequester<'a> {
    pub(in crate::proxy) caller: &'a ClientContext,
    pub(in crate::proxy) shared: &'a SharedState,
    /// The session key of the request.
    pub(in crate::proxy) session: SessionKey,
    pub(in crate::proxy) era: Era,
    /// The list that the client sees, if lists are selected.
    pub(in crate::proxy) shown: Option<Arc<ShownList>>,
    /// The token budget in the hints of the request.
    pub(in crate::proxy) token_budget: Option<u64>,
    /// The trace context of the request.
    pub(in crate::proxy) trace: Option<&'a Arc<TraceContext>>,
    pub(in crate::proxy) received: Instant,
    pub(in crate::proxy) received_at: Timestamp,
    /// The client link, and the id of the request.
    pub(in crate::proxy) client: (&'a Arc<dyn ClientLink>, &'a RequestId),
}

impl SearchRequester<'_> {
    /// Reports an event of the request to the observer.
    pub(super) fn observe(&self, event: &Event<'_>) {
        let origin = EventOrigin::of_session(&self.caller.principal, self.session);
        let connection = self.caller.known_row().or(origin.connection);
        let origin = EventOrigin {
            connection,
            ..origin
        };
        self.shared.observe_from(event, &origin);
    }

    /// Returns the positions of the tools that the operator pinned for this client.
    fn pinned_positions(&self, offer: &Catalog) -> Vec<usize> {
        let Some(lists) = self.shared.selection.lists() else {
            return Vec::new();
        };
        let name = self.caller.client_name();
        let mut ask = (self.caller).list_request(&name, self.session, self.era, self.received_at);
        ask.client_hash = Some(self.caller.client_hash(&self.shared.recorder));
        lists.pinned_positions(&ask, offer)
    }

    /// Returns the language model of the client if it offers sampling. Modern clients are not asked
    /// outside of their own requests.
    fn client_model(
        &self,
        limits: Option<ModelLimits>,
        row: SessionId,
    ) -> Option<GuardedModel<dyn Reranker>> {
        let limits = limits.filter(|_| self.era == Era::Legacy && self.caller.offers_sampling())?;
        let (client, request) = self.client;
        let sampling = &self.caller.sampling;
        Some(sampling.reranker(client, request, row, limits))
    }
}

impl OwnTools {
    /// Returns the JSON text of the result of a call of `tool`. `offer` is the catalog, or the
    /// reason why there is none. Errors are reported to the model in the result.
    pub(in crate::proxy) async fn answer(
        &self,
        asking: &SearchRequester<'_>,
        (tool, arguments): (OwnTool, Option<&str>),
        offer: Result<Arc<Catalog>, String>,
    ) -> String {
        let Some(safeguards) = &asking.shared.safeguards else {
            return self.answer_unguarded(asking, tool, arguments, offer).await;
        };
        let (own, name) = (
            kind_of(tool),
            ToolName::from(self.name(tool).unwrap_or_default()),
        );
        let known = offer.as_ref().ok().cloned();
        let call = GuardedCall {
            session_key: asking.session,
            principal: &asking.caller.principal,
            asker: None,
            profile: asking.caller.profile_name(),
            upstream: None,
            fingerprint: "",
            tool: &name,
            own: Some(own),
            arguments,
            is_task: false,
            token_budget: asking.token_budget,
            offer: known.as_ref(),
            now: asking.received_at,
            at: asking.received,
        };
        // Paging skips admission, so that limits do not cut off the rest of a result.
        if tool == OwnTool::ReadMore {
            let part = read_on(asking, safeguards, &call);
            return safeguards.read_on(&call, part);
        }
        let permit = match safeguards.admit(&call) {
            Ok(Admission::Goes(permit)) => permit,
            Ok(Admission::Known(result)) => return result,
            Err(refusal) => return failure(asking.era, &refusal.text),
        };
        let guard = safeguards.guard(&call, permit);
        let result = self.answer_unguarded(asking, tool, arguments, offer).await;
        guard.on_answer(&result).unwrap_or(result)
    }

    async fn answer_unguarded(
        &self,
        asking: &SearchRequester<'_>,
        tool: OwnTool,
        arguments: Option<&str>,
        offer: Result<Arc<Catalog>, String>,
    ) -> String {
        match tool {
            OwnTool::Recommend => return recommend(asking, arguments, offer).await,
            OwnTool::RateTool => return rate(asking, arguments, offer).await,
            OwnTool::ReadMore => return truncation_disabled(asking),
            OwnTool::Search | OwnTool::CallTool | OwnTool::SetContext => {}
        }
        let arguments = match Arguments::read(tool, arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return failure(asking.era, &problem),
        };
        let text = arguments.text();
        let offer = match offer {
            Ok(offer) => offer,
            Err(reason) => {
                let problem = format!("failed to search tools: {reason}");
                return failure(asking.era, &problem);
            }
        };
        let recorder = &asking.shared.recorder;
        let session = asking.caller.row(asking.shared).await;
        let source = match tool {
            OwnTool::SetContext => ContextSource::SetContext,
            _ => ContextSource::Search,
        };
        let at = asking.received_at;
        asking.shared.note_intent(asking.session, source, &text, at);
        let pinned = asking.pinned_positions(&offer);
        let call = SearchRequest {
            session,
            session_key: asking.session,
            principal: asking.caller.principal.clone(),
            client: asking.caller.client_name(),
            query: text.clone(),
            limit: arguments.limit,
            offer,
            shown: (asking.shown.clone()).map(|shown| shown as Arc<dyn ListedTools>),
            told: asking.caller.search.found_tools(asking.session),
            pinned,
            client_model: asking.client_model(self.service.client_limits(), session),
        };
        let span = |operation| asking.shared.span(&operation, asking.trace);
        let predicting = span(SpanOperation::Prediction);
        let reply = self.service.search(call).await;
        drop(predicting);
        asking.observe(&Event::Searched {
            quality: reply.quality,
            n_matches: reply.results.len(),
            is_repeated: reply.was_cached,
            took: asking.received.elapsed(),
        });
        tracing::debug!(
            n_results = reply.results.len(),
            quality = reply.quality.as_str(),
            was_cached = reply.was_cached,
            "answered a search"
        );
        if let (OwnTool::Search, Some(safeguards)) = (tool, &asking.shared.safeguards) {
            let search = (asking.session, asking.received);
            safeguards.record_search(search, &text, &reply.results);
        }
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
        let storing = span(SpanOperation::Store);
        let context = recorder.record_search(details).await;
        drop(storing);
        let search = &asking.caller.search;
        let named = reply.results.iter().map(|result| &result.tool);
        search.note_found(
            asking.session,
            named.clone().chain(&reply.predicted),
            context,
            Instant::now(),
        );
        if let Some(lists) = asking.shared.selection.lists() {
            let client = asking.caller.client_name();
            let ask = (asking.caller).list_request(
                &client,
                asking.session,
                asking.era,
                asking.received_at,
            );
            lists.record_search(&ask, named);
        }
        let (text, structured) = if reply.was_cached {
            given_before(&reply.text, &reply.structured)
        } else {
            (reply.text, reply.structured)
        };
        result(asking, &text, Some(&structured))
    }
}

/// Returns the kind of an own tool for the safeguards.
fn kind_of(tool: OwnTool) -> OwnKind {
    match tool {
        OwnTool::Search => OwnKind::Search,
        OwnTool::SetContext => OwnKind::Context,
        OwnTool::CallTool | OwnTool::Recommend | OwnTool::RateTool | OwnTool::ReadMore => {
            OwnKind::Other
        }
    }
}

/// Returns the JSON text of an error result.
pub(in crate::proxy) fn failure(era: Era, problem: &str) -> String {
    let kind = kind(era);
    let text = Value::from(problem);
    format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

pub(super) fn result(asking: &SearchRequester<'_>, text: &str, structured: Option<&str>) -> String {
    let kind = kind(asking.era);
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

/// Returns the first member of results of modern revisions.
fn kind(era: Era) -> &'static str {
    if era == Era::Modern {
        r#""resultType":"complete","#
    } else {
        ""
    }
}
