//! The provider-native face: the tools of an agent in the request format of a model provider, and
//! the searches and calls of its model as blocks of that provider.
//!
//! An agent that is built on the SDK of a provider needs no MCP client. Each agent has an ordinary
//! session of the proxy, so its lists, searches and calls are selected, authorized, limited and
//! recorded as those of an MCP client.

mod admission;
mod agents;
mod anthropic;
mod block;
mod content;
mod definitions;
mod names;
mod openai;
mod problem;
mod provider;
mod schema;
mod session;
mod tool_array;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use riglm_app::proxy::{N_SCHEMAS, ReservedMemory};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::admission::{AdmittedRequest, Endpoint, PathName};
use self::block::{BlockKind, BlockRequest, FoundTools, Outcome, RequestForm, ToolBlock};
use self::content::ToolOutput;
use self::problem::Problem;
use self::provider::{SearchMode, changed_names};
use self::session::{AgentSession, RequestError, RequestResult};
use self::tool_array::{AgentTool, Loading, ToolArray};
use super::port::ServerState;
use super::reply;

pub(super) use agents::Agents;
#[cfg(test)]
pub(super) use session::AgentLink;

pub(super) fn routes() -> Router<Arc<ServerState>> {
    let route = |endpoint| {
        any(
            move |State(port): State<Arc<ServerState>>,
                  provider: PathName,
                  request: Request<Body>| serve(endpoint, port, provider, request),
        )
    };
    Router::new()
        .route("/sdk/{provider}", route(Endpoint::List))
        .route("/sdk/{provider}/search", route(Endpoint::Search))
        .route("/sdk/{provider}/call", route(Endpoint::Call))
}

/// Serves a request of an agent.
async fn serve(
    endpoint: Endpoint,
    port: Arc<ServerState>,
    provider: PathName,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let answered = async {
        let request = AdmittedRequest::admit(port, endpoint, provider, &head)?;
        if endpoint == Endpoint::List {
            let agent = request.session().await?;
            let request = AgentRequest { request, agent };
            return request.tool_list(&head.headers).await;
        }
        let asked = request.read_blocks(endpoint, &head.headers, body).await?;
        let agent = request.session().await?;
        let request = AgentRequest { request, agent };
        if endpoint == Endpoint::Search {
            request.check_searchable().await?;
        }
        request.answer_all(endpoint, &asked).await
    };
    answered.await.unwrap_or_else(IntoResponse::into_response)
}

/// An admitted request of an agent, whose session is open.
#[derive(Debug)]
struct AgentRequest {
    request: AdmittedRequest,
    agent: Arc<AgentSession>,
}

/// The answer to a request for tools.
#[derive(Debug, Serialize)]
struct AgentList<'a> {
    provider: &'static str,
    search: Option<&'static str>,
    loaded: usize,
    deferred: usize,
    names: Map<String, Value>,
    tools: Vec<Cow<'a, RawValue>>,
}

#[derive(Debug, Serialize)]
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

#[derive(Debug)]
struct BlockAnswer {
    outcome: Outcome,
    /// The memory reservation of the outcome.
    room: Option<ReservedMemory>,
}

impl BlockAnswer {
    /// Returns an answer that came from no server.
    fn failure(text: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Output(ToolOutput::failure(text)),
            room: None,
        }
    }
}

impl From<RequestError> for BlockAnswer {
    fn from(error: RequestError) -> Self {
        Self::failure(error.message)
    }
}

impl AgentRequest {
    async fn tool_list(&self, headers: &HeaderMap) -> Result<Response, Problem> {
        let (provider, options) = (self.request.provider, self.request.options);
        let array = self.agent.list(&self.request.properties).await?;
        let mode = self.search_mode(&array)?;
        let is_listed = |tool: &&AgentTool| {
            let is_omitted = options.omits_deferred && mode == SearchMode::Riglm;
            tool.loading == Loading::Loaded || !is_omitted
        };
        // With nothing to load, the search tool is a tool like any other.
        let facility = if array.has_deferred() {
            provider.search_facility(mode, &array)
        } else {
            array.search().map(|tool| tool.for_provider(provider))
        };
        let is_loaded = |tool: &&AgentTool| tool.loading == Loading::Loaded;
        let n_loaded = array.tools().iter().filter(is_loaded).count();
        let tools = array.tools().iter().filter(is_listed);
        let tools = tools.map(|tool| tool.for_provider(provider));
        let list = AgentList {
            provider: provider.name(),
            search: array.has_deferred().then(|| mode.name()),
            loaded: n_loaded,
            deferred: array.tools().len() - n_loaded,
            names: changed_names(&array),
            tools: facility.into_iter().chain(tools).collect(),
        };
        let text = serde_json::to_string(&list)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(tagged_response(text, headers))
    }

    /// Returns the way to search: the wanted one, or riglm, or the provider's if riglm has no search
    /// tool.
    fn search_mode(&self, array: &ToolArray) -> Result<SearchMode, Problem> {
        let has_own = array.search().is_some();
        match self.request.options.search {
            Some(SearchMode::Riglm) if !has_own && array.has_deferred() => {
                Err(Problem::new(StatusCode::CONFLICT, NO_SEARCH))
            }
            Some(mode) => Ok(mode),
            None if has_own => Ok(SearchMode::Riglm),
            None => Ok(self.request.provider.own_search()),
        }
    }

    async fn check_searchable(&self) -> Result<(), Problem> {
        let array = self.agent.known_tools(&self.request.properties).await?;
        match array.search() {
            Some(_) => Ok(()),
            None => Err(Problem::new(StatusCode::CONFLICT, NO_SEARCH)),
        }
    }

    /// Answers all blocks at the same time.
    async fn answer_all(
        &self,
        endpoint: Endpoint,
        asked: &BlockRequest,
    ) -> Result<Response, Problem> {
        let answers = asked.blocks.iter().map(|block| async move {
            let answer = match endpoint {
                Endpoint::Search => self.search(block).await,
                Endpoint::List | Endpoint::Call => self.answer(block).await,
            };
            answer.unwrap_or_else(|failure| failure)
        });
        let answers = join_all(answers).await;
        let array = self.agent.known_tools(&self.request.properties).await?;
        let text = self.body(asked, &answers, &array).to_string();
        let rooms = answers.into_iter().filter_map(|answer| answer.room);
        let text = ReservedText {
            text,
            _rooms: rooms.collect(),
        };
        Ok(reply::json(StatusCode::OK, Bytes::from_owner(text)))
    }

    /// Returns the results in the form in which the blocks came.
    fn body(&self, asked: &BlockRequest, answers: &[BlockAnswer], array: &ToolArray) -> Value {
        let provider = self.request.provider;
        if asked.form == RequestForm::Arguments
            && let [answer] = answers
            && let Outcome::Found(found) = &answer.outcome
        {
            return provider.search_content(found, array);
        }
        let results = std::iter::zip(&asked.blocks, answers);
        let mut results = results.map(|(block, it)| provider.result(block, &it.outcome, array));
        match asked.form {
            RequestForm::Many => results.collect(),
            RequestForm::One | RequestForm::Arguments => results.next().unwrap_or_default(),
        }
    }

    /// Answers a block: a search, or a call. An answer that came from no server is an error.
    async fn answer(&self, block: &ToolBlock) -> Result<BlockAnswer, BlockAnswer> {
        if block.kind == BlockKind::Search {
            return self.search(block).await;
        }
        let array = self.agent.known_tools(&self.request.properties).await?;
        let is_search = |tool: &AgentTool| tool.provider_name() == block.name;
        if array.search().is_some_and(is_search) {
            return self.search(block).await;
        }
        match array.by_provider_name(&block.name) {
            Some(tool) => {
                let provider = self.request.provider;
                let arguments = provider.server_arguments(tool, &block.arguments);
                self.call(tool.name(), &arguments).await
            }
            // A tool that the list hides can be called, as by every client.
            None => self.call(&block.name, &block.arguments).await,
        }
    }

    /// Calls a tool by its name in lists.
    async fn call(&self, name: &str, arguments: &str) -> Result<BlockAnswer, BlockAnswer> {
        let RequestResult { text, room } = self.request_call(name, arguments).await?;
        let outcome = Outcome::Output(ToolOutput::read(&text));
        Ok(BlockAnswer { outcome, room })
    }

    async fn search(&self, block: &ToolBlock) -> Result<BlockAnswer, BlockAnswer> {
        let array = self.agent.known_tools(&self.request.properties).await?;
        let Some(search) = array.search() else {
            return Err(BlockAnswer::failure(NO_SEARCH));
        };
        let found = self.request_call(search.name(), &block.arguments).await?;
        let RequestResult { text, room } = found;
        let output = ToolOutput::read(&text);
        let outcome = if output.is_error {
            Outcome::Output(output)
        } else {
            // A found tool becomes a definition in the prompt.
            let limit = member(&block.arguments, "limit").and_then(|n| n.parse().ok());
            let names = found_names(&text, limit.unwrap_or(N_SCHEMAS));
            Outcome::Found(FoundTools { names, output })
        };
        Ok(BlockAnswer { outcome, room })
    }

    /// Sends a call. Returns its result, or the answer if there is none.
    async fn request_call(
        &self,
        name: &str,
        arguments: &str,
    ) -> Result<RequestResult, BlockAnswer> {
        let arguments = object(arguments)?;
        let params = CallParams { name, arguments };
        let properties = &self.request.properties;
        let called = self.agent.request(method::TOOLS_CALL, &params, properties);
        Ok(called.await?)
    }
}

/// A text of which servers sent parts, and the memory reservations of these parts.
struct ReservedText {
    text: String,
    _rooms: Vec<ReservedMemory>,
}

impl AsRef<[u8]> for ReservedText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The answer if riglm cannot search.
const NO_SEARCH: &str = "riglm has no search tool for this agent: lists hide nothing, or search is \
                         disabled (filtering.strategy, search.enabled)";

/// Returns the JSON text of the arguments of a call, or the answer to a block that has none.
fn object(arguments: &str) -> Result<&RawValue, BlockAnswer> {
    let arguments: &RawValue = serde_json::from_str(arguments)
        .map_err(|error| BlockAnswer::failure(format!("The arguments are not JSON: {error}")))?;
    if arguments.get().starts_with('{') {
        Ok(arguments)
    } else {
        Err(BlockAnswer::failure("The arguments must be a JSON object."))
    }
}

/// Returns the names of at most `limit` tools that a search found, and of those that it predicts.
fn found_names(result: &str, limit: usize) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct SearchAnswer {
        matches: Vec<NamedTool>,
        predicted_next: Vec<NamedTool>,
    }
    #[derive(Deserialize)]
    struct NamedTool {
        name: String,
    }
    let found: SearchAnswer = member(result, "structuredContent")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let matches = found.matches.into_iter().take(limit.max(1));
    let tools = matches.chain(found.predicted_next);
    tools.map(|tool| tool.name).collect()
}

/// Returns a response with a tag of its text, without the text if the client has it.
fn tagged_response(text: String, headers: &HeaderMap) -> Response {
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    let tag = format!("\"{}\"", &digest[..32]);
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let is_known = known
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|value| value.trim().trim_start_matches("W/"))
        .any(|value| value == tag || value == "*");
    let mut response = if is_known {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        reply::json(StatusCode::OK, text.into())
    };
    let response_headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response_headers.insert(header::ETAG, tag);
    }
    let private = HeaderValue::from_static("private, no-cache");
    response_headers.insert(header::CACHE_CONTROL, private);
    response
}
