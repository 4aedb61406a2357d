//! The checks of a request of an agent before its session: the sender, the address, the parameters,
//! the rate limit and the body. A request that fails one of them opens no session.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use riglm_app::proxy::ClientIdentity;
use riglm_domain::mcp::request_hints::{CONTEXT_HEADER, MAX_CONTEXT_BYTES};

use super::block::{self, BlockError, BlockKind, BlockRequest, NO_ID, RequestForm, ToolBlock};
use super::problem::Problem;
use super::provider::{Provider, SearchMode};
use super::session::{AgentSession, RequestProperties};
use crate::downstream::http::port::ServerState;
use crate::downstream::http::request;
use crate::trace_headers;

/// The header of browsers that says from where a request comes.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The provider in a path.
pub(super) type PathName = Result<Path<String>, PathRejection>;

/// An address of the face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// The tools of an agent.
    List,
    /// One search.
    Search,
    /// Calls and searches.
    Call,
}

impl Endpoint {
    fn method(self) -> Method {
        match self {
            Self::List => Method::GET,
            Self::Search | Self::Call => Method::POST,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListOptions {
    /// The way to search that the agent asks for.
    pub(super) search: Option<SearchMode>,
    /// Whether the answer has only loaded tools.
    pub(super) omits_deferred: bool,
}

/// A request whose sender, address and parameters are checked, and which is counted.
#[derive(Debug)]
pub(super) struct AdmittedRequest {
    pub(super) provider: Provider,
    pub(super) properties: RequestProperties,
    pub(super) options: ListOptions,
    port: Arc<ServerState>,
    visitor: ClientIdentity,
}

impl AdmittedRequest {
    /// Admits a request to an address.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is refused.
    pub(super) fn admit(
        port: Arc<ServerState>,
        endpoint: Endpoint,
        provider: PathName,
        head: &Parts,
    ) -> Result<Self, Problem> {
        let principal = request::check_sender(&port, head)?;
        check_site(&head.headers)?;
        let provider = provider.ok().and_then(|Path(name)| Provider::parse(&name));
        let provider = provider.ok_or_else(|| {
            let text = "unknown provider; there are /sdk/anthropic and /sdk/openai";
            Problem::new(StatusCode::NOT_FOUND, text)
        })?;
        if head.method != endpoint.method() {
            return Err(Problem::method(endpoint.method()));
        }
        let parameters = Parameters::read(head.uri.query().unwrap_or_default(), endpoint)?;
        let profile = parameters.profile.as_deref();
        let profile = profile.map(|name| request::known_profile(&port, name));
        let visitor = ClientIdentity {
            principal,
            profile: profile.transpose()?,
        };
        let admitted = Self {
            provider,
            properties: properties_of(&head.headers, parameters.query.as_deref())?,
            options: parameters.options(provider)?,
            port,
            visitor,
        };
        admitted.count(1)?;
        Ok(admitted)
    }

    /// Counts messages of the agent for the rate limit.
    fn count(&self, n_messages: usize) -> Result<(), Problem> {
        for _ in 0..n_messages {
            request::count_message(&self.port, &self.visitor.principal)?;
        }
        Ok(())
    }

    /// Reads the blocks of a search or a call, and counts them.
    ///
    /// # Errors
    ///
    /// Returns the reason why the body is refused.
    pub(super) async fn read_blocks(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<BlockRequest, Problem> {
        let limit = self.port.proxy.limits().request_body_bytes;
        let bytes = request::read_body(headers, body, limit).await?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))?;
        let (parts, form) = block::split(text, self.provider.blocks_member())?;
        if endpoint == Endpoint::Call && form == RequestForm::Arguments {
            let text = "the body must be a block of the model, an array of blocks, or a message";
            return Err(Problem::unprocessable(text));
        }
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
        if endpoint == Endpoint::Search && blocks.len() > 1 {
            let text = "the body must be one search: a block of the model, or {\"query\": \"...\"}";
            return Err(Problem::unprocessable(text));
        }
        // The first block was counted with the request.
        self.count(blocks.len() - 1)?;
        Ok(BlockRequest { blocks, form })
    }

    /// Returns the session of the agent, after its handshake.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is none.
    pub(super) async fn session(&self) -> Result<Arc<AgentSession>, Problem> {
        let Self { port, visitor, .. } = self;
        let label = self.properties.hints.session.as_deref();
        let agents = &port.agents;
        let agent = agents.find_or_accept(&port.proxy, self.provider, visitor, label)?;
        agent.shake_hands(&self.properties).await?;
        Ok(agent)
    }
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

/// The parameters in the URL of a request.
#[derive(Debug, Default)]
struct Parameters {
    profile: Option<String>,
    query: Option<String>,
    search: Option<String>,
    deferred: Option<String>,
}

impl Parameters {
    /// Reads the query of a URL. Lists have more parameters than searches and calls.
    fn read(query: &str, endpoint: Endpoint) -> Result<Self, Problem> {
        let is_list = endpoint == Endpoint::List;
        let mut read = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
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

    /// Returns the parameters of a list. Anthropic needs the definition of each tool that a search
    /// may find.
    fn options(&self, provider: Provider) -> Result<ListOptions, Problem> {
        let search = self.search(provider)?;
        let is_by_riglm = search.is_none_or(|mode| mode == SearchMode::Riglm);
        let omits_deferred = match self.deferred.as_deref() {
            None | Some("list") => false,
            Some("omit") if provider == Provider::OpenAi && is_by_riglm => true,
            Some("omit") => {
                let text = "deferred=omit is only for /sdk/openai with search=riglm: otherwise the \
                            provider needs all definitions";
                return Err(Problem::unprocessable(text));
            }
            Some(other) => {
                let text = format!("unknown value {other:?} of deferred; expected list or omit");
                return Err(Problem::unprocessable(text));
            }
        };
        Ok(ListOptions {
            search,
            omits_deferred,
        })
    }

    fn search(&self, provider: Provider) -> Result<Option<SearchMode>, Problem> {
        let Some(name) = self.search.as_deref() else {
            return Ok(None);
        };
        let modes = provider.search_modes();
        let wanted = modes.iter().find(|mode| mode.name() == name);
        wanted.map(|mode| Some(*mode)).ok_or_else(|| {
            let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            let names = names.join(", ");
            Problem::unprocessable(format!("unknown search {name:?}; expected one of {names}"))
        })
    }
}
