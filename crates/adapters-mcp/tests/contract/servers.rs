//! The servers of the contract suite: a process, and one that speaks Streamable HTTP at `/mcp` and
//! HTTP+SSE at `/sse`.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_ports::contract::upstream::{Reaction, reaction};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::scene::Server;

/// A process that reacts to each line of its input as [`reaction`] states. The answers have
/// placeholders for the id and the progress token, so that the shell needs no other programs.
const SCRIPT: &str = r#"
answer() { printf '%s%s%s\n' '{"jsonrpc":"2.0","id":' "$id" ",$1}"; }
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$RECEIVED"
  case $line in *'"method":"notifications/'*) continue;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  case $line in
    *'"method":"initialize"'*) answer "$INITIALIZE";;
    *'"method":"server/discover"'*) answer "$DISCOVER";;
    *'"method":"subscriptions/listen"'*) ;;
    *'"name":"silent"'*) ;;
    *'"name":"end"'*) exit 0;;
    *'"name":"count"'*)
      token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
      for n in 1 2 3 4 5 6 7 8 9 10; do
        printf '%s%s%s%s}}\n' '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":' "$token" ',"progress":' "$n"
      done
      answer "$CALL";;
    *'"name":"echo"'*) answer "$CALL";;
    *) answer '"result":{}';;
  esac
done
"#;

/// A server that is a child process. It appends what it gets to a file.
#[derive(Debug)]
pub(crate) struct ProcessServer {
    directory: tempfile::TempDir,
}

impl ProcessServer {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("received")
    }

    pub(crate) fn arguments() -> Vec<String> {
        vec!["-c".into(), SCRIPT.into()]
    }

    /// Returns the variables of the script: the file, and the member of each answer.
    pub(crate) fn environment(&self, era: Era) -> BTreeMap<String, String> {
        let member = |method: &str, params: &str| {
            let request =
                format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#);
            let answer = reaction(era, &request).messages.remove(0);
            let (_, member) = answer.split_once(r#""id":0,"#).unwrap();
            member.strip_suffix('}').unwrap().to_owned()
        };
        let file = self.file().display().to_string();
        BTreeMap::from([
            ("RECEIVED".into(), file),
            ("INITIALIZE".into(), member("initialize", "{}")),
            ("DISCOVER".into(), member("server/discover", "{}")),
            ("CALL".into(), member("tools/call", r#"{"name":"echo"}"#)),
        ])
    }
}

impl Server for ProcessServer {
    fn received(&self) -> Vec<String> {
        // Nobody has written yet if the file is missing.
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A server over HTTP, which ends when its last copy is dropped.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    state: Arc<HttpState>,
    _task: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct HttpState {
    era: Era,
    received: Mutex<Vec<String>>,
    /// The event streams of HTTP+SSE by session.
    streams: Mutex<HashMap<String, mpsc::UnboundedSender<String>>>,
}

impl HttpServer {
    pub(crate) async fn start(era: Era) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(HttpState {
            era,
            received: Mutex::default(),
            streams: Mutex::default(),
        });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&state));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            state,
            _task: Arc::new(AbortOnDrop(task)),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Forgets what was received so far.
    pub(crate) fn forget(&self) {
        self.state.received.lock().clear();
    }
}

impl Server for HttpServer {
    fn received(&self) -> Vec<String> {
        self.state.received.lock().clone()
    }
}

async fn serve(State(state): State<Arc<HttpState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await;
    let Ok(body) = body.map(|body| String::from_utf8(body.to_vec()).unwrap()) else {
        // The client dropped the request before it was complete.
        return status(StatusCode::BAD_REQUEST);
    };
    let session = parts.uri.query().and_then(|it| it.strip_prefix("session="));
    match (parts.method, parts.uri.path(), session) {
        (Method::POST, "/mcp", _) => answer(&state, body),
        (Method::DELETE, "/mcp", _) => status(StatusCode::NO_CONTENT),
        (Method::GET, "/sse", _) => open_stream(&state),
        (Method::POST, "/messages", Some(session)) => post(&state, session, body),
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Answers a message over Streamable HTTP.
fn answer(state: &HttpState, text: String) -> Response {
    let message = Message::from_text(text.clone()).unwrap();
    let is_request = message.request_ids().next().is_some();
    let Reaction {
        mut messages,
        is_end,
    } = reaction(state.era, &text);
    state.received.lock().push(text);
    if !is_request {
        return status(StatusCode::ACCEPTED);
    }
    if messages.len() == 1 {
        return Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .header("mcp-session-id", "s1")
            .body(Body::from(messages.remove(0)))
            .unwrap();
    }
    if messages.is_empty() && !is_end {
        return event_stream(stream::pending());
    }
    event_stream(stream::iter(messages.into_iter().map(event)))
}

fn open_stream(state: &HttpState) -> Response {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut streams = state.streams.lock();
    let session = streams.len().to_string();
    let endpoint = format!("event: endpoint\ndata: /messages?session={session}\n\n");
    streams.insert(session, sender);
    let first = stream::iter([Ok(Bytes::from(endpoint))]);
    let later = stream::poll_fn(move |context| receiver.poll_recv(context)).map(event);
    event_stream(first.chain(later))
}

/// Takes a message over HTTP+SSE.
fn post(state: &HttpState, session: &str, text: String) -> Response {
    let Reaction { messages, is_end } = reaction(state.era, &text);
    state.received.lock().push(text);
    let mut streams = state.streams.lock();
    let Some(stream) = streams.get(session) else {
        return status(StatusCode::NOT_FOUND);
    };
    for message in messages {
        // The client may have left.
        let _ = stream.send(message);
    }
    if is_end {
        streams.remove(session);
    }
    status(StatusCode::ACCEPTED)
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "the item of a stream"
)]
fn event(text: String) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(format!("event: message\ndata: {text}\n\n")))
}

fn event_stream(
    events: impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(events))
        .unwrap()
}

fn status(status: StatusCode) -> Response {
    Response::builder()
        .status(status)
        .body(Body::empty())
        .unwrap()
}
