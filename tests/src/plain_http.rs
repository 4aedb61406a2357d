//! One HTTP/1.1 exchange on a connection of its own, with full control over the headers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

/// The most that is read of an answer that is no stream.
const BODY_LIMIT: usize = 64 << 20;

/// How long a whole answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why there was no answer.
#[derive(Debug)]
pub struct Unanswered(pub String);

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; empty for streams that are read elsewhere.
    pub body: String,
}

impl Answer {
    /// Returns a header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Sends a request and returns the head of its answer with the body still to be read.
///
/// `Host` is the authority of `url` unless `headers` names another.
///
/// # Errors
///
/// Returns [`Unanswered`] when the connection cannot be made or breaks before the head.
pub async fn open(
    method: Method,
    url: &Url,
    headers: &[(String, String)],
    body: impl Into<Bytes>,
) -> Result<Response<Incoming>, Unanswered> {
    let authority = url.authority().to_owned();
    let socket = TcpStream::connect(&authority)
        .await
        .map_err(|error| Unanswered(format!("connect to {authority}: {error}")))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|error| Unanswered(format!("handshake: {error}")))?;
    tokio::spawn(connection);
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut request = Request::builder().method(method).uri(path);
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        request = request.header("host", &authority);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Full::new(body.into()))
        .map_err(|error| Unanswered(format!("request: {error}")))?;
    sender
        .send_request(request)
        .await
        .map_err(|error| Unanswered(format!("answer: {error}")))
}

/// Reads the rest of an answer.
///
/// # Errors
///
/// Returns [`Unanswered`] when the body breaks off or is larger than 64 MiB.
pub async fn collect(response: Response<Incoming>) -> Result<Answer, Unanswered> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_LIMIT)
        .collect()
        .await
        .map_err(|error| Unanswered(format!("body: {error}")))?
        .to_bytes();
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Sends raw bytes on a new connection and returns the status of the answer.
///
/// The answer may come before all bytes are sent, as that to a body which is too large does;
/// what cannot be sent any more is dropped.
///
/// # Errors
///
/// Returns [`Unanswered`] when no status line came within ten seconds.
pub async fn status_of_raw(url: &Url, request: &[u8]) -> Result<u16, Unanswered> {
    let socket = TcpStream::connect(url.authority())
        .await
        .map_err(|error| Unanswered(format!("connect: {error}")))?;
    let (mut input, mut output) = socket.into_split();
    let send = async {
        // The other side may have closed its half; the answer is what counts.
        let _ = output.write_all(request).await;
        std::future::pending::<()>().await;
    };
    let receive = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            head.push(input.read_u8().await?);
        }
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&head).into_owned())
    };
    let received = tokio::select! {
        () = send => return Err(Unanswered("nothing was awaited".into())),
        received = tokio::time::timeout(DEADLINE, receive) => received,
    };
    match received {
        Ok(Ok(line)) => line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| Unanswered(format!("status line {line:?}"))),
        other => Err(Unanswered(format!("{other:?}"))),
    }
}

/// Sends a request and returns its whole answer, which must come within ten seconds.
///
/// # Errors
///
/// Returns [`Unanswered`] when no whole answer came.
pub async fn exchange(
    method: Method,
    url: &Url,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Answer, Unanswered> {
    let headers: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let work = async { collect(open(method, url, &headers, body).await?).await };
    tokio::time::timeout(DEADLINE, work)
        .await
        .unwrap_or_else(|_| Err(Unanswered(format!("no answer within {DEADLINE:?}"))))
}
