//! The client side of HTTP+SSE as of 2024-11-05: one event stream, messages by POST.

use std::sync::Arc;

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use url::Url;

use super::{Delivery, Link, PATIENCE, SharedState};
use crate::inbox::{ReceivedMessage, Stream};
use crate::plain_http;
use crate::sse::Decoder;

#[derive(Debug, Default)]
pub(super) struct Legacy {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    endpoint: Option<Url>,
    headers: Vec<(String, String)>,
    reader: Option<AbortHandle>,
}

impl Legacy {
    fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    pub(super) fn set_header(&self, name: &str, value: &str) {
        self.with_state(|state| {
            state.headers.retain(|(known, _)| known != name);
            state.headers.push((name.to_owned(), value.to_owned()));
        });
    }

    pub(super) fn drop_stream(&self) {
        if let Some(reader) = self.with_state(|state| state.reader.take()) {
            reader.abort();
        }
    }

    pub(super) async fn post(&self, shared: &Arc<SharedState>, text: &str) -> Delivery {
        let (endpoint, mut headers) =
            self.with_state(|state| (state.endpoint.clone(), state.headers.clone()));
        let endpoint = endpoint.expect("a connected client knows its endpoint");
        headers.push(("content-type".into(), "application/json".into()));
        let sent = async {
            let response =
                plain_http::open(Method::POST, &endpoint, &headers, text.to_owned()).await?;
            plain_http::collect(response).await
        };
        match sent.await {
            Ok(answer) => {
                shared.inbox.note(format!(
                    "!! POST answered {} {}",
                    answer.status, answer.body
                ));
                Delivery {
                    status: answer.status,
                    headers: answer.headers,
                    body: answer.body,
                }
            }
            Err(error) => {
                shared.inbox.note(format!("!! POST: {}", error.0));
                Delivery::default()
            }
        }
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        self.drop_stream();
    }
}

/// Opens the event stream and waits for its `endpoint` event.
pub(super) async fn connect(shared: &Arc<SharedState>, url: &Url) {
    let Link::Legacy(link) = &shared.link else {
        return;
    };
    let headers = [("accept".to_owned(), "text/event-stream".to_owned())];
    let response = plain_http::open(Method::GET, url, &headers, "")
        .await
        .unwrap_or_else(|error| panic!("GET {url}: {}", error.0));
    assert_eq!(response.status().as_u16(), 200, "GET {url}");
    let (found, endpoint) = oneshot::channel();
    let reader = tokio::spawn(read(Arc::clone(shared), response.into_body(), found));
    let path = tokio::time::timeout(PATIENCE, endpoint)
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or_else(|| panic!("{url} named no endpoint"));
    let endpoint = url
        .join(&path)
        .unwrap_or_else(|error| panic!("endpoint {path}: {error}"));
    link.with_state(|state| {
        state.endpoint = Some(endpoint);
        state.reader = Some(reader.abort_handle());
    });
}

async fn read(shared: Arc<SharedState>, mut body: Incoming, found: oneshot::Sender<String>) {
    let mut found = Some(found);
    let mut decoder = Decoder::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        for event in decoder.feed(&piece) {
            if event.name == "endpoint" {
                if let Some(found) = found.take() {
                    // The receiver is closed if the connecting side has given up.
                    let _ = found.send(event.data);
                }
            } else {
                shared.receive(ReceivedMessage {
                    stream: Stream::Legacy,
                    text: event.data,
                    event_id: event.id,
                });
            }
        }
    }
    shared.inbox.note("!! the event stream ended".into());
}
