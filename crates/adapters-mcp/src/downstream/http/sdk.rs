//! The provider-native face: the tools of an agent in the request format of a model provider, and
//! the searches and calls of its model as blocks of that provider.
//!
//! An agent that is built on the SDK of a provider needs no MCP client. Each agent has an ordinary
//! session of the proxy, so its lists, searches and calls are selected, authorized, limited and
//! recorded as those of an MCP client.

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
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use riglm_app::proxy::{ClientIdentity, N_SCHEMAS};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::method;
use riglm_domain::mcp::request_hints::{CONTEXT_HEADER, MAX_CONTEXT_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use self::block::{
    BlockError, BlockKind, BlockRequest, FoundTools, Outcome, RequestForm, ToolBlock,
};
use self::content::ToolOutput;
use self::problem::Problem;
use self::provider::{Provider, SearchMode, changed_names};
use self::session::{AgentSession, RequestError, RequestProperties};
use self::tool_array::{Loading, ToolArray};
use super::port::ServerState;
use super::{reply, request};
use crate::trace_headers;

pub(super) use agents::Agents;
#[cfg(test)]
pub(super) use session::AgentLink;

/// The header of browsers that says from where a request comes.
const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// The id of a search that came without a block.
const NO_ID: &str = "";

/// Returns the routes of the face.
pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/sdk/{provider}", any(list))
        .route("/sdk/{provider}/search", any(search))
        .route("/sdk/{provider}/call", any(call))
}

/// The parameters in the URL of a request.
#[derive(Debug, Default)]
struct Parameters {
    profile: Option<String>,
    query: Option<String>,
    search: Option<String>,
    deferred: Option<String>,
}

/// An admitted request of an agent, whose session is open.
#[derive(Debug)]
struct AgentRequest {
    port: Arc<ServerState>,
    provider: Provider,
    visitor: ClientIdentity,
    parameters: Parameters,
    agent: Arc<AgentSession>,
    properties: RequestProperties,
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

/// The parameters of a call.
#[derive(Debug, Serialize)]
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

type PathName = Result<Path<String>, PathRejection>;

/// Serves `GET /sdk/{provider}`.
async fn list(
    State(port): State<Arc<ServerState>>,
    provider: PathName,
    request: Request<Body>,
) -> Response {
    let (head, _) = request.into_parts();
    let listed = async {
        let request = open(port, provider, &head, Method::GET).await?;
        request.tool_list(&head.headers).await
    };
    listed.await.unwrap_or_else(IntoResponse::into_response)
}

/// Serves `POST /sdk/{provider}/search`.
async fn search(
    State(port): State<Arc<ServerState>>,
    provider: PathName,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let searched = async {
        let request = open(port, provider, &head, Method::POST).await?;
        let asked = request.read_blocks(&head.headers, body).await?;
        let [block] = &asked.blocks[..] else {
            let text = "the body must be one search: a block of the model, or {\"query\": \"...\"}";
            return Err(Problem::unprocessable(text));
        };
        request.check_searchable().await?;
        let outcome = request.search(block).await;
        let array = request.agent.known_tools(&request.properties).await?;
        let provider = request.provider;
        let body = match (asked.form, &outcome) {
            (RequestForm::Arguments, Outcome::Found(found)) => {
                provider.search_content(found, &array)
            }
            (RequestForm::Many, _) => json!([provider.result(block, &outcome, &array)]),
            _ => provider.result(block, &outcome, &array),
        };
        Ok(json_response(&body))
    };
    searched.await.unwrap_or_else(IntoResponse::into_response)
}

/// Serves `POST /sdk/{provider}/call`.
async fn call(
    State(port): State<Arc<ServerState>>,
    provider: PathName,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let called = async {
        let request = open(port, provider, &head, Method::POST).await?;
        let asked = request.read_blocks(&head.headers, body).await?;
        if asked.form == RequestForm::Arguments {
            let text = "the body must be a block of the model, an array of blocks, or a message";
            return Err(Problem::unprocessable(text));
        }
        // The first block was counted with the request.
        for _ in asked.blocks.iter().skip(1) {
            request.count()?;
        }
        let outcomes = asked.blocks.iter().map(|block| request.answer(block));
        let outcomes = join_all(outcomes).await;
        let array = request.agent.known_tools(&request.properties).await?;
        let results: Vec<Value> = std::iter::zip(&asked.blocks, &outcomes)
            .map(|(block, outcome)| request.provider.result(block, outcome, &array))
            .collect();
        let body = match (asked.form, results) {
            (RequestForm::One, mut results) if results.len() == 1 => results.remove(0),
            (_, results) => Value::Array(results),
        };
        Ok(json_response(&body))
    };
    called.await.unwrap_or_else(IntoResponse::into_response)
}

/// Admits a request and opens the session of its agent.
async fn open(
    port: Arc<ServerState>,
    provider: PathName,
    head: &Parts,
    method: Method,
) -> Result<AgentRequest, Problem> {
    let principal = request::check_sender(&port, head)?;
    check_site(&head.headers)?;
    let provider = provider.ok().and_then(|Path(name)| Provider::parse(&name));
    let provider = provider.ok_or_else(|| {
        let text = "unknown provider; there are /sdk/anthropic and /sdk/openai";
        Problem::new(StatusCode::NOT_FOUND, text)
    })?;
    if head.method != method {
        let allowed = if method == Method::GET { "GET" } else { "POST" };
        return Err(Problem::method(allowed));
    }
    let parameters = Parameters::read(head.uri.query().unwrap_or_default(), &method)?;
    let profile = parameters.profile.as_deref();
    let profile = profile.map(|name| request::known_profile(&port, name));
    let visitor = ClientIdentity {
        principal,
        profile: profile.transpose()?,
    };
    let properties = properties_of(&head.headers, parameters.query.as_deref())?;
    count(&port, &visitor)?;
    let label = properties.hints.session.as_deref();
    let agent = port
        .agents
        .find_or_accept(&port.proxy, provider, &visitor, label)?;
    agent.shake_hands(&properties).await?;
    Ok(AgentRequest {
        port,
        provider,
        visitor,
        parameters,
        agent,
        properties,
    })
}

/// Refuses the request of a page of another site, which browsers send without `Origin` if the page
/// cannot read the answer.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let is_foreign = matches!(site, Some(b"cross-site" | b"same-site"));
    if is_foreign && !headers.contains_key(header::ORIGIN) {
        let text = "requests of pages of other sites are not allowed";
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    Ok(())
}

fn count(port: &ServerState, visitor: &ClientIdentity) -> Result<(), Problem> {
    let now = std::time::Instant::now();
    let counted = port.proxy.admit_message(&visitor.principal, now);
    counted.map_err(|error| Problem::new(StatusCode::TOO_MANY_REQUESTS, error.message))
}

/// Returns the hints and the trace of a request. A `query` in the URL is its context.
fn properties_of(headers: &HeaderMap, query: Option<&str>) -> Result<RequestProperties, Problem> {
    let mut hints = request::hints(headers).unwrap_or_default();
    if let Some(name) = hints.ignored.first() {
        let text = format!("the header {name} is empty, too long or not valid");
        return Err(Problem::unprocessable(text));
    }
    if let Some(query) = query {
        let query = query.trim();
        if query.is_empty() || query.len() > MAX_CONTEXT_BYTES {
            let text =
                format!("the parameter query must have 1 to {MAX_CONTEXT_BYTES} bytes of text");
            return Err(Problem::unprocessable(text));
        }
        if hints.context.is_some() {
            let text = format!("the context is in the parameter query and in {CONTEXT_HEADER}");
            return Err(Problem::unprocessable(text));
        }
        hints.context = Some(query.into());
    }
    let trace = trace_headers::of_headers(headers).map(Arc::new);
    Ok(RequestProperties { hints, trace })
}

impl Parameters {
    /// Reads the query of a URL. Lists have more parameters than searches and calls.
    fn read(query: &str, method: &Method) -> Result<Self, Problem> {
        let mut read = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let is_list = *method == Method::GET;
            let place = match name.as_ref() {
                "profile" => &mut read.profile,
                "query" => &mut read.query,
                "search" if is_list => &mut read.search,
                "deferred" if is_list => &mut read.deferred,
                _ => {
                    let text = format!("unknown parameter {name:?}");
                    return Err(Problem::unprocessable(text));
                }
            };
            if place.replace(value.into_owned()).is_some() {
                let text = format!("the parameter {name} occurs twice");
                return Err(Problem::unprocessable(text));
            }
        }
        Ok(read)
    }
}

impl AgentRequest {
    fn count(&self) -> Result<(), Problem> {
        count(&self.port, &self.visitor)
    }

    /// Returns the response with the tools of the agent.
    async fn tool_list(&self, headers: &HeaderMap) -> Result<Response, Problem> {
        let wanted = self.wanted_search()?;
        let is_short = self.leaves_deferred_out(wanted)?;
        let array = self.agent.list(&self.properties).await?;
        let mode = self.search_mode(wanted, &array)?;
        let is_listed = |tool: &&tool_array::AgentTool| {
            tool.loading == Loading::Loaded || !(is_short && mode == SearchMode::Riglm)
        };
        // With nothing to load, the search tool is a tool like any other.
        let facility = if array.has_deferred() {
            self.provider.search_facility(mode, &array)
        } else {
            array.search().map(|tool| tool.for_provider(self.provider))
        };
        let n_loaded = array.tools().iter();
        let n_loaded = n_loaded.filter(|tool| tool.loading == Loading::Loaded);
        let n_loaded = n_loaded.count();
        let tools = array.tools().iter().filter(is_listed);
        let tools = tools.map(|tool| tool.for_provider(self.provider));
        let list = AgentList {
            provider: self.provider.name(),
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

    /// Returns the way to search that the agent asks for.
    fn wanted_search(&self) -> Result<Option<SearchMode>, Problem> {
        let Some(name) = self.parameters.search.as_deref() else {
            return Ok(None);
        };
        let modes = self.provider.search_modes();
        let wanted = modes.iter().find(|mode| mode.name() == name);
        wanted.map(|mode| Some(*mode)).ok_or_else(|| {
            let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            let names = names.join(", ");
            Problem::unprocessable(format!("unknown search {name:?}; expected one of {names}"))
        })
    }

    /// Returns whether the answer has only loaded tools. Anthropic needs the definition of each tool
    /// that a search may find.
    fn leaves_deferred_out(&self, wanted: Option<SearchMode>) -> Result<bool, Problem> {
        match self.parameters.deferred.as_deref() {
            None | Some("list") => Ok(false),
            Some("omit")
                if self.provider == Provider::OpenAi
                    && wanted.is_none_or(|mode| mode == SearchMode::Riglm) =>
            {
                Ok(true)
            }
            Some("omit") => {
                let text = "deferred=omit is only for /sdk/openai with search=riglm: otherwise the \
                            provider needs all definitions";
                Err(Problem::unprocessable(text))
            }
            Some(other) => {
                let text = format!("unknown value {other:?} of deferred; expected list or omit");
                Err(Problem::unprocessable(text))
            }
        }
    }

    /// Returns the way to search: the wanted one, or riglm, or the provider's if riglm has no search
    /// tool.
    fn search_mode(
        &self,
        wanted: Option<SearchMode>,
        array: &ToolArray,
    ) -> Result<SearchMode, Problem> {
        let has_own = array.search().is_some();
        match wanted {
            Some(SearchMode::Riglm) if !has_own && array.has_deferred() => {
                Err(Problem::new(StatusCode::CONFLICT, NO_SEARCH))
            }
            Some(mode) => Ok(mode),
            None if has_own => Ok(SearchMode::Riglm),
            None => Ok(self.provider.own_search()),
        }
    }

    async fn check_searchable(&self) -> Result<(), Problem> {
        let array = self.agent.known_tools(&self.properties).await?;
        match array.search() {
            Some(_) => Ok(()),
            None => Err(Problem::new(StatusCode::CONFLICT, NO_SEARCH)),
        }
    }

    /// Reads the body of a search or a call.
    async fn read_blocks(&self, headers: &HeaderMap, body: Body) -> Result<BlockRequest, Problem> {
        let limit = self.port.proxy.limits().request_body_bytes;
        let bytes = request::read_body(headers, body, limit).await?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))?;
        let (parts, form) = block::split(text, self.provider.blocks_member())?;
        let blocks = if form == RequestForm::Arguments {
            vec![ToolBlock {
                id: NO_ID.to_owned(),
                kind: BlockKind::Search,
                name: String::new(),
                arguments: text.trim().to_owned(),
            }]
        } else {
            let read = parts.iter().map(|part| self.provider.read_block(part));
            let read: Result<Vec<_>, BlockError> = read.filter_map(Result::transpose).collect();
            read?
        };
        if blocks.is_empty() {
            let text = "the body has no block that asks for a tool";
            return Err(Problem::unprocessable(text));
        }
        Ok(BlockRequest { blocks, form })
    }

    /// Answers a block: a search, or a call.
    async fn answer(&self, block: &ToolBlock) -> Outcome {
        if block.kind == BlockKind::Search {
            return self.search(block).await;
        }
        let tool = {
            let array = match self.agent.known_tools(&self.properties).await {
                Ok(array) => array,
                Err(error) => return failure_of(&error),
            };
            let is_search = array
                .search()
                .is_some_and(|tool| tool.provider_name() == block.name);
            if is_search {
                None
            } else {
                Some(match array.by_provider_name(&block.name) {
                    Some(tool) => (
                        tool.name().to_owned(),
                        self.provider
                            .server_arguments(tool, &block.arguments)
                            .into_owned(),
                    ),
                    // A tool that the list hides can be called, as by every client.
                    None => (block.name.clone(), block.arguments.clone()),
                })
            }
        };
        match tool {
            None => self.search(block).await,
            Some((name, arguments)) => self.call(&name, &arguments).await,
        }
    }

    /// Calls a tool by its name in lists.
    async fn call(&self, name: &str, arguments: &str) -> Outcome {
        let arguments = match object(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Outcome::Output(ToolOutput::failure(problem)),
        };
        let params = CallParams { name, arguments };
        match self
            .agent
            .request(method::TOOLS_CALL, &params, &self.properties)
            .await
        {
            Ok(result) => Outcome::Output(ToolOutput::read(&result)),
            Err(error) => failure_of(&error),
        }
    }

    /// Searches with the arguments of a block.
    async fn search(&self, block: &ToolBlock) -> Outcome {
        let arguments = match object(&block.arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Outcome::Output(ToolOutput::failure(problem)),
        };
        let array = match self.agent.known_tools(&self.properties).await {
            Ok(array) => array,
            Err(error) => return failure_of(&error),
        };
        let Some(search) = array.search() else {
            return Outcome::Output(ToolOutput::failure(NO_SEARCH));
        };
        let params = CallParams {
            name: search.name(),
            arguments,
        };
        match self
            .agent
            .request(method::TOOLS_CALL, &params, &self.properties)
            .await
        {
            Ok(result) => {
                let output = ToolOutput::read(&result);
                if output.is_error {
                    return Outcome::Output(output);
                }
                // A found tool becomes a definition in the prompt.
                let limit = member(&block.arguments, "limit").and_then(|n| n.parse().ok());
                Outcome::Found(FoundTools {
                    names: found_names(&result, limit.unwrap_or(N_SCHEMAS)),
                    output,
                })
            }
            Err(error) => failure_of(&error),
        }
    }
}

/// The answer if riglm cannot search.
const NO_SEARCH: &str = "riglm has no search tool for this agent: lists hide nothing, or search is \
                         disabled (filtering.strategy, search.enabled)";

fn failure_of(error: &RequestError) -> Outcome {
    Outcome::Output(ToolOutput::failure(error.message.clone()))
}

/// Returns the JSON text of the arguments of a call, or the reason why they are none.
fn object(arguments: &str) -> Result<&RawValue, String> {
    match serde_json::from_str::<&RawValue>(arguments) {
        Err(error) => Err(format!("The arguments are not JSON: {error}")),
        Ok(arguments) if !arguments.get().starts_with('{') => {
            Err("The arguments must be a JSON object.".to_owned())
        }
        Ok(arguments) => Ok(arguments),
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
    matches
        .chain(found.predicted_next)
        .map(|tool| tool.name)
        .collect()
}

fn json_response(body: &Value) -> Response {
    reply::json(StatusCode::OK, body.to_string().into())
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
