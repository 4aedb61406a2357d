//! The answer to a call of the tool for searching, or of the one by which a client says what it does.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::context::ContextSource;
use riglm_domain::id::{SessionId, ToolName};
use riglm_domain::invocation::CallSession;
use riglm_domain::message::RequestId;
use riglm_domain::trace_context::TraceContext;
use riglm_ports::downstream::ClientLink;
use riglm_ports::observer::{Event, EventOrigin};
use riglm_ports::reranker::Reranker;
use riglm_ports::tracer::Operation;
use serde_json::Value;

use super::SearchTool;
use super::arguments::Arguments;
use super::own::OwnTool;
use super::reading_on::{nothing_kept, read_on};
use crate::filtering::ShownList;
use crate::proxy::caller::Caller;
use crate::proxy::shared::Shared;
use crate::safeguards::{Admission, GuardedCall, OwnKind};
use crate::search::{Guarded, ModelLimits, Offer, SearchCall, given_before};
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
    /// The most tokens that the client wants its work to have, as the request says.
    pub(in crate::proxy) token_budget: Option<u64>,
    /// The place of the request's span.
    pub(in crate::proxy) trace: Option<&'a Arc<TraceContext>>,
    pub(in crate::proxy) received: Instant,
    pub(in crate::proxy) received_at: Timestamp,
    /// The way to the client, and the request that it made.
    pub(in crate::proxy) client: (&'a Arc<dyn ClientLink>, &'a RequestId),
}

impl Asking<'_> {
    /// Tells who looks on that something happened to the request.
    pub(super) fn observe(&self, event: &Event<'_>) {
        let origin = EventOrigin::of_session(&self.caller.principal, self.session);
        let connection = self.caller.known_row().or(origin.connection);
        let origin = EventOrigin {
            connection,
            ..origin
        };
        self.shared.observe_from(event, &origin);
    }

    /// Returns the positions of the tools of an offer that the operator pinned for who asks.
    fn pinned(&self, offer: &Offer) -> Vec<usize> {
        let Some(lists) = self.shared.filter.lists() else {
            return Vec::new();
        };
        let name = self.caller.client_name();
        let mut ask = (self.caller).list_ask(&name, self.session, self.is_modern, self.received_at);
        ask.client_hash = Some(self.caller.client_hash(&self.shared.recorder));
        lists.pinned_of(&ask, offer)
    }

    /// Returns the client's own model, where it offers one and may be asked: a client of a modern
    /// revision is asked for nothing outside of its own requests.
    fn client_model(
        &self,
        limits: Option<ModelLimits>,
        row: SessionId,
    ) -> Option<Guarded<dyn Reranker>> {
        let limits = limits.filter(|_| !self.is_modern && self.caller.offers_sampling())?;
        let (client, request) = self.client;
        let sampling = &self.caller.sampling;
        Some(sampling.reranker((client, request), row, limits))
    }
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
        let Some(safeguards) = &asking.shared.safeguards else {
            return self.answered(asking, (tool, arguments), offer).await;
        };
        let (own, name) = (
            kind_of(tool),
            ToolName::from(self.name(tool).unwrap_or_default()),
        );
        let known = offer.as_ref().ok().cloned();
        let call = GuardedCall {
            together: asking.session,
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
        if tool == OwnTool::ReadMore {
            let part = read_on(asking, safeguards, &call);
            return safeguards.read_on(&call, part);
        }
        let permit = match safeguards.admit(&call) {
            Ok(Admission::Goes(permit)) => permit,
            Ok(Admission::Known(result)) => return result,
            Err(refusal) => return failure(asking.is_modern, &refusal.text),
        };
        let guard = safeguards.guard(&call, permit);
        let result = self.answered(asking, (tool, arguments), offer).await;
        guard.answered(&result).unwrap_or(result)
    }

    async fn answered(
        &self,
        asking: &Asking<'_>,
        (tool, arguments): (OwnTool, Option<&str>),
        offer: Result<Arc<Offer>, String>,
    ) -> String {
        match tool {
            OwnTool::Recommend => return self.recommended(asking, arguments, offer).await,
            OwnTool::RateTool => return self.rated(asking, arguments, offer).await,
            OwnTool::ReadMore => return nothing_kept(asking),
            OwnTool::Search | OwnTool::CallTool | OwnTool::SetContext => {}
        }
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
        let session = asking.caller.row(asking.shared).await;
        let source = match tool {
            OwnTool::SetContext => ContextSource::SetContext,
            _ => ContextSource::Search,
        };
        let at = asking.received_at;
        asking.shared.note_intent(asking.session, source, &text, at);
        let pinned = asking.pinned(&offer);
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
            pinned,
            client_model: asking.client_model(self.service.client_limits(), session),
        };
        let span = |operation| asking.shared.span(&operation, asking.trace);
        let predicting = span(Operation::Prediction);
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
            "a search was answered"
        );
        if let (OwnTool::Search, Some(safeguards)) = (tool, &asking.shared.safeguards) {
            let search = (asking.session, asking.received);
            safeguards.searched(search, &text, &reply.results);
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
        let (text, structured) = if reply.was_cached {
            given_before(&reply.text, &reply.structured)
        } else {
            (reply.text, reply.structured)
        };
        result(asking, &text, Some(&structured))
    }
}

/// Returns what a tool is to the safeguards.
fn kind_of(tool: OwnTool) -> OwnKind {
    match tool {
        OwnTool::Search => OwnKind::Search,
        OwnTool::SetContext => OwnKind::Context,
        OwnTool::CallTool | OwnTool::Recommend | OwnTool::RateTool | OwnTool::ReadMore => {
            OwnKind::Other
        }
    }
}

/// Returns the JSON text of a result that says what went wrong.
pub(in crate::proxy) fn failure(is_modern: bool, problem: &str) -> String {
    let kind = kind(is_modern);
    let text = Value::from(problem);
    format!(r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

pub(super) fn result(asking: &Asking<'_>, text: &str, structured: Option<&str>) -> String {
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
