//! The link of a client with a response for each request fulfils the contract of client links, and
//! so does the link of an agent, which is made from it.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;

use riglm_domain::mcp::message::RequestId;
use riglm_ports::contract::downstream::ClientScene;
use tokio::task::JoinHandle;

use super::*;
use crate::downstream::http::sdk::AgentLink;

/// A client, which reads the response to each of its requests.
struct Client {
    scene: Scene,
    link: Arc<dyn ClientLink>,
    responses: Arc<Mutex<HashMap<RequestId, ReadResponse>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct ReadResponse {
    texts: Vec<String>,
    has_ended: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.responses.lock().fmt(f)
    }
}

impl Client {
    fn new() -> Self {
        Self::behind(|link| link)
    }

    /// Returns a client whose link is made from that of the scene.
    fn behind<L: ClientLink + 'static>(wrap: impl FnOnce(Arc<ModernLink>) -> Arc<L>) -> Self {
        let scene = Scene::new();
        Self {
            link: wrap(Arc::clone(&scene.link)),
            scene,
            responses: Arc::default(),
            readers: Mutex::default(),
        }
    }
}

#[async_trait]
impl ClientScene for Client {
    fn link(&self) -> Arc<dyn ClientLink> {
        Arc::clone(&self.link)
    }

    async fn open_request(&self, id: &RequestId) {
        let mut body = self.scene.listen(id.to_json().parse().unwrap());
        let (responses, id) = (Arc::clone(&self.responses), id.clone());
        responses.lock().insert(id.clone(), ReadResponse::default());
        let reader = tokio::spawn(async move {
            while let Some(chunk) = chunk(&mut body).await {
                let mut responses = responses.lock();
                let data = chunk.lines().filter_map(|line| line.strip_prefix("data: "));
                let response = responses.get_mut(&id).unwrap();
                response.texts.extend(data.map(str::to_owned));
            }
            responses.lock().get_mut(&id).unwrap().has_ended = true;
        });
        self.readers.lock().push(reader);
    }

    fn received(&self, route: &Route) -> Vec<String> {
        let responses = self.responses.lock();
        let Route::Related(id) = route else {
            return Vec::new();
        };
        let response = responses.get(id);
        response.map_or_else(Vec::new, |response| response.texts.clone())
    }

    fn has_stream_ended(&self, id: &RequestId) -> Option<bool> {
        let responses = self.responses.lock();
        responses.get(id).map(|response| response.has_ended)
    }

    /// Without a session at its transport, the client sees the end of its responses.
    fn has_session_ended(&self) -> bool {
        self.responses.lock().values().all(|it| it.has_ended)
    }

    fn has_standalone(&self) -> bool {
        false
    }

    async fn leave(&self) {
        let readers = std::mem::take(&mut *self.readers.lock());
        for reader in readers {
            reader.abort();
            let _ = reader.await;
        }
    }
}

riglm_ports::client_link_contract!(client_link, ready(Box::new(Client::new())));
riglm_ports::client_link_contract!(
    agent_link,
    ready(Box::new(Client::behind(|link| Arc::new(AgentLink::new(
        link
    )))))
);
