//! A shared connector over a scripted upstream, and sessions that note what they are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use riglm_app::shared_upstream::SharedConnector;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};

pub(crate) struct Scene {
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) connector: SharedConnector,
}

/// One session: its link, and what it was told.
pub(crate) struct Session {
    pub(crate) link: Arc<dyn UpstreamLink>,
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

#[async_trait]
impl UpstreamEvents for Told {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        let related = related.map(|id| format!(" on {id}")).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{text}{related}"));
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        let text = format!("unanswered {request}: {error}");
        self.0.lock().unwrap().push(text);
    }

    async fn lost(&self, error: UpstreamError) {
        self.0.lock().unwrap().push(format!("lost: {error}"));
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        let connector = SharedConnector::new(upstream.clone());
        Self {
            upstream,
            connector,
        }
    }

    pub(crate) async fn session(&self) -> Session {
        self.session_of(&Principal::local()).await
    }

    pub(crate) async fn session_of(&self, principal: &Principal) -> Session {
        let told = Arc::new(Told::default());
        let link = self.connector.connect(principal, told.clone()).await;
        Session {
            link: link.unwrap(),
            told,
        }
    }

    /// Returns the texts that the server got.
    pub(crate) fn sent(&self) -> Vec<String> {
        let sent = self.upstream.sent();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    /// Lets the server say something that belongs to no stream.
    pub(crate) async fn say(&self, text: &str) {
        self.upstream.say(text, None).await;
        settle().await;
    }
}

impl Session {
    pub(crate) async fn send(&self, text: &str) {
        self.try_send(text).await.unwrap();
    }

    pub(crate) async fn try_send(&self, text: &str) -> Result<(), UpstreamError> {
        let message = Message::from_text(text.into()).unwrap();
        let (Sent::Delivered | Sent::UnderWay(_)) = self.link.send(message).await?;
        settle().await;
        Ok(())
    }

    /// Returns what the session was told since the last time.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.0.lock().unwrap())
    }
}

/// Lets every task do what it can: on a clock that stands still, this sleep ends when all wait.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) fn lost() -> UpstreamError {
    UpstreamError::Lost {
        reason: "it ended".into(),
    }
}
