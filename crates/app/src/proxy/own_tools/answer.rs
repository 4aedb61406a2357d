//! The answers to calls of own tools: search, setting the context, and the dispatch to the others.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, ToolName};
use riglm_domain::intent::context::ContextSource;
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_domain::retrieval::embedding::Embedding;
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
use super::session_view::show_session;
use crate::proxy::client_context::{ClientContext, SessionMembers};
use crate::proxy::list_template::ListFetchError;
use crate::proxy::shared_state::SharedState;
use crate::safeguards::{Admission, GuardedCall, OwnKind};
use crate::selection::ShownList;
use crate::tracking::SearchDetails;
use riglm_discovery::search::{
    Catalog, GuardedModel, ListedTools, ModelLimits, SearchReply, SearchRequest, SkillIndex,
    given_before, with_skills,
};

/// The context of a call of an own tool: the client, the session and the time of receipt.
#[derive(Debug)]
pub(in crate::proxy) struct ToolCaller<'a> {
    pub(in crate::proxy) client_context: &'a ClientContext,
    pub(in crate::proxy) shared: &'a SharedState,
    pub(in crate::proxy) session: SessionKey,
    pub(in crate::proxy) era: Era,
    /// The clients that may belong to this session.
    pub(in crate::proxy) members: SessionMembers,
    /// The list that the client sees, if lists are selected.
    pub(in crate::proxy) shown: Option<Arc<ShownList>>,
    /// The skills of the servers, for searches.
    pub(in crate::proxy) skills: Option<Arc<SkillIndex>>,
    /// The token budget in the hints of the request.
    pub(in crate::proxy) token_budget: Option<u64>,
    /// The vector of the query in the hints of the request.
    pub(in crate::proxy) vector: Option<&'a Arc<Embedding>>,
    pub(in crate::proxy) trace: Option<&'a Arc<TraceContext>>,
    pub(in crate::proxy) received: Instant,
    pub(in crate::proxy) received_at: Timestamp,
    pub(in crate::proxy) client: (&'a Arc<dyn ClientLink>, &'a RequestId),
}

impl ToolCaller<'_> {
    /// Reports an event of the request to the observer.
    pub(super) fn observe(&self, event: &Event<'_>) {
        let origin = EventOrigin::of_session(&self.client_context.principal, self.session);
        let connection = self.client_context.known_row().or(origin.connection);
        let origin = EventOrigin {
            connection,
            ..origin
        };
        self.shared.observe_from(event, &origin);
    }

    /// Returns the positions of the tools that the operator pinned for this client.
    fn pinned_positions(&self, catalog: &Catalog) -> Vec<usize> {
        let Some(lists) = self.shared.selection.lists() else {
            return Vec::new();
        };
        let name = self.client_context.client_name();
        let mut ask =
            (self.client_context).list_request(&name, self.session, self.era, self.received_at);
        ask.client_hash = Some(self.client_context.client_hash(&self.shared.recorder));
        lists.pinned_positions(&ask, catalog)
    }

    /// Returns the language model of the client if it offers sampling. Modern clients are not asked
    /// outside of their own requests.
    fn client_model(
        &self,
        limits: Option<ModelLimits>,
        row: SessionId,
    ) -> Option<GuardedModel<dyn Reranker>> {
        let limits =
            limits.filter(|_| self.era == Era::Legacy && self.client_context.offers_sampling())?;
        let (client, request) = self.client;
        let sampling = &self.client_context.sampling;
        Some(sampling.reranker(client, request, row, limits))
    }
}

impl OwnTools {
    /// Returns the JSON text of the result of a call of `tool`. `catalog` is the catalog, or the
    /// reason why there is none. Errors are reported to the model in the result.
    pub(in crate::proxy) async fn answer(
        &self,
        requester: &ToolCaller<'_>,
        tool: OwnTool,
        arguments: Option<&str>,
        catalog: Result<Arc<Catalog>, ListFetchError>,
    ) -> String {
        let safeguards = match tool {
            // The rest of a result that was cut before a pause can be read during it.
            OwnTool::ReadMore => requester.shared.every_safeguard.load_full(),
            _ => requester.shared.safeguards(),
        };
        let Some(safeguards) = safeguards else {
            return self
                .answer_unguarded(requester, tool, arguments, catalog)
                .await;
        };
        let (own, name) = (
            kind_of(tool),
            ToolName::from(self.names.name(tool).unwrap_or_default()),
        );
        let known = catalog.as_ref().ok().cloned();
        let call = GuardedCall {
            session_key: requester.session,
            principal: &requester.client_context.principal,
            asker: None,
            profile: requester.client_context.profile_name(),
            upstream: None,
            fingerprint: "",
            tool: &name,
            own: Some(own),
            arguments,
            is_task: false,
            token_budget: requester.token_budget,
            catalog: known.as_ref(),
            now: requester.received_at,
            at: requester.received,
        };
        // Paging skips admission, so that limits do not cut off the rest of a result.
        if tool == OwnTool::ReadMore {
            let part = read_on(requester, &safeguards, &call);
            return safeguards.read_on(&call, part);
        }
        let permit = match safeguards.admit(&call) {
            Ok(Admission::Goes(permit)) => permit,
            Ok(Admission::Known(result)) => return result,
            Err(refusal) => return failure(requester.era, &refusal.text),
        };
        let guard = safeguards.guard(&call, permit);
        let result = self
            .answer_unguarded(requester, tool, arguments, catalog)
            .await;
        guard.on_answer(&result).unwrap_or(result)
    }

    async fn answer_unguarded(
        &self,
        requester: &ToolCaller<'_>,
        tool: OwnTool,
        arguments: Option<&str>,
        catalog: Result<Arc<Catalog>, ListFetchError>,
    ) -> String {
        match tool {
            OwnTool::Recommend => return recommend(requester, arguments, catalog).await,
            OwnTool::RateTool => return rate(requester, arguments, catalog).await,
            OwnTool::ReadMore => return truncation_disabled(requester),
            OwnTool::ShowSession => return show_session(requester, catalog).await,
            OwnTool::Search | OwnTool::CallTool | OwnTool::SetContext => {}
        }
        let arguments = match Arguments::read(tool, arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return failure(requester.era, problem.as_str()),
        };
        let query = arguments.text();
        let catalog = match catalog {
            Ok(catalog) => catalog,
            Err(reason) => {
                let problem = format!("failed to search tools: {reason}");
                return failure(requester.era, &problem);
            }
        };
        let session = requester.client_context.session_id(requester.shared).await;
        let at = requester.received_at;
        (requester.shared).note_intent(requester.session, source_of(tool), &query, at);
        let pinned = requester.pinned_positions(&catalog);
        let call = SearchRequest {
            session,
            session_key: requester.session,
            principal: requester.client_context.principal.clone(),
            client: requester.client_context.client_name(),
            query: query.clone(),
            vector: requester.vector.cloned(),
            limit: arguments.limit,
            catalog,
            shown: (requester.shown.clone()).map(|shown| shown as Arc<dyn ListedTools>),
            told: requester
                .client_context
                .search
                .found_tools(requester.session),
            pinned,
            client_model: requester.client_model(self.service.client_limits(), session),
        };
        let span = |operation| requester.shared.span(&operation, requester.trace);
        let predicting = span(SpanOperation::Prediction);
        let mut reply = self.service.search(call).await;
        drop(predicting);
        requester.observe(&Event::Searched {
            quality: reply.quality,
            n_matches: reply.results.len(),
            is_repeated: reply.was_cached,
            took: requester.received.elapsed(),
        });
        tracing::debug!(
            n_results = reply.results.len(),
            quality = reply.quality.as_str(),
            was_cached = reply.was_cached,
            "answered a search"
        );
        record_search(requester, tool, session, &query, &mut reply).await;
        let (text, structured) = if reply.was_cached {
            given_before(&reply.text, &reply.structured)
        } else {
            (reply.text, reply.structured)
        };
        let skills = requester.skills.as_ref();
        let skills = skills.map(|skills| self.service.find_skills(skills, &query));
        let (text, structured) = match skills.filter(|skills| !skills.is_empty()) {
            Some(skills) => with_skills(&text, &structured, &skills),
            None => (text, structured),
        };
        result(requester, &text, Some(&structured))
    }
}

/// Returns the source of the text that a tool gets.
fn source_of(tool: OwnTool) -> ContextSource {
    match tool {
        OwnTool::SetContext => ContextSource::SetContext,
        _ => ContextSource::Search,
    }
}

/// Records a search and its results: for safeguards, in the journal, and for lists, which learn from
/// found tools. Takes the vector of the query out of the reply.
async fn record_search(
    requester: &ToolCaller<'_>,
    tool: OwnTool,
    session: SessionId,
    text: &str,
    reply: &mut SearchReply,
) {
    if let (OwnTool::Search, Some(safeguards)) = (tool, requester.shared.safeguards()) {
        let (session, at) = (requester.session, requester.received);
        safeguards.record_search(session, at, text, &reply.results);
    }
    let details = SearchDetails {
        session,
        principal: &requester.client_context.principal,
        source: source_of(tool),
        query: text,
        searched_at: requester.received_at,
        duration: requester.received.elapsed(),
        quality: reply.quality,
        results: reply.results.clone(),
        embedding: reply.query_vector.take(),
    };
    let storing = (requester.shared).span(&SpanOperation::Store, requester.trace);
    let context = requester.shared.recorder.record_search(details).await;
    drop(storing);
    let search = &requester.client_context.search;
    let named = reply.results.iter().map(|result| &result.tool);
    search.note_found(
        requester.session,
        named.clone().chain(&reply.predicted),
        context,
        Instant::now(),
    );
    if let Some(lists) = requester.shared.selection.lists() {
        let client = requester.client_context.client_name();
        let ask = (requester.client_context).list_request(
            &client,
            requester.session,
            requester.era,
            requester.received_at,
        );
        lists.record_search(&ask, named);
    }
}

fn kind_of(tool: OwnTool) -> OwnKind {
    match tool {
        OwnTool::Search => OwnKind::Search,
        OwnTool::SetContext => OwnKind::Context,
        OwnTool::CallTool | OwnTool::Recommend | OwnTool::RateTool | OwnTool::ReadMore => {
            OwnKind::Other
        }
        OwnTool::ShowSession => OwnKind::View,
    }
}

/// Returns the JSON text of an error result.
pub(in crate::proxy) fn failure(era: Era, problem: &str) -> String {
    let kind = kind(era);
    let text = Value::from(problem);
    format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

pub(super) fn result(requester: &ToolCaller<'_>, text: &str, structured: Option<&str>) -> String {
    let kind = kind(requester.era);
    let revision = requester.client_context.revision();
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
