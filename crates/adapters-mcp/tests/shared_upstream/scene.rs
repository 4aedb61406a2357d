//! Test scene: a shared connector over a scripted upstream, and sessions that record their
//! messages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::shared::SharedConnector;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

pub(crate) struct Scene {
    pub(crate) upstream: Arc<ScriptedUpstream>,
    pub(crate) connector: SharedConnector,
}

/// One session: its link, and its received messages.
pub(crate) struct Session {
    pub(crate) link: Arc<dyn UpstreamLink>,
    told: Arc<RecordedMessages>,
}

#[derive(Debug, Default)]
struct RecordedMessages(Mutex<Vec<String>>);

#[async_trait]
impl UpstreamEvents for RecordedMessages {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        let related = related.map(|id| format!(" on {id}")).unwrap_or_default();
        self.0.lock().push(format!("{text}{related}"));
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        let text = format!("unanswered {request}: {error}");
        self.0.lock().push(text);
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.0.lock().push(format!("lost: {error}"));
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
        let told = Arc::new(RecordedMessages::default());
        let link = self.connector.connect(principal, told.clone()).await;
        Session {
            link: link.unwrap(),
            told,
        }
    }

    /// Returns the texts that the server got.
    pub(crate) fn sent_messages(&self) -> Vec<String> {
        let sent = self.upstream.sent_messages();
        sent.into_iter().map(|(_, text)| text).collect()
    }

    /// Sends a message of the server that belongs to no stream.
    pub(crate) async fn say(&self, text: &str) {
        self.upstream.send_to_client(text, None).await;
        settle().await;
    }
}

impl Session {
    pub(crate) async fn send(&self, text: &str) {
        self.try_send(text).await.unwrap();
    }

    pub(crate) async fn try_send(&self, text: &str) -> Result<(), UpstreamError> {
        let message = Message::from_text(text.into()).unwrap();
        let (SendOutcome::Delivered | SendOutcome::UnderWay(_)) = self.link.send(message).await?;
        settle().await;
        Ok(())
    }

    /// Returns the messages to the session since the last call of this function.
    pub(crate) fn received_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.0.lock())
    }
}

/// Runs every task until all wait: with a paused clock, this sleep ends only then.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) fn lost_error() -> UpstreamError {
    UpstreamError::Lost {
        reason: "it ended".into(),
    }
}
