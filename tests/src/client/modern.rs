//! The client side of HTTP as of 2026-07-28: each message is a POST with derived headers, each
//! response a body or a stream. There is no GET and no session.

use std::sync::Arc;

use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use url::Url;

use super::mirrors::MirroredArguments;
use super::streamable::{is_event_stream, set};
use super::{Delivery, Link, SharedState};
use crate::envelope::{Envelope, string_at};
use crate::header_value::encode;
use crate::inbox::{ReceivedMessage, Stream};
use crate::plain_http;
use crate::sse::Decoder;

#[derive(Debug)]
pub(super) struct Modern {
    url: Url,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    headers: Vec<(String, String)>,
    mirrors: MirroredArguments,
    readers: Vec<(String, AbortHandle)>,
}

impl Modern {
    pub(super) fn new(url: Url) -> Self {
        Self {
            url,
            state: Mutex::default(),
        }
    }

    fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    pub(super) fn set_header(&self, name: &str, value: &str) {
        self.with_state(|state| set(&mut state.headers, name, value));
    }

    pub(super) fn close_stream(&self, id: &str) {
        self.with_state(|state| {
            state.readers.retain(|(known, reader)| {
                if known == id {
                    reader.abort();
                }
                known != id
            });
        });
    }

    pub(super) fn drop_streams(&self) {
        for (_, reader) in self.with_state(|state| std::mem::take(&mut state.readers)) {
            reader.abort();
        }
    }

    /// Returns the headers of a message: the headers of every POST, the headers derived from its
    /// body, and the headers that a test set. Later ones replace earlier ones.
    fn headers(&self, text: &str, others: &[(&str, Option<&str>)]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = vec![
            ("Content-Type".into(), "application/json".into()),
            (
                "Accept".into(),
                "application/json, text/event-stream".into(),
            ),
        ];
        if let Some(envelope) = Envelope::one(text) {
            headers.extend(self.with_state(|state| derived_headers(&envelope, &state.mirrors)));
        }
        self.with_state(|state| {
            for (name, value) in &state.headers {
                set(&mut headers, name, value);
            }
        });
        for (name, value) in others {
            match value {
                Some(value) => set(&mut headers, name, value),
                None => headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name)),
            }
        }
        headers
    }

    pub(super) async fn post(
        &self,
        shared: &Arc<SharedState>,
        text: &str,
        others: &[(&str, Option<&str>)],
    ) -> Delivery {
        let headers = self.headers(text, others);
        let id = Envelope::one(text)
            .filter(Envelope::is_request)
            .and_then(|envelope| envelope.id().map(str::to_owned))
            .unwrap_or_else(|| "-".into());
        let opened = plain_http::open(Method::POST, &self.url, &headers, text.to_owned()).await;
        let response = match opened {
            Ok(response) => response,
            Err(error) => {
                shared.inbox.note(format!("!! POST: {}", error.0));
                return Delivery::default();
            }
        };
        let mut delivery = Delivery {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: String::new(),
        };
        shared
            .inbox
            .note(format!("!! POST of {id} answered {}", delivery.status));
        if is_event_stream(&response) {
            self.read_stream(shared, response, id);
            return delivery;
        }
        match plain_http::collect(response).await {
            Ok(answer) => delivery.body = answer.body,
            Err(error) => shared.inbox.note(format!("!! POST body: {}", error.0)),
        }
        if Envelope::all(&delivery.body)
            .iter()
            .any(Envelope::is_response)
        {
            self.receive(shared, Stream::Post(id), delivery.body.clone());
        } else if !delivery.body.is_empty() {
            shared.inbox.note(format!("!! body {}", delivery.body));
        }
        delivery
    }

    fn receive(&self, shared: &Arc<SharedState>, stream: Stream, text: String) {
        self.with_state(|state| state.mirrors.learn(&text));
        shared.receive(ReceivedMessage {
            stream,
            text,
            event_id: None,
        });
    }

    fn read_stream(&self, shared: &Arc<SharedState>, response: Response<Incoming>, id: String) {
        let stream = Stream::Post(id.clone());
        let shared = Arc::clone(shared);
        let reader = tokio::spawn(async move {
            let mut body = response.into_body();
            let mut decoder = Decoder::default();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(piece) = frame.into_data() else {
                    continue;
                };
                for event in decoder.feed(&piece) {
                    if let Link::Modern(link) = &shared.link
                        && !event.data.is_empty()
                    {
                        link.receive(&shared, stream.clone(), event.data);
                    }
                }
            }
            shared.inbox.note(format!("!! {stream:?} ended"));
        });
        self.with_state(|state| state.readers.push((id, reader.abort_handle())));
    }
}

impl Drop for Modern {
    fn drop(&mut self) {
        self.drop_streams();
    }
}

/// Returns the headers that are derived from a message.
fn derived_headers(envelope: &Envelope, mirrors: &MirroredArguments) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let Some(method) = envelope.method() else {
        return headers;
    };
    let params = envelope.member("params").unwrap_or("null");
    let version = ["_meta", "io.modelcontextprotocol/protocolVersion"];
    if let Some(version) = string_at(params, &version) {
        headers.push(("MCP-Protocol-Version".into(), version));
    }
    let name = match method.as_str() {
        "tools/call" | "prompts/get" => string_at(params, &["name"]),
        "resources/read" => string_at(params, &["uri"]),
        // The tasks extension requires it too.
        "tasks/get" | "tasks/update" | "tasks/cancel" => string_at(params, &["taskId"]),
        _ => None,
    };
    if let Some(name) = name {
        headers.push(("Mcp-Name".into(), encode(&name)));
        if method == "tools/call" {
            headers.extend(mirrors.headers(envelope, &name));
        }
    }
    headers.push(("Mcp-Method".into(), method));
    headers
}
