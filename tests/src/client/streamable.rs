//! The client side of Streamable HTTP: POST, GET stream, DELETE.

use std::sync::Arc;

use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use url::Url;

use super::{Delivery, Link, SharedState};
use crate::envelope::Envelope;
use crate::inbox::{ReceivedMessage, Stream};
use crate::plain_http;
use crate::sse::Decoder;

#[derive(Debug)]
pub(super) struct Streamable {
    url: Url,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    session_id: Option<String>,
    headers: Vec<(String, String)>,
    readers: Vec<AbortHandle>,
    last_event_ids: Vec<(Stream, String)>,
}

impl Streamable {
    pub(super) fn new(url: Url) -> Self {
        Self {
            url,
            state: Mutex::default(),
        }
    }

    fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    pub(super) fn last_event_id(&self, stream: &Stream) -> Option<String> {
        self.with_state(|state| {
            let last = state.last_event_ids.iter().rfind(|(on, _)| on == stream)?;
            Some(last.1.clone())
        })
    }

    pub(super) fn session_id(&self) -> Option<String> {
        self.with_state(|state| state.session_id.clone())
    }

    pub(super) fn set_header(&self, name: &str, value: &str) {
        self.with_state(|state| set(&mut state.headers, name, value));
    }

    pub(super) fn drop_streams(&self) {
        for reader in self.with_state(|state| std::mem::take(&mut state.readers)) {
            reader.abort();
        }
    }

    fn headers(&self, defaults: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = defaults
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.with_state(|state| {
            if let Some(id) = &state.session_id {
                set(&mut headers, "mcp-session-id", id);
            }
            for (name, value) in &state.headers {
                set(&mut headers, name, value);
            }
        });
        headers
    }

    pub(super) async fn post(&self, shared: &Arc<SharedState>, text: &str) -> Delivery {
        let headers = self.headers(&[
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]);
        let id = Envelope::all(text)
            .iter()
            .filter(|envelope| envelope.is_request())
            .find_map(|envelope| envelope.id().map(str::to_owned));
        let stream = Stream::Post(id.unwrap_or_else(|| "-".into()));
        let opened = plain_http::open(Method::POST, &self.url, &headers, text.to_owned()).await;
        let response = match opened {
            Ok(response) => response,
            Err(error) => {
                shared.inbox.note(format!("!! POST: {}", error.0));
                return Delivery::default();
            }
        };
        self.adopt_session(&response);
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        shared.inbox.note(format!("!! POST answered {status}"));
        if is_event_stream(&response) {
            self.read_stream(shared, response, stream);
            return Delivery {
                status,
                headers,
                body: String::new(),
            };
        }
        let body = match plain_http::collect(response).await {
            Ok(answer) => answer.body,
            Err(error) => {
                shared.inbox.note(format!("!! POST body: {}", error.0));
                String::new()
            }
        };
        if Envelope::all(&body).iter().any(Envelope::is_response) {
            shared.receive(ReceivedMessage {
                stream,
                text: body.clone(),
                event_id: None,
            });
        } else if !body.is_empty() {
            shared.inbox.note(format!("!! body {body}"));
        }
        Delivery {
            status,
            headers,
            body,
        }
    }

    fn adopt_session(&self, response: &Response<Incoming>) {
        let id = response.headers().get("mcp-session-id");
        if let Some(id) = id.and_then(|id| id.to_str().ok()) {
            self.with_state(|state| state.session_id = Some(id.to_owned()));
        }
    }

    pub(super) async fn open_stream(&self, shared: &Arc<SharedState>, after: Option<&str>) -> u16 {
        let mut headers = self.headers(&[("accept", "text/event-stream")]);
        if let Some(after) = after {
            set(&mut headers, "last-event-id", after);
        }
        match plain_http::open(Method::GET, &self.url, &headers, "").await {
            Ok(response) => {
                let status = response.status().as_u16();
                shared.inbox.note(format!("!! GET answered {status}"));
                if is_event_stream(&response) {
                    self.read_stream(shared, response, Stream::Standalone);
                }
                status
            }
            Err(error) => {
                shared.inbox.note(format!("!! GET: {}", error.0));
                0
            }
        }
    }

    pub(super) async fn delete(&self, shared: &Arc<SharedState>) -> u16 {
        let headers = self.headers(&[]);
        let opened = plain_http::open(Method::DELETE, &self.url, &headers, "").await;
        match opened {
            Ok(response) => response.status().as_u16(),
            Err(error) => {
                shared.inbox.note(format!("!! DELETE: {}", error.0));
                0
            }
        }
    }

    fn read_stream(&self, shared: &Arc<SharedState>, response: Response<Incoming>, stream: Stream) {
        let shared = Arc::clone(shared);
        let reader = tokio::spawn(async move {
            let mut body = response.into_body();
            let mut decoder = Decoder::default();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(piece) = frame.into_data() else {
                    continue;
                };
                for event in decoder.feed(&piece) {
                    if let (Link::Streamable(link), Some(id)) = (&shared.link, &event.id) {
                        let seen = (stream.clone(), id.clone());
                        link.with_state(|state| state.last_event_ids.push(seen));
                    }
                    // An event without data only gives the client an id for resumption.
                    if event.data.is_empty() {
                        shared
                            .inbox
                            .note(format!("!! {stream:?} primed with event {:?}", event.id));
                        continue;
                    }
                    shared.receive(ReceivedMessage {
                        stream: stream.clone(),
                        text: event.data,
                        event_id: event.id,
                    });
                }
            }
            shared.inbox.note(format!("!! {stream:?} ended"));
        });
        self.with_state(|state| state.readers.push(reader.abort_handle()));
    }
}

impl Drop for Streamable {
    fn drop(&mut self) {
        self.drop_streams();
    }
}

pub(super) fn is_event_stream(response: &Response<Incoming>) -> bool {
    response.status().is_success()
        && response
            .headers()
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

pub(super) fn set(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    headers.push((name.to_owned(), value.to_owned()));
}
