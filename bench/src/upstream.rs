//! An upstream server that responds at once with prepared bytes, over HTTP or over standard input
//! and output.

use std::convert::Infallible;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::value::RawValue;

use crate::message::Era;

/// The pause after a connection that could not be accepted.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A server with a list of tools.
#[derive(Debug)]
pub(crate) struct Upstream {
    era: Era,
    /// The result of `tools/list`.
    list: String,
    n_sessions: AtomicU64,
}

/// The fields of a message that the server needs.
#[derive(serde::Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(serde::Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    arguments: Option<Arguments<'a>>,
}

#[derive(serde::Deserialize)]
struct Arguments<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl Upstream {
    /// Returns a server with the tool `echo` and others, `n_tools` together.
    pub(crate) fn new(era: Era, n_tools: usize) -> Self {
        let extra = match era {
            Era::Legacy => "",
            Era::Modern => r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#,
        };
        Self {
            era,
            list: format!(r#"{{"tools":[{}]{extra}}}"#, tools(n_tools).join(",")),
            n_sessions: AtomicU64::new(0),
        }
    }

    /// Serves HTTP in a thread of its own and returns the address.
    pub(crate) fn start(self) -> anyhow::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let address = listener.local_addr()?;
        std::thread::Builder::new()
            .name("upstream".into())
            .spawn(move || {
                if let Err(error) = self.serve(listener) {
                    eprintln!("the upstream has ended: {error:#}");
                }
            })?;
        Ok(address)
    }

    /// Serves HTTP until the process ends.
    pub(crate) fn serve(self, listener: std::net::TcpListener) -> anyhow::Result<()> {
        listener.set_nonblocking(true)?;
        let server = Arc::new(self);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // There are too many connections.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                stream.set_nodelay(true)?;
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let service = service_fn(|request| server.answer_http(request));
                    // Clients may disconnect at any time.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        })
    }

    /// Serves one client over standard input and output until it closes its end.
    pub(crate) fn serve_stdio(&self) -> anyhow::Result<()> {
        let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
        let mut output = std::io::stdout().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let Ok(message) = serde_json::from_slice::<Message<'_>>(&line) else {
                continue;
            };
            if let Some(mut text) = self.answer(&message) {
                text.push('\n');
                output.write_all(text.as_bytes())?;
                output.flush()?;
            }
        }
    }

    async fn answer_http(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        match *request.method() {
            Method::POST => {}
            Method::DELETE => return Ok(status(StatusCode::OK)),
            _ => return Ok(status(StatusCode::METHOD_NOT_ALLOWED)),
        }
        let Ok(body) = request.into_body().collect().await else {
            return Ok(status(StatusCode::BAD_REQUEST));
        };
        let body = body.to_bytes();
        let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
            return Ok(status(StatusCode::BAD_REQUEST));
        };
        let Some(text) = self.answer(&message) else {
            return Ok(status(StatusCode::ACCEPTED));
        };
        let mut response = Response::new(Full::from(text));
        let headers = response.headers_mut();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if message.method == "initialize" && self.era == Era::Legacy {
            let number = self.n_sessions.fetch_add(1, Ordering::Relaxed);
            if let Ok(id) = HeaderValue::try_from(format!("upstream-session-{number}")) {
                headers.insert("mcp-session-id", id);
            }
        }
        Ok(response)
    }

    /// Returns the response to a request, or `None` for other messages.
    fn answer(&self, message: &Message<'_>) -> Option<String> {
        let id = message.id?.get();
        let result = match (message.method, self.era) {
            ("", _) => return None,
            ("initialize", Era::Legacy) => {
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
            }
            ("server/discover", Era::Modern) => {
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}"#
            }
            ("tools/list", _) => &self.list,
            ("tools/call", _) => return Some(self.echo(id, message)),
            ("ping", _) => "{}",
            ("initialize", Era::Modern) => {
                return Some(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"Unsupported protocol version","data":{{"supported":["2026-07-28"]}}}}}}"#
                ));
            }
            _ => {
                return Some(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
                ));
            }
        };
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
    }

    /// Returns the response to a call: a result with the text of its arguments.
    fn echo(&self, id: &str, message: &Message<'_>) -> String {
        let arguments = message.params.as_ref().and_then(|it| it.arguments.as_ref());
        let text = arguments
            .and_then(|it| it.text)
            .map_or("\"\"", RawValue::get);
        let extra = match self.era {
            Era::Legacy => "",
            Era::Modern => r#","resultType":"complete""#,
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]{extra}}}}}"#
        )
    }
}

/// Returns whether a tool with this name is one of the upstream.
pub(crate) fn is_upstream_tool(name: &str) -> bool {
    name == "echo" || name.starts_with("tool_")
}

/// Returns tool definitions. Each has about 1.25 kB, a realistic size.
fn tools(n_tools: usize) -> Vec<String> {
    let echo = r#"{"name":"echo","description":"Returns its text.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}"#;
    let mut all = vec![echo.to_owned()];
    for number in 1..n_tools {
        let properties: Vec<String> = (0..6)
            .map(|field| {
                format!(
                    r#""field_{field}":{{"type":"string","description":"{} {field} of tool {number}"}}"#,
                    "What the field means and which values it may take, in words of some length,"
                )
            })
            .collect();
        all.push(format!(
            r#"{{"name":"tool_{number}","description":"{}","inputSchema":{{"type":"object","properties":{{{}}},"required":["field_0"]}}}}"#,
            "Does one of the many things that a server of this size can do. ".repeat(5),
            properties.join(",")
        ));
    }
    all
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(era: Era, message: &str) -> serde_json::Value {
        let message = serde_json::from_str(message).unwrap();
        let text = Upstream::new(era, 10).answer(&message).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn lists_have_the_number_of_tools() {
        for era in [Era::Legacy, Era::Modern] {
            let list = answer(era, r#"{"id":1,"method":"tools/list"}"#);
            assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 10);
        }
    }

    #[test]
    fn calls_return_the_text_unchanged() {
        let call = r#"{"method":"tools/call","params":{"_meta":{},"name":"echo",
            "arguments":{"x":1,"text":"a\u0062\n"}},"id":"7"}"#;
        let answer = answer(Era::Modern, call);
        assert_eq!(answer["id"], "7");
        assert_eq!(answer["result"]["content"][0]["text"], "ab\n");
        assert_eq!(answer["result"]["resultType"], "complete");
    }

    #[test]
    fn each_era_refuses_the_greeting_of_the_other() {
        let code = |era, method: &str| {
            let message = format!(r#"{{"id":1,"method":"{method}","params":{{}}}}"#);
            answer(era, &message)["error"]["code"].as_i64()
        };
        assert_eq!(code(Era::Legacy, "server/discover"), Some(-32601));
        assert_eq!(code(Era::Modern, "initialize"), Some(-32022));
        assert_eq!(code(Era::Legacy, "initialize"), None);
    }
}
