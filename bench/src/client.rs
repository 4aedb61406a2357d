//! A client with one connection and one session, which sends one request at a time.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use bytes::{Buf as _, Bytes, buf::Chain};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::message::{Era, Request};
use crate::upstream::is_upstream_tool;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The greatest number of bytes of a response in the text of an error.
const EXCERPT: usize = 300;

/// A message: the part with the id, and the part that is shared by all of its kind.
type Body = Full<Chain<Bytes, Bytes>>;

/// The address of an MCP server.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The name of the server in errors.
    pub(crate) name: String,
    /// The address of the port.
    pub(crate) address: SocketAddr,
    /// The path, with a slash at its start.
    pub(crate) path: String,
}

/// An open session with a server, a relay or a proxy, over a connection of its own.
#[derive(Debug)]
pub(crate) struct Session {
    name: String,
    era: Era,
    address: SocketAddr,
    connection: SendRequest<Body>,
    uri: Uri,
    headers: HeaderMap,
    last_id: u64,
}

impl Session {
    /// Connects, and makes the handshake if the era has one.
    pub(crate) async fn open(endpoint: &Endpoint, era: Era) -> anyhow::Result<Self> {
        Self::open_with(endpoint, era, &[]).await
    }

    /// Connects a client with more headers.
    pub(crate) async fn open_with(
        endpoint: &Endpoint,
        era: Era,
        headers: &[(&'static str, String)],
    ) -> anyhow::Result<Self> {
        let Endpoint {
            name,
            address,
            path,
        } = endpoint;
        let connection = connect(name, *address).await?;
        let mut all = HeaderMap::new();
        all.insert(
            http::header::HOST,
            HeaderValue::try_from(address.to_string())?,
        );
        all.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        all.insert(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        for (header, value) in headers {
            all.insert(*header, HeaderValue::try_from(value)?);
        }
        let mut session = Self {
            name: name.clone(),
            era,
            address: *address,
            connection,
            uri: Uri::try_from(path.as_str()).with_context(|| format!("{name}: path {path}"))?,
            headers: all,
            last_id: 0,
        };
        if era == Era::Legacy {
            session.shake_hands().await?;
        }
        session
            .headers
            .insert(VERSION, HeaderValue::from_static(era.revision()));
        Ok(session)
    }

    /// Continues the session over a new connection. Servers close connections that are idle, some
    /// after a few seconds.
    pub(crate) async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.connection = connect(&self.name, self.address).await?;
        Ok(())
    }

    async fn shake_hands(&mut self) -> anyhow::Result<()> {
        let request = Request::initialize();
        let (id, response) = self.post(&request).await?;
        let session = response.headers().get(SESSION).cloned();
        self.result_of(id, response).await?;
        if let Some(session) = session {
            self.headers.insert(SESSION, session);
        }
        self.headers
            .insert(VERSION, HeaderValue::from_static(self.era.revision()));
        let text = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let response = self
            .exchange(Method::POST, Bytes::new().chain(text), None)
            .await?;
        drain(response).await?;
        Ok(())
    }

    /// Sends a request, reads the whole response and returns its length in bytes.
    ///
    /// The length is checked, and nothing else: the client must be light.
    pub(crate) async fn send(&mut self, request: &Request) -> anyhow::Result<usize> {
        let (_, response) = self.post(request).await?;
        let length = drain(response)
            .await
            .with_context(|| format!("{}: {} ended early", self.name, request.method))?;
        if length < request.least_response {
            bail!(
                "{}: the response to {} has {length} bytes, at least {} were expected",
                self.name,
                request.method,
                request.least_response
            );
        }
        Ok(length)
    }

    /// Sends a request and returns its result.
    pub(crate) async fn ask(&mut self, request: &Request) -> anyhow::Result<Value> {
        let (id, response) = self.post(request).await?;
        self.result_of(id, response)
            .await
            .with_context(|| format!("{}: {}", self.name, request.method))
    }

    /// Returns the number of tools of the upstream in the list.
    pub(crate) async fn n_listed(&mut self) -> anyhow::Result<usize> {
        let result = self.ask(&Request::list(self.era)).await?;
        let tools = result["tools"].as_array();
        let tools = tools.with_context(|| format!("{}: the list has no tools", self.name))?;
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        Ok(names.filter(|name| is_upstream_tool(name)).count())
    }

    /// Returns the first listed tool whose name ends so: proxies of several servers add prefixes.
    pub(crate) async fn tool_ending_with(&mut self, end: &str) -> anyhow::Result<String> {
        let result = self.ask(&Request::list(self.era)).await?;
        let tools = result["tools"].as_array().into_iter().flatten();
        let mut names = tools.filter_map(|tool| tool["name"].as_str());
        let found = names.find(|name| name.ends_with(end)).map(str::to_owned);
        found.with_context(|| format!("{}: no tool ends with {end}", self.name))
    }

    /// Returns the id of the session, if it has one.
    pub(crate) fn id(&self) -> Option<&HeaderValue> {
        self.headers.get(SESSION)
    }

    /// Begins another session over the same connection, without ending the one before.
    pub(crate) async fn renew(&mut self) -> anyhow::Result<()> {
        self.headers.remove(SESSION);
        self.headers.remove(VERSION);
        self.shake_hands().await
    }

    /// Ends the session with a DELETE, if it has one.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        match self.headers.remove(SESSION) {
            Some(id) => self.delete(id).await,
            None => Ok(()),
        }
    }

    /// Ends a session over this connection.
    pub(crate) async fn delete(&mut self, id: HeaderValue) -> anyhow::Result<()> {
        let before = self.headers.insert(SESSION, id);
        let version = HeaderValue::from_static(Era::Legacy.revision());
        self.headers.insert(VERSION, version);
        let nothing = Bytes::new().chain(Bytes::new());
        let response = self.exchange(Method::DELETE, nothing, None).await;
        self.headers.remove(SESSION);
        if let Some(before) = before {
            self.headers.insert(SESSION, before);
        }
        drain(response?).await?;
        Ok(())
    }

    async fn post(&mut self, request: &Request) -> anyhow::Result<(u64, Response<Incoming>)> {
        self.last_id += 1;
        let id = self.last_id;
        let head = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id}"#));
        let body = head.chain(request.tail.clone());
        Ok((id, self.exchange(Method::POST, body, Some(request)).await?))
    }

    async fn exchange(
        &mut self,
        method: Method,
        body: Chain<Bytes, Bytes>,
        of: Option<&Request>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        if let (Era::Modern, Some(of)) = (self.era, of) {
            let headers = request.headers_mut();
            headers.insert(METHOD, HeaderValue::from_static(of.method));
            if let Some(tool) = &of.tool {
                headers.insert(NAME, HeaderValue::try_from(tool)?);
            }
        }
        let name = &self.name;
        self.connection
            .ready()
            .await
            .with_context(|| format!("{name}: the connection was closed"))?;
        let what = of.map_or("a message", |of| of.method);
        let response = self
            .connection
            .send_request(request)
            .await
            .with_context(|| format!("{name}: no response to {what}"))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.into_body().collect().await?.to_bytes();
        bail!(
            "{name}: {what} was answered with status {status}: {}",
            excerpt(&text)
        );
    }

    /// Reads the result of the request with this id from a body or a stream of events.
    async fn result_of(&self, id: u64, response: Response<Incoming>) -> anyhow::Result<Value> {
        let is_stream = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let text = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&text);
        let mut message = if is_stream {
            events(&text)
                .filter_map(|event| serde_json::from_str::<Value>(&event).ok())
                .find(|message| message["id"] == id && message.get("method").is_none())
                .unwrap_or_default()
        } else {
            serde_json::from_str(&text).unwrap_or_default()
        };
        let result = message["result"].take();
        if message["id"] != id || !result.is_object() || result["isError"] == true {
            bail!("no result in the response: {}", excerpt(text.as_bytes()));
        }
        Ok(result)
    }
}

async fn connect(name: &str, address: SocketAddr) -> anyhow::Result<SendRequest<Body>> {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .with_context(|| format!("{name}: no connection to {address}"))?;
    stream.set_nodelay(true)?;
    let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .with_context(|| format!("{name}: no HTTP connection to {address}"))?;
    // Ends with an error when the server closes the connection; the next request says so.
    tokio::spawn(driver);
    Ok(connection)
}

/// Reads a body to its end and returns its length.
async fn drain(response: Response<Incoming>) -> hyper::Result<usize> {
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}

/// Returns the data of the events of a stream.
fn events(text: &str) -> impl Iterator<Item = String> {
    let mut data = String::new();
    text.lines().chain([""]).filter_map(move |line| {
        if let Some(more) = line.strip_prefix("data:") {
            data.push_str(more.trim_start());
            return None;
        }
        (line.is_empty() && !data.is_empty()).then(|| std::mem::take(&mut data))
    })
}

fn excerpt(text: &[u8]) -> String {
    let end = text.len().min(EXCERPT);
    let dots = if end < text.len() { " ..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(&text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_with_and_without_an_empty_line_at_the_end() {
        let text = "event: message\ndata: {\"a\":1}\n\n: ping\n\ndata:{\ndata: }\n";
        assert_eq!(events(text).collect::<Vec<_>>(), ["{\"a\":1}", "{}"]);
    }
}
