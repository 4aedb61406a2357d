//! The dispatch of client messages: each request is answered by the session, or goes to the upstream
//! that it is for. With one upstream everything that the session does not answer passes verbatim.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::PROGRESS_TOKEN;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::admission::duplicate_id;
use super::aggregator::route::RouteTarget;
use super::batches::{request_alone, without_requests};
use super::client_context::AggregationMode;
use super::client_requests::Handler;
use super::list_composer::Page;
use super::list_kind::ListKind;
use super::local_tools::{LocalTools, OwnToolCall};
use super::own_tools::{OwnTool, OwnTools};
use super::request_params::{IdMember, RequestParams, id_member};
use super::session::ClientSession;
use super::session_app::{self, SESSION_APP};
use super::session_jobs::{Deadline, JobRequest, Reply};
use super::tool_lists::ToolLists;
use super::upstream_session::UpstreamSession;
use super::upstream_session::session_ended;
use crate::proxy::aggregator::all_upstreams::{list_tasks, set_level};
use crate::proxy::aggregator::initialize::{discover, initialize};
use crate::proxy::aggregator::listen::listen;
use crate::proxy::aggregator::merged_list_fetch::list_page;
use crate::proxy::aggregator::route::{find_owner, target};
use crate::proxy::aggregator::skills::{ask_for_skill, get_unprefixed_skill, skill_request};
use crate::selection::Lists;

/// A request that the session answers with one upstream as with several.
enum LocalRequest {
    /// A call of an own tool of the proxy.
    Tool(Arc<OwnTools>, OwnTool),
    /// A request for the tools, from which the session selects.
    ToolList(Arc<Lists>),
    /// A request for the page that shows the session.
    SessionApp,
}

impl ClientSession {
    /// Sends a message of the client on its way. Requests are always answered through the client
    /// link, if necessary with an error.
    ///
    /// # Errors
    ///
    /// Returns the reason why a message without requests could not be forwarded.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let message = self.unwrap_call(message);
        let refusal = if self.is_closed() {
            Some(session_ended())
        } else {
            self.form_error(&message)
        };
        if let Some(error) = refusal {
            return self.refuse(&message, error).await.map(|()| None);
        }
        let mut parts = message.envelopes().iter();
        if parts.any(|part| part.method() == Some("tools/list")) {
            // Before the list is selected: a change in between leads to a notification.
            let n_changes = self.shared.selection.n_changes();
            self.client_context.note_selection(n_changes);
        }
        if message.is_batch() {
            return self.dispatch_batch(message).await;
        }
        if let Some(only) = self.only_upstream()
            && self.passes_verbatim(&message)
        {
            return only.receive(message).await;
        }
        let Some(envelope) = message.single().cloned() else {
            return Ok(None);
        };
        match envelope.kind() {
            MessageKind::Request => match self.request(&message, &envelope).await {
                Ok(exchange) => Ok(exchange),
                Err(error) => self.refuse(&message, error).await.map(|()| None),
            },
            MessageKind::Notification => self.notification(message, &envelope).await,
            MessageKind::Success | MessageKind::Failure => self.response(message, &envelope).await,
        }
    }

    /// Returns the error for a message whose form is not allowed in this session.
    fn form_error(&self, message: &Message) -> Option<RpcError> {
        let invalid = |text: &str| Some(RpcError::new(RpcErrorCode::InvalidRequest, text));
        let is_batch = message.is_batch();
        if is_batch && self.only_upstream().is_none() {
            return Some(batch_of_several());
        }
        if !message.envelopes().iter().all(Envelope::is_version_2) {
            return invalid(r#"a message must have "jsonrpc": "2.0""#);
        }
        if !is_batch {
            return None;
        }
        let mut ids = HashSet::new();
        if !message.request_ids().all(|id| ids.insert(id)) {
            return Some(duplicate_id());
        }
        let revision = self.client_context.revision();
        if revision.is_some_and(|revision| !revision.allows_batches()) {
            return invalid("the revision of this session does not support JSON-RPC batches");
        }
        None
    }

    /// Returns the upstream session whose messages pass verbatim.
    pub(super) fn only_upstream(&self) -> Option<Arc<UpstreamSession>> {
        match self.client_context.aggregation() {
            AggregationMode::Verbatim => self.members().first().cloned(),
            AggregationMode::Merged => None,
        }
    }

    /// Returns whether a message of the client is for the only upstream alone. The parameters are
    /// read only if a call may be one of an own tool.
    fn passes_verbatim(&self, message: &Message) -> bool {
        message
            .single()
            .is_some_and(|part| match part.as_request() {
                Some((method, _)) => self.local_request(method, message, part).is_none(),
                // A cancellation may be for a request that the session answers.
                None => part.method() != Some("notifications/cancelled"),
            })
    }

    /// Answers the requests of a batch that the session answers, and forwards the rest.
    async fn dispatch_batch(
        self: &Arc<Self>,
        batch: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let Some(only) = self.only_upstream() else {
            // A reload just made it several upstreams.
            return self.refuse(&batch, batch_of_several()).await.map(|()| None);
        };
        let mut local = Vec::new();
        for part in batch.envelopes() {
            if let Some((method, id)) = part.as_request() {
                let Some(request) = self.local_request(method, &batch, part) else {
                    continue;
                };
                let alone = request_alone(&batch, part).unwrap_or_else(|| batch.clone());
                let n_bytes = batch
                    .raw()
                    .len()
                    .div_ceil(batch.request_ids().count().max(1));
                let job = self.check_meta(method, &batch, part).and_then(|era| {
                    let job = JobRequest {
                        id,
                        method,
                        n_bytes,
                        is_local: self.needs_no_upstream(&request),
                    };
                    self.answer_locally(request, job, &alone, era)
                });
                match job {
                    Ok(exchange) => local.push((id.clone(), exchange)),
                    Err(error) => return self.refuse(&batch, error).await.map(|()| None),
                }
            } else if part.method() == Some("notifications/cancelled")
                && let Some(id) = id_member(batch.params(part), IdMember::RequestId)
            {
                self.cancel_job(&id);
            }
        }
        if local.is_empty() {
            return only.receive(batch).await;
        }
        let (ids, jobs): (Vec<RequestId>, Vec<Exchange>) = local.into_iter().unzip();
        let mut forwarded = None;
        if let Some(rest) = without_requests(&batch, &ids) {
            // If the rest contains no requests, an error concerns no request of the client and is
            // only logged.
            let passed = only.receive(rest).await;
            forwarded = passed.unwrap_or_else(|error| {
                tracing::debug!("failed to forward a batch: {}", error.message);
                None
            });
        }
        let jobs = join_all(jobs.into_iter().map(|job| job.run));
        Ok(Some(match forwarded {
            Some(forwarded) => Exchange {
                run: Box::pin(async move {
                    tokio::join!(forwarded.run, jobs);
                }),
                on_its_way: forwarded.on_its_way,
            },
            None => Exchange {
                run: Box::pin(async move {
                    jobs.await;
                }),
                on_its_way: Box::pin(std::future::ready(())),
            },
        }))
    }

    /// Returns the request if the session answers it with one upstream as with several.
    fn local_request(
        &self,
        method: &str,
        message: &Message,
        part: &Envelope,
    ) -> Option<LocalRequest> {
        match method {
            "tools/call" => {
                let (tools, tool) = self.own_tool(message, part)?;
                Some(LocalRequest::Tool(Arc::clone(tools), tool))
            }
            "tools/list" => {
                let lists = self.lists_for_page(message.params(part))?;
                Some(LocalRequest::ToolList(Arc::clone(lists)))
            }
            "resources/read" => {
                (self.is_for_session_app(message, part)).then_some(LocalRequest::SessionApp)
            }
            _ => None,
        }
    }

    /// Returns whether a request to read a resource is for the page that shows the session.
    fn is_for_session_app(&self, message: &Message, part: &Envelope) -> bool {
        let is_its_uri = || {
            let uri = RequestParams::of(message, part).uri();
            uri.as_deref() == Some(SESSION_APP)
        };
        self.shared.has_session_app()
            && is_its_uri()
            && self.client_context.shows_apps(message.params(part))
    }

    /// Returns the selection that a request for a page of tools with these parameters is answered
    /// from; `None` if the list is not selected. A client that was paging through a list when the
    /// proxy was paused or resumed gets the other pages of that list.
    fn lists_for_page(&self, params: Option<&str>) -> Option<&Arc<Lists>> {
        let selection = &self.shared.selection;
        let cursor = params.and_then(|params| edit::member(params, "cursor"));
        let Some(cursor) = cursor.and_then(unescape) else {
            return selection.lists();
        };
        if selection.lists().is_none() {
            let is_of_selection =
                Page::is_cursor(&cursor) && self.client_context.was_shown_selection();
            return selection.all_lists().filter(|_| is_of_selection);
        }
        let is_of_whole_list = !Page::is_cursor(&cursor)
            && match self.only_upstream() {
                Some(only) => only.tools.expects_cursor(&cursor),
                None => self.aggregator.lists.has_cursor(&cursor),
            };
        selection.lists().filter(|_| !is_of_whole_list)
    }

    /// Checks the metadata of a request that the session answers or routes, and stores the
    /// description of its client. Returns the era of the request.
    fn check_meta(
        &self,
        method: &str,
        message: &Message,
        part: &Envelope,
    ) -> Result<Era, RpcError> {
        let Some(meta) = RequestParams::of(message, part).protocol_meta() else {
            return Ok(Era::Legacy);
        };
        meta.check_revision()?;
        meta.check_complete(method)?;
        self.client_context.set_request_description(&meta);
        Ok(Era::Modern)
    }

    /// Returns the own tool that a call with these parameters names, unless the only upstream is
    /// known to use the name, or the client has no use for the tool.
    fn own_tool(&self, message: &Message, part: &Envelope) -> Option<(&Arc<OwnTools>, OwnTool)> {
        let tools = self.shared.callable_own_tools(&self.client_context)?;
        let own = tools.tool_named(&RequestParams::of(message, part).name()?)?;
        let only = self.only_upstream();
        let is_taken = only.is_some_and(|only| only.tools.taken_names().has(own));
        let is_useless =
            own == OwnTool::ShowSession && !self.client_context.shows_apps(message.params(part));
        (!is_taken && !is_useless).then_some((tools, own))
    }

    /// Returns whether a local request is answered without asking an upstream.
    fn needs_no_upstream(&self, request: &LocalRequest) -> bool {
        match request {
            LocalRequest::Tool(..) => self.client_context.search.complete_catalog().is_some(),
            LocalRequest::ToolList(_) => {
                let only = self.only_upstream();
                only.is_some_and(|only| only.tools.known_list().is_some())
            }
            LocalRequest::SessionApp => true,
        }
    }

    /// Returns the deadline of answers that may need the list of the only upstream. With several
    /// upstreams each fan-out has a deadline.
    fn deadline_of_local_answers(&self) -> Option<Deadline> {
        let only = self.only_upstream()?;
        Some(Deadline {
            limit: self.shared.limits().call_timeout,
            upstream: only.name().clone(),
        })
    }

    /// Returns the exchange that answers a request locally.
    fn answer_locally(
        self: &Arc<Self>,
        local: LocalRequest,
        job: JobRequest<'_>,
        message: &Message,
        era: Era,
    ) -> Result<Exchange, RpcError> {
        let (session, message, id) = (Arc::clone(self), message.clone(), job.id.clone());
        let deadline = self.deadline_of_local_answers();
        match local {
            LocalRequest::Tool(tools, tool) => self.run_job_before(job, deadline, async move {
                let call = OwnToolCall {
                    tool,
                    message: &message,
                    id: &id,
                    era,
                };
                LocalTools::new(&session, &tools).answer(call).await
            }),
            LocalRequest::ToolList(lists) => self.run_job_before(job, deadline, async move {
                let lists = ToolLists::new(&session, &lists);
                lists.selected_page(&message, era).await
            }),
            LocalRequest::SessionApp => {
                let name = self.shared.session_app_tool().unwrap_or_default();
                let page = session_app::contents(era, name);
                self.run_job(job, async move { Reply::Result(page) })
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<Option<Exchange>, RpcError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(None);
        };
        let params = message.params(envelope);
        let local = self.local_request(method, message, envelope);
        let era = self.check_meta(method, message, envelope)?;
        let request = JobRequest {
            id,
            method,
            n_bytes: message.raw().len(),
            is_local: (local.as_ref()).is_some_and(|local| self.needs_no_upstream(local)),
        };
        if let Some(local) = local {
            return self.answer_locally(local, request, message, era).map(Some);
        }
        let session = Arc::clone(self);
        let (message, own) = (message.clone(), id.clone());
        if let Some(kind) = ListKind::of_method(method) {
            let job = async move { list_page(&session, kind, &message, era).await };
            return self.run_job(request, job).map(Some);
        }
        if let Some(skill) = skill_request(self, method, params.unwrap_or_default()) {
            let job = async move { ask_for_skill(&session, skill, &message, own).await };
            return self.run_job(request, job).map(Some);
        }
        match method {
            "initialize" => {
                let job = async move { initialize(&session, &message).await };
                self.run_job(request, job).map(Some)
            }
            "server/discover" => {
                let job = async move { discover(&session, &message).await };
                self.run_job(request, job).map(Some)
            }
            "ping" if era == Era::Legacy => self
                .run_job(request, async { Reply::Result("{}".into()) })
                .map(Some),
            "logging/setLevel" => {
                let job = async move { set_level(&session, &message, own).await };
                self.run_job(request, job).map(Some)
            }
            "skills/get" => {
                let job = async move { get_unprefixed_skill(&session, &message, own).await };
                self.run_job(request, job).map(Some)
            }
            "tasks/list" => {
                let job = async move { list_tasks(&session, &message, own).await };
                self.run_job(request, job).map(Some)
            }
            "subscriptions/listen" => {
                let cancel = CancellationToken::new();
                let job = listen(&session, &message, own, cancel.clone());
                self.run_job_until(request, cancel, job).map(Some)
            }
            _ => match target(self, method, &message) {
                RouteTarget::Upstream(member, message) if member.is_connected() => {
                    member.receive(message).await
                }
                RouteTarget::Upstream(member, message) => {
                    // Connecting may take long. The next message may be for a connected upstream
                    // and must not wait.
                    let job = async move { Reply::Forward(member, message) };
                    self.run_job(request, job).map(Some)
                }
                RouteTarget::Unknown => {
                    let job = async move { find_owner(&session, &message, own).await };
                    self.run_job(request, job).map(Some)
                }
            },
        }
    }

    /// Forwards a notification to the upstreams that it concerns.
    async fn notification(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
    ) -> Result<Option<Exchange>, RpcError> {
        let params = message.params(envelope);
        let cancelled = (envelope.method() == Some("notifications/cancelled"))
            .then(|| id_member(params, IdMember::RequestId))
            .flatten();
        if cancelled.as_ref().is_some_and(|id| self.cancel_job(id)) {
            return Ok(None);
        }
        if let Some(only) = self.only_upstream() {
            return only.receive(message).await;
        }
        match envelope.method() {
            Some("notifications/cancelled") => {
                if let Some(id) = cancelled {
                    self.cancel(&id, message).await;
                }
            }
            Some("notifications/progress") => {
                let token = id_member(params, IdMember::ProgressToken);
                let asked = token.and_then(|token| self.aggregator.server_requests.get(&token));
                if let Some((number, Some(token))) = asked
                    && let Some(params) = params
                    && let Some(member) = self.member_by_number(number)
                {
                    let params = edit::with_member(params, PROGRESS_TOKEN, &token.to_json());
                    member.receive(message.with_params(&params)).await?;
                }
            }
            _ => {
                let members = self.members();
                let told = members.iter().map(|member| {
                    let message = message.clone();
                    async move {
                        // A failure for one upstream must not keep the others from the
                        // notification.
                        if let Err(error) = member.receive(message).await {
                            let name = member.name();
                            tracing::debug!(
                                upstream = %name,
                                "failed to forward a notification to upstream {name}: {}",
                                error.message
                            );
                        }
                    }
                });
                join_all(told).await;
            }
        }
        Ok(None)
    }

    /// Cancels a request that the session answers itself. Returns whether it was one.
    fn cancel_job(&self, id: &RequestId) -> bool {
        match self.client_context.requests.handler(id) {
            Some(Handler::Session(cancel) | Handler::Passed(_, cancel)) => {
                cancel.cancel();
                true
            }
            Some(Handler::Upstream(_)) | None => false,
        }
    }

    /// Cancels a request that an upstream answers.
    async fn cancel(self: &Arc<Self>, id: &RequestId, message: Message) {
        let members = match self.client_context.requests.handler(id) {
            Some(Handler::Upstream(number)) => Vec::from_iter(self.member_by_number(number)),
            // The request may just be on its way to an upstream.
            Some(Handler::Session(_) | Handler::Passed(..)) | None => self.all_members(),
        };
        for member in members {
            if let Err(error) = member.receive(message.clone()).await {
                tracing::debug!("failed to forward a cancellation: {}", error.message);
            }
        }
    }

    /// Forwards an answer of the client to the upstream that asked.
    async fn response(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
    ) -> Result<Option<Exchange>, RpcError> {
        let Some(id) = envelope.id() else {
            return Ok(None);
        };
        let asked = self.aggregator.server_requests.take(id);
        let (member, message) = if let Some((number, asked)) = asked {
            (self.member_by_number(number), message.with_id(&asked))
        } else {
            // The request may be from a time when there was only one upstream.
            let members = self.all_members();
            let mut asking = members.iter().filter(|member| member.has_asked(id));
            (asking.next().cloned(), message)
        };
        match member {
            Some(member) => member.receive(message).await.map(|_| None),
            None => Ok(None),
        }
    }

    /// Returns the upstream session with this number, also a removed one whose requests are still
    /// ending.
    pub(super) fn member_by_number(&self, number: u64) -> Option<Arc<UpstreamSession>> {
        let mut members = self.all_members().into_iter();
        members.find(|member| member.number == number)
    }
}

/// Returns the error for a batch in a session with several upstreams.
fn batch_of_several() -> RpcError {
    RpcError::new(
        RpcErrorCode::InvalidRequest,
        "JSON-RPC batches are not supported with several upstreams",
    )
}
