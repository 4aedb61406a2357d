//! The local redirect URI, to which the browser returns after a login.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use riglm_domain::retrieval::excerpt::excerpt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

const PATH: &str = "/callback";
/// The time that the browser has to load the final page.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The maximum length of the error of an authorization server that is shown, in characters.
const MAX_REASON_CHARS: usize = 200;

/// A socket that waits for the browser.
#[derive(Debug)]
pub(super) struct RedirectListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// The result that the browser brings from the authorization server.
#[derive(Debug)]
pub(super) enum LoginAnswer {
    /// The full redirect URL, which contains the code.
    Allowed(String),
    /// The reason for a refusal, truncated and without control characters.
    Denied(String),
}

struct ExpectedCallback {
    state: String,
    uri: String,
    answer: Mutex<Option<oneshot::Sender<LoginAnswer>>>,
}

impl RedirectListener {
    /// Listens on this machine only, on `port` or any free port.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system, for example if the port is in use.
    pub(super) async fn bind(port: Option<u16>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the redirect URI for the browser.
    pub(super) fn uri(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Waits for the answer to the login with this `state`; requests without it are refused.
    /// Returns `None` after `limit`.
    pub(super) async fn answer(self, state: String, limit: Duration) -> Option<LoginAnswer> {
        let uri = self.uri();
        let (sender, receiver) = oneshot::channel();
        let expected = Arc::new(ExpectedCallback {
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

async fn take_answer(
    State(expected): State<Arc<ExpectedCallback>>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let value = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let found = pairs.find(|(found, _)| found == key)?;
        Some(found.1.into_owned())
    };
    if value("state").as_ref() != Some(&expected.state) {
        let text = "This answer does not belong to the current login.";
        return page(StatusCode::BAD_REQUEST, text);
    }
    let answer = match value("error") {
        Some(reason) => LoginAnswer::Denied(printable(&reason)),
        None => LoginAnswer::Allowed(format!("{}?{query}", expected.uri)),
    };
    let sender = expected.answer.lock().take();
    if let Some(sender) = sender {
        // The receiver may be gone.
        let _ = sender.send(answer);
    }
    let text = "Login answer received. You can close this page and go back to the terminal.";
    page(StatusCode::OK, text)
}

fn page(status: StatusCode, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        // Lets the server end without waiting for an idle connection.
        (header::CONNECTION, "close"),
    ];
    (status, headers, text).into_response()
}

/// Returns external text in a form that is safe on a terminal.
pub(super) fn printable(text: &str) -> String {
    excerpt(text, MAX_REASON_CHARS).escape_debug().to_string()
}
