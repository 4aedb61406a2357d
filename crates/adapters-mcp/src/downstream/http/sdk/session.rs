//! The session of one agent: an MCP client of an earlier revision, inside the process, whose
//! requests take the same way as those of any client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::RwLock;
use riglm_app::proxy::{ClientSession, ReservedMemory};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_ports::downstream::{ClientLink, Route};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore};

use super::definitions::{Definitions, ToolDefinition};
use super::provider::Provider;
use super::tool_array::ToolArray;
use crate::downstream::http::memory_reservation::LinkSession;
use crate::downstream::http::modern::{Answer, ModernLink, PendingCall};
use crate::downstream::http::streamable;

/// The maximum number of answers to requests of servers that are on their way.
const MAX_ANSWERS: usize = 16;
/// The maximum number of pages of a list.
const MAX_PAGES: usize = 1_000;

/// The properties of an HTTP request that its messages carry.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestProperties {
    pub(super) hints: RequestHints,
    pub(super) trace: Option<Arc<TraceContext>>,
}

#[derive(Debug)]
pub(super) struct RequestResult {
    pub(super) text: String,
    /// The memory reservation of its size, to be kept as long as the text or what is made of it.
    pub(super) room: Option<ReservedMemory>,
}

/// The reason why a request of an agent has no result.
#[derive(Clone, Debug)]
pub(super) struct RequestError {
    /// The code of the JSON-RPC error; `None` if no answer came.
    pub(super) code: Option<i32>,
    pub(super) message: String,
}

impl RequestError {
    fn without_answer(message: &str) -> Self {
        Self {
            code: None,
            message: message.to_owned(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Debug, Serialize)]
struct ListParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a RawValue>,
}

#[derive(Debug)]
pub(super) struct AgentSession {
    session: Arc<ClientSession>,
    link: Arc<AgentLink>,
    provider: Provider,
    next_id: AtomicU64,
    handshake: OnceCell<()>,
    tools: RwLock<Arc<ToolArray>>,
    /// Held while a list is fetched and taken over, so that lists have one order.
    fetching: Mutex<()>,
    definitions: Arc<Definitions>,
}

impl AgentSession {
    pub(super) fn new(
        session: Arc<ClientSession>,
        link: Arc<AgentLink>,
        provider: Provider,
        definitions: Arc<Definitions>,
    ) -> Self {
        link.session.set(&session);
        session.note_loads_on_demand();
        Self {
            session,
            link,
            provider,
            next_id: AtomicU64::new(1),
            handshake: OnceCell::new(),
            tools: RwLock::default(),
            fetching: Mutex::default(),
            definitions,
        }
    }

    pub(super) fn session(&self) -> &Arc<ClientSession> {
        &self.session
    }

    /// Returns the link that receives the answers to its requests.
    pub(super) fn responses(&self) -> &ModernLink {
        &self.link.responses
    }

    /// Makes the handshake, if it is not made yet. If it fails, the session ends.
    ///
    /// # Errors
    ///
    /// Returns the error of the upstream or of the proxy.
    pub(super) async fn shake_hands(
        self: &Arc<Self>,
        properties: &RequestProperties,
    ) -> Result<(), RequestError> {
        if self.handshake.initialized() {
            return Ok(());
        }
        // On a separate task: a handshake must not be cut off when the agent leaves.
        let (agent, properties) = (Arc::clone(self), properties.clone());
        let shaking = tokio::spawn(async move {
            let shaken = agent
                .handshake
                .get_or_try_init(|| agent.initialize(&properties))
                .await;
            if shaken.is_err() {
                agent.session.close().await;
            }
            shaken.copied()
        });
        shaking
            .await
            .unwrap_or_else(|_| Err(RequestError::without_answer("failed to open a session")))
    }

    async fn initialize(&self, properties: &RequestProperties) -> Result<(), RequestError> {
        let params = json!({
            "protocolVersion": Revision::NEWEST_LEGACY,
            "capabilities": {},
            "clientInfo": self.provider.client_info(),
        });
        self.request(method::INITIALIZE, &params, properties)
            .await?;
        let text = json!({"jsonrpc": "2.0", "method": method::NOTIFICATIONS_INITIALIZED});
        let Ok(message) = Message::from_text(text.to_string()) else {
            return Ok(());
        };
        let sent = streamable::forward(Arc::clone(&self.session), message).await;
        sent.map_err(|error| RequestError {
            code: Some(error.code.code()),
            message: error.message,
        })
    }

    /// Sends a request and returns its result. Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// Returns the error that answers it, or that no answer came.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        properties: &RequestProperties,
    ) -> Result<RequestResult, RequestError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request {
            jsonrpc: "2.0",
            id,
            method,
            params,
        };
        let text = serde_json::to_string(&request)
            .map_err(|_| RequestError::without_answer("the request cannot be written"))?;
        let message = Message::from_text(text).map_err(|error| RequestError {
            code: Some(RpcErrorCode::InvalidRequest.code()),
            message: error.to_string(),
        })?;
        let message = message
            .with_hints(properties.hints.clone())
            .with_trace(properties.trace.clone());
        let (session, link) = (Arc::clone(&self.session), Arc::clone(&self.link.responses));
        let (call, message) =
            PendingCall::open(session, link, message).ok_or_else(|| RequestError {
                code: Some(RpcErrorCode::SessionNotFound.code()),
                message: "the session has ended; send the request again".to_owned(),
            })?;
        let patience = self.link.responses.patience();
        let answer = tokio::time::timeout(patience, call.complete(message)).await;
        let Some(Answer { data, room }) = answer.ok().flatten() else {
            return Err(RequestError::without_answer("the request was not answered"));
        };
        read_answer(&data).map(|text| RequestResult { text, room })
    }

    /// Takes over the current list and returns the tools of the agent.
    ///
    /// # Errors
    ///
    /// Returns the error of the list.
    pub(super) async fn list(
        &self,
        properties: &RequestProperties,
    ) -> Result<Arc<ToolArray>, RequestError> {
        let fetching = self.fetching.lock().await;
        self.take_over(&fetching, properties).await
    }

    /// Returns the tools of the agent as it got them last, or the current ones if it got none.
    ///
    /// # Errors
    ///
    /// Returns the error of the list.
    pub(super) async fn known_tools(
        &self,
        properties: &RequestProperties,
    ) -> Result<Arc<ToolArray>, RequestError> {
        if let Some(known) = self.last_tools() {
            return Ok(known);
        }
        let fetching = self.fetching.lock().await;
        match self.last_tools() {
            Some(known) => Ok(known),
            None => self.take_over(&fetching, properties).await,
        }
    }

    fn last_tools(&self) -> Option<Arc<ToolArray>> {
        let tools = Arc::clone(&self.tools.read());
        tools.is_listed().then_some(tools)
    }

    async fn take_over(
        &self,
        _fetching: &MutexGuard<'_, ()>,
        properties: &RequestProperties,
    ) -> Result<Arc<ToolArray>, RequestError> {
        let listed = self.fetch(properties).await?;
        let chosen = self.session.tools_loaded_at_once();
        let is_gone = |tool: &ToolDefinition| self.session.is_gone(tool.name(), tool.text());
        let known = Arc::clone(&self.tools.read());
        let own = self.session.own_tool_names();
        let tools = Arc::new(known.with_list(listed, &own, chosen.as_ref(), is_gone));
        *self.tools.write() = Arc::clone(&tools);
        Ok(tools)
    }

    /// Fetches all pages of the current list.
    async fn fetch(
        &self,
        properties: &RequestProperties,
    ) -> Result<Vec<Arc<ToolDefinition>>, RequestError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct List<'a> {
            #[serde(borrow)]
            tools: Vec<&'a RawValue>,
            #[serde(borrow)]
            next_cursor: Option<&'a RawValue>,
        }
        let mut listed = Vec::new();
        // The reservations of the pages, until all are read.
        let mut rooms = Vec::new();
        // As it came: a cursor is opaque, and some servers compare its bytes.
        let mut cursor: Option<Box<RawValue>> = None;
        for _ in 0..MAX_PAGES {
            let params = ListParams {
                cursor: cursor.as_deref(),
            };
            let requested = self.request(method::TOOLS_LIST, &params, properties);
            let result = requested.await?;
            let page: List<'_> = serde_json::from_str(&result.text)
                .map_err(|_| RequestError::without_answer("the list of tools cannot be read"))?;
            let tools = page.tools.iter();
            listed.extend(tools.filter_map(|tool| self.definitions.share(tool.get())));
            cursor = page.next_cursor.map(RawValue::to_owned);
            rooms.push(result.room);
            if cursor.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}

fn read_answer(answer: &[u8]) -> Result<String, RequestError> {
    let unreadable = || RequestError::without_answer("the answer cannot be read");
    let text = std::str::from_utf8(answer).map_err(|_| unreadable())?;
    if let Some(result) = member(text, "result") {
        return Ok(result.to_owned());
    }
    let error = member(text, "error").ok_or_else(unreadable)?;
    let message = member(error, "message").and_then(unescape);
    Err(RequestError {
        code: member(error, "code").and_then(|code| code.parse().ok()),
        message: message.unwrap_or_default().into_owned(),
    })
}

/// The link to an agent. Answers go to the request that waits for them. Requests of servers get an
/// answer at once, because an agent declares no capabilities.
#[derive(Debug)]
pub(in super::super) struct AgentLink {
    responses: Arc<ModernLink>,
    session: LinkSession,
    /// The permits of the answers to requests of servers.
    answers: Arc<Semaphore>,
}

impl AgentLink {
    /// Returns a link whose answers go to `responses`.
    pub(in super::super) fn new(responses: Arc<ModernLink>) -> Self {
        Self {
            responses,
            session: LinkSession::default(),
            answers: Arc::new(Semaphore::new(MAX_ANSWERS)),
        }
    }

    /// Answers a request of a server. A server that sends further ones faster than it reads answers
    /// gets none to them.
    fn answer(&self, message: &Message) {
        let Some(session) = self.session.get() else {
            return;
        };
        let Some((method, id)) = message.single().and_then(|part| part.as_request()) else {
            return;
        };
        let answer = if method == method::PING {
            Message::success(id, "{}")
        } else {
            let text = "agents on an SDK answer no requests";
            RpcError::new(RpcErrorCode::MethodNotFound, text).to_message(Some(id))
        };
        let Ok(permit) = Arc::clone(&self.answers).try_acquire_owned() else {
            tracing::debug!("ignored a request of a server: too many answers are on their way");
            return;
        };
        tokio::spawn(async move {
            if let Err(error) = session.receive(answer).await {
                tracing::debug!("failed to answer a server: {}", error.message);
            }
            drop(permit);
        });
    }
}

#[async_trait]
impl ClientLink for AgentLink {
    async fn deliver(&self, message: Message, route: Route) {
        let part = message.single();
        if part.is_some_and(|part| part.kind() == MessageKind::Request) {
            self.answer(&message);
        } else {
            self.responses.deliver(message, route).await;
        }
    }

    async fn finish(&self, request: &RequestId) {
        self.responses.finish(request).await;
    }

    async fn close(&self) {
        self.responses.close().await;
    }
}
