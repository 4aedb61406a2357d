//! Calls of the own tools of the proxy. They are answered locally, or sent on as the calls that they
//! wrap.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::usage::invocation::SessionKey;

use super::aggregator::merged_list_fetch::FetchSelection;
use super::aggregator::merged_lists::taken_names;
use super::aggregator::route::RouteTarget;
use super::list_composer::ListComposer;
use super::list_kind::ListKind;
use super::list_template::{ListFetchError, ListTemplate};
use super::own_tools::{OwnTool, OwnTools, TakenNames, ToolCaller, failure, skills_of};
use super::request_params::RequestParams;
use super::session::ClientSession;
use super::session_jobs::Reply;
use crate::proxy::aggregator::merged_list_fetch::gather;
use crate::proxy::aggregator::route::{find_owner, target};
use crate::proxy::list_notices::review_list;
use crate::work_sessions::RequestKind;
use riglm_discovery::search::Catalog;

/// The own tools of the proxy in one session.
pub(super) struct LocalTools<'a> {
    session: &'a Arc<ClientSession>,
    tools: &'a OwnTools,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnToolCall<'a> {
    pub(super) tool: OwnTool,
    /// The call as a separate message, also if it came in a batch.
    pub(super) message: &'a Message,
    pub(super) id: &'a RequestId,
    pub(super) era: Era,
}

/// The catalog that an own tool works on.
struct ToolCatalog {
    /// The catalog, or the reason why there is none.
    catalog: Result<Arc<Catalog>, ListFetchError>,
    /// The own tools whose names upstreams use.
    taken: TakenNames,
}

impl<'a> LocalTools<'a> {
    pub(super) fn new(session: &'a Arc<ClientSession>, tools: &'a OwnTools) -> Self {
        Self { session, tools }
    }

    /// Answers a call of an own tool, or sends it to the upstream whose tool has that name. A
    /// wrapped call is handled like a direct one.
    pub(super) async fn answer(&self, call: OwnToolCall<'_>) -> Reply {
        let OwnToolCall { message, era, .. } = call;
        let session = self.session;
        let (received, received_at) = (Instant::now(), session.shared.recorder.now());
        let ToolCatalog { catalog, taken } = match self.catalog(call).await {
            Some(catalog) if !catalog.taken.has(call.tool) => catalog,
            _ => return self.pass_call(message, call.id).await,
        };
        let part = message.single();
        let params = part.and_then(|part| message.params(part));
        let useless = (session.shared).useless_own_tools(&session.client_context, params);
        let unusable = taken.and(useless);
        let unwrapped;
        let (own, params) = if call.tool == OwnTool::CallTool {
            let max_depth = session.shared.limits().message_depth;
            unwrapped = match self.tools.unwrap_call(params, max_depth) {
                Ok(params) => params,
                Err(problem) => return Reply::Result(failure(era, problem.as_str())),
            };
            let inner = RequestParams::read(Some(&unwrapped)).name();
            let inner = inner.and_then(|name| self.tools.tool_named(&name));
            // The wrapped call may itself be a call of an own tool, which is then answered locally.
            let Some(inner) = inner.filter(|inner| !unusable.has(*inner)) else {
                let unwrapped_call = message.with_params(&unwrapped).without_param_headers();
                return self.pass_call(&unwrapped_call, call.id).await;
            };
            (inner, Some(unwrapped.as_str()))
        } else {
            (call.tool, params)
        };
        let hints = message.hints();
        let row = session.client_context.session_id(&session.shared).await;
        let work_session = (session.client_context)
            .work_session(&session.shared, hints, RequestKind::Search, received_at)
            .await;
        let session_key = SessionKey::of(work_session, row);
        let listing = ListComposer {
            client_context: &session.client_context,
            shared: &session.shared,
            era,
        };
        let asking = ToolCaller {
            client_context: &session.client_context,
            shared: &session.shared,
            session: session_key,
            era,
            members: session.client_context.session_members(hints, era),
            shown: listing.current(session_key),
            skills: match own {
                OwnTool::Search | OwnTool::SetContext => skills_of(session, message, era).await,
                _ => None,
            },
            token_budget: hints.token_budget,
            vector: hints.embedding.as_ref(),
            trace: message.trace(),
            received,
            received_at,
            client: (&session.client, call.id),
        };
        let arguments = RequestParams::read(params).arguments();
        let catalog = catalog.map(|catalog| session.shared.catalog_for_models(&catalog));
        let result = self.tools.answer(&asking, own, arguments, catalog).await;
        review_list(session, session_key, era);
        Reply::Result(result)
    }

    /// Returns the catalog for a call. Returns `None` if the only upstream answers the call, because
    /// it has no other tools or uses the name of the own tool.
    async fn catalog(&self, call: OwnToolCall<'_>) -> Option<ToolCatalog> {
        let session = self.session;
        if let Some(only) = session.only_upstream() {
            let asked = only.catalog_for(self.tools, call.tool, call.message, call.era);
            let catalog = match call.tool {
                // The wrapped call must not wait long for a server that is slow to list its tools.
                OwnTool::CallTool => {
                    let limit = session.shared.limits().unite_timeout;
                    let asked = tokio::time::timeout(limit, asked).await;
                    asked.unwrap_or(Err(ListFetchError::Timeout))
                }
                _ => asked.await,
            };
            let known = only.tools.taken_names();
            return match catalog {
                Ok(Some(catalog)) => Some(ToolCatalog {
                    taken: known.and(self.tools.taken_in(&catalog)),
                    catalog: Ok(catalog),
                }),
                Ok(None) => {
                    only.tools.mark_name_taken(call.tool);
                    None
                }
                Err(reason) => Some(ToolCatalog {
                    catalog: Err(reason),
                    taken: known,
                }),
            };
        }
        let catalog = if let Some(catalog) = session.shared.catalog_of(&session.client_context) {
            Ok(catalog)
        } else {
            let template = ListTemplate::new(ListKind::Tools, call.message, call.era);
            match gather(session, &template, &FetchSelection::All).await {
                Ok(gathered) => gathered.catalog.ok_or(ListFetchError::NoList),
                Err(error) => Err(ListFetchError::Request(error.message)),
            }
        };
        let listed = session.aggregator.lists.last(ListKind::Tools);
        let taken = listed.map(|list| taken_names(self.tools, &list));
        Some(ToolCatalog {
            catalog,
            taken: taken.unwrap_or_default(),
        })
    }

    /// Sends a call to the upstream whose tool it names.
    async fn pass_call(&self, message: &Message, id: &RequestId) -> Reply {
        let session = self.session;
        if let Some(only) = session.only_upstream() {
            return Reply::Forward(only, message.clone());
        }
        match target(session, "tools/call", message) {
            RouteTarget::Upstream(member, message) => Reply::Forward(member, message),
            RouteTarget::Unknown => find_owner(session, message, id.clone()).await,
        }
    }
}

impl ClientSession {
    /// Returns the call that a message wraps, if it is known at once, or else the message
    /// unchanged. Calls in batches are separated first and unwrapped when they are answered.
    pub(super) fn unwrap_call(&self, message: Message) -> Message {
        let Some(tools) = self.shared.callable_own_tools(&self.client_context) else {
            return message;
        };
        let only = self.only_upstream();
        let taken =
            (only.as_ref()).map_or_else(TakenNames::default, |only| only.tools.taken_names());
        let catalog = || {
            let known = self.shared.catalog_of(&self.client_context);
            known.filter(|_| only.as_ref().is_none_or(|only| only.tools.has_tools()))
        };
        let max_depth = self.shared.limits().message_depth;
        let call = tools.wrapped_call(&message, max_depth, taken, catalog);
        call.unwrap_or(message)
    }
}
