//! The links of HTTP sessions fulfil the contract of client links.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::message::RequestId;
use riglm_ports::contract::downstream::ClientScene;
use riglm_ports::downstream::{ClientLink, Route};
use tokio::task::JoinHandle;

use super::connection::{HttpLink, SseLink};
use super::event_log::{StreamCursor, StreamReader};

/// The events of one stream so far.
#[derive(Debug, Default)]
struct ReadStream {
    texts: Vec<String>,
    has_ended: bool,
}

/// A client over Streamable HTTP, which reads each of its streams.
struct StreamableClient {
    link: Arc<HttpLink>,
    streams: Arc<Mutex<HashMap<Option<RequestId>, ReadStream>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for StreamableClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.streams.lock().fmt(f)
    }
}

impl StreamableClient {
    fn new() -> Self {
        let client = Self {
            link: Arc::new(HttpLink::new()),
            streams: Arc::default(),
            readers: Mutex::default(),
        };
        let standalone = client.link.log.listen().unwrap();
        client.read(None, standalone);
        client
    }

    fn read(&self, key: Option<RequestId>, cursor: StreamCursor) {
        self.link.log.publish(cursor.stream);
        let streams = Arc::clone(&self.streams);
        streams.lock().insert(key.clone(), ReadStream::default());
        let mut reader = StreamReader::new(Arc::clone(&self.link.log), cursor);
        let reading = tokio::spawn(async move {
            while let Some(event) = reader.next().await {
                let text = String::from_utf8(event.data.to_vec()).unwrap();
                streams.lock().get_mut(&key).unwrap().texts.push(text);
            }
            streams.lock().get_mut(&key).unwrap().has_ended = true;
        });
        self.readers.lock().push(reading);
    }
}

#[async_trait]
impl ClientScene for StreamableClient {
    fn link(&self) -> Arc<dyn ClientLink> {
        self.link.clone()
    }

    async fn open_request(&self, id: &RequestId) {
        let cursor = self.link.log.open(std::slice::from_ref(id)).unwrap();
        self.read(Some(id.clone()), cursor);
    }

    fn received(&self, route: &Route) -> Vec<String> {
        let key = match route {
            Route::Related(id) => Some(id.clone()),
            Route::Standalone => None,
        };
        let streams = self.streams.lock();
        let stream = streams.get(&key);
        stream.map_or_else(Vec::new, |stream| stream.texts.clone())
    }

    fn has_stream_ended(&self, id: &RequestId) -> Option<bool> {
        let streams = self.streams.lock();
        let stream = streams.get(&Some(id.clone()));
        stream.map(|stream| stream.has_ended)
    }

    fn has_session_ended(&self) -> bool {
        self.streams.lock().values().all(|stream| stream.has_ended)
    }

    async fn leave(&self) {
        let readers = std::mem::take(&mut *self.readers.lock());
        for reader in readers {
            reader.abort();
            let _ = reader.await;
        }
    }
}

riglm_ports::client_link_contract!(streamable, ready(Box::new(StreamableClient::new())));

/// A client over HTTP+SSE, which reads its only stream.
#[derive(Debug)]
struct SseClient {
    link: Arc<SseLink>,
    texts: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl SseClient {
    fn new() -> Self {
        let (link, mut events) = SseLink::new();
        let texts = Arc::<Mutex<Vec<String>>>::default();
        let read = Arc::clone(&texts);
        let reader = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let text = std::str::from_utf8(&event.text).unwrap();
                let data = text.strip_prefix("event: message\ndata: ").unwrap();
                read.lock().push(data.trim_end().to_owned());
            }
        });
        Self {
            link: Arc::new(link),
            texts,
            reader,
        }
    }
}

#[async_trait]
impl ClientScene for SseClient {
    fn link(&self) -> Arc<dyn ClientLink> {
        self.link.clone()
    }

    async fn open_request(&self, _id: &RequestId) {}

    fn received(&self, _route: &Route) -> Vec<String> {
        self.texts.lock().clone()
    }

    fn has_stream_ended(&self, _id: &RequestId) -> Option<bool> {
        None
    }

    fn has_session_ended(&self) -> bool {
        self.reader.is_finished()
    }

    async fn leave(&self) {
        self.reader.abort();
        while !self.reader.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}

riglm_ports::client_link_contract!(sse, ready(Box::new(SseClient::new())));
