//! One HTTP/1.1 exchange on its own connection, with full control over the headers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

/// The largest body that is read.
const BODY_LIMIT: usize = 64 << 20;

/// The deadline for a complete response.
const DEADLINE: Duration = Duration::from_secs(10);

/// The reason for a missing response.
#[derive(Debug)]
pub struct NoResponse(pub String);

/// A complete HTTP response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body. Empty for streams that are read elsewhere.
    pub body: String,
}

impl HttpResponse {
    /// Returns a header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Sends a request and returns the head of the response with an unread body.
///
/// The header `Host` defaults to the authority of `url`.
///
/// # Errors
///
/// Returns [`NoResponse`] when the connection cannot be made or breaks before the head.
pub async fn open(
    method: Method,
    url: &Url,
    headers: &[(String, String)],
    body: impl Into<Bytes>,
) -> Result<Response<Incoming>, NoResponse> {
    let authority = url.authority().to_owned();
    let socket = TcpStream::connect(&authority)
        .await
        .map_err(|error| NoResponse(format!("connect to {authority}: {error}")))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|error| NoResponse(format!("handshake: {error}")))?;
    // The connection has to be polled while the body is read.
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
        .map_err(|error| NoResponse(format!("request: {error}")))?;
    sender
        .send_request(request)
        .await
        .map_err(|error| NoResponse(format!("answer: {error}")))
}

/// Reads the body of a response.
///
/// # Errors
///
/// Returns [`NoResponse`] when the body breaks off or is larger than 64 MiB.
pub async fn collect(response: Response<Incoming>) -> Result<HttpResponse, NoResponse> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_LIMIT)
        .collect()
        .await
        .map_err(|error| NoResponse(format!("body: {error}")))?
        .to_bytes();
    Ok(HttpResponse {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Sends raw bytes on a new connection and returns the status of the response.
///
/// The response may come before all bytes are sent, for example for a body that is too large. The
/// remaining bytes are dropped then.
///
/// # Errors
///
/// Returns [`NoResponse`] when no status line came within ten seconds.
pub async fn status_of_raw(url: &Url, request: &[u8]) -> Result<u16, NoResponse> {
    let socket = TcpStream::connect(url.authority())
        .await
        .map_err(|error| NoResponse(format!("connect: {error}")))?;
    let (mut input, mut output) = socket.into_split();
    let send = async {
        // The server may have closed its side already. Only the response counts.
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
        () = send => return Err(NoResponse("nothing was awaited".into())),
        received = tokio::time::timeout(DEADLINE, receive) => received,
    };
    match received {
        Ok(Ok(line)) => line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| NoResponse(format!("status line {line:?}"))),
        other => Err(NoResponse(format!("{other:?}"))),
    }
}

/// Sends a request and returns its complete response, with a deadline of ten seconds.
///
/// # Errors
///
/// Returns [`NoResponse`] when no complete response came.
pub async fn exchange(
    method: Method,
    url: &Url,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<HttpResponse, NoResponse> {
    let headers: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let work = async { collect(open(method, url, &headers, body).await?).await };
    tokio::time::timeout(DEADLINE, work)
        .await
        .unwrap_or_else(|_| Err(NoResponse(format!("no answer within {DEADLINE:?}"))))
}
