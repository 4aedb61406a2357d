//! The address on this machine to which the browser comes back after a login.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use riglm_domain::excerpt::excerpt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

const PATH: &str = "/callback";
/// How long the browser may take to read the page that it is shown at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How much is kept of what an authorization server calls its reason.
const MAX_REASON_CHARS: usize = 200;

/// A socket that waits for the browser.
#[derive(Debug)]
pub(super) struct Redirect {
    listener: TcpListener,
    address: SocketAddr,
}

/// What the browser brings from the authorization server.
#[derive(Debug)]
pub(super) enum Answer {
    /// The address it came to, with a code in it.
    Allowed(String),
    /// The reason why there is none, cut and without control characters.
    Denied(String),
}

struct Expected {
    state: String,
    uri: String,
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
}

impl Redirect {
    /// Listens on this machine only, on `port` or any free one.
    ///
    /// # Errors
    ///
    /// Returns what the operating system says, as that the port is taken.
    pub(super) async fn bind(port: Option<u16>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the address for the browser.
    pub(super) fn uri(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Waits for the answer to the login that is known by `state`; whoever comes without it is
    /// turned away. Returns `None` after `limit`.
    pub(super) async fn answer(self, state: String, limit: Duration) -> Option<Answer> {
        let uri = self.uri();
        let (sender, receiver) = oneshot::channel();
        let expected = Arc::new(Expected {
            state,
            uri,
            answer: Mutex::new(Some(sender)),
        });
        let router = Router::new()
            .route(PATH, get(take_answer))
            .with_state(expected);
        let done = CancellationToken::new();
        let served = axum::serve(self.listener, router)
            .with_graceful_shutdown(done.clone().cancelled_owned());
        let serving = tokio::spawn(served.into_future());
        let answer = tokio::time::timeout(limit, receiver).await;
        done.cancel();
        let abort = serving.abort_handle();
        if tokio::time::timeout(LAST_WORDS, serving).await.is_err() {
            abort.abort();
        }
        answer.ok()?.ok()
    }
}

async fn take_answer(State(expected): State<Arc<Expected>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let value = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let found = pairs.find(|(found, _)| found == key)?;
        Some(found.1.into_owned())
    };
    if value("state").as_ref() != Some(&expected.state) {
        let text = "This is not the answer to the login that was begun.";
        return page(StatusCode::BAD_REQUEST, text);
    }
    let answer = match value("error") {
        Some(reason) => Answer::Denied(printable(&reason)),
        None => Answer::Allowed(format!("{}?{query}", expected.uri)),
    };
    let sender = expected
        .answer
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(sender) = sender {
        // Whoever waited for it may be gone.
        let _ = sender.send(answer);
    }
    let text = "The answer has arrived. You can close this page and go back to the terminal.";
    page(StatusCode::OK, text)
}

fn page(status: StatusCode, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONNECTION, "close"),
    ];
    (status, headers, text).into_response()
}

/// Returns what somebody else wrote as it may stand on a terminal.
pub(super) fn printable(text: &str) -> String {
    excerpt(text, MAX_REASON_CHARS).escape_debug().to_string()
}
