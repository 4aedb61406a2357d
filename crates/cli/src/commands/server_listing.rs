//! The tools of a server, listed once over a connection of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_adapters_mcp::upstream::{Guard, UpstreamConfig, UpstreamConfigError, connector};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector as _, UpstreamError, UpstreamEvents, UpstreamLink,
};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// The maximum number of tools.
const MAX_TOOLS: usize = 10_000;
/// The maximum number of pages. A server may send the same page for ever.
const MAX_PAGES: usize = 1_000;
/// The maximum number of messages that wait to be read.
const MAX_WAITING: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) description: String,
    /// The JSON text of the definition, as the server sent it.
    pub(super) definition: String,
}

/// The reason why the tools of a server are unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListingError {
    #[error(transparent)]
    Config(#[from] UpstreamConfigError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("it did not list its tools within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("its list of tools is malformed")]
    Malformed,
    #[error("it has more than {MAX_TOOLS} tools")]
    TooMany,
    #[error("its list of tools has more than {MAX_PAGES} pages")]
    TooManyPages,
}

/// Connects to servers to list their tools.
#[derive(Debug)]
pub(super) struct ServerLister<'a> {
    guard: Option<Arc<Guard>>,
    bridge: BridgeOptions,
    data_dir: &'a Path,
    limit: Duration,
}

impl<'a> ServerLister<'a> {
    /// Creates a lister. `guard` ends the programs of servers with riglm, and `data_dir` has the
    /// tokens of logins. `limit` is the time limit for each server.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub(super) fn new(
        guard: Option<Arc<Guard>>,
        data_dir: &'a Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let mut state_key = [0; 32];
        getrandom::fill(&mut state_key).context("failed to get random numbers")?;
        Ok(Self {
            guard,
            bridge: BridgeOptions::new(state_key),
            data_dir,
            limit,
        })
    }

    /// Returns the tools of a server. Its program is started and ended.
    ///
    /// # Errors
    ///
    /// Returns [`ListingError`] if the server cannot be used.
    pub(super) async fn tools(
        &self,
        name: &UpstreamName,
        config: &UpstreamConfig,
    ) -> Result<Vec<ListedTool>, ListingError> {
        let transport = connector(name.clone(), config, self.guard.clone(), self.data_dir)?;
        let upstream = EraConnector::new(transport, self.bridge.clone());
        let (sender, answers) = mpsc::channel(MAX_WAITING);
        let events = Arc::new(AnswerQueue(sender));
        let principal = Principal::local();
        let deadline = Instant::now() + self.limit;
        let timed_out = || ListingError::TimedOut(self.limit);
        let connecting = timeout_at(deadline, upstream.connect(&principal, events)).await;
        let link = connecting.map_err(|_| timed_out())??;
        let mut conversation = Conversation {
            link: link.as_ref(),
            answers,
            n_requests: 0,
        };
        let listed = timeout_at(deadline, conversation.list()).await;
        link.close().await;
        listed.unwrap_or_else(|_| Err(timed_out()))
    }
}

/// One request after the other over a connection.
struct Conversation<'a> {
    link: &'a dyn UpstreamLink,
    answers: mpsc::Receiver<Result<Message, UpstreamError>>,
    n_requests: u32,
}

/// The result of `tools/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage {
    tools: Vec<Box<RawValue>>,
    /// Sent back as the JSON text that it came in, because some servers compare it.
    next_cursor: Option<Box<RawValue>>,
}

/// The members of a definition that are read.
#[derive(Deserialize)]
struct Definition {
    name: String,
    description: Option<String>,
}

impl Conversation<'_> {
    async fn list(&mut self) -> Result<Vec<ListedTool>, ListingError> {
        let params = json!({
            "protocolVersion": Revision::NEWEST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "riglm", "version": env!("CARGO_PKG_VERSION")},
        });
        self.request(method::INITIALIZE, &params.to_string())
            .await?;
        let initialized = Message::notification(method::NOTIFICATIONS_INITIALIZED, None);
        if let SendOutcome::UnderWay(exchange) = self.link.send(initialized).await? {
            exchange.run.await;
        }
        let mut tools = Vec::new();
        let mut params = "{}".to_owned();
        for _ in 0..MAX_PAGES {
            let result = self.request(method::TOOLS_LIST, &params).await?;
            let page: ToolPage =
                serde_json::from_str(&result).map_err(|_| ListingError::Malformed)?;
            for tool in page.tools {
                let definition: Definition =
                    serde_json::from_str(tool.get()).map_err(|_| ListingError::Malformed)?;
                tools.push(ListedTool {
                    name: definition.name,
                    description: definition.description.unwrap_or_default(),
                    definition: tool.get().to_owned(),
                });
            }
            if tools.len() > MAX_TOOLS {
                return Err(ListingError::TooMany);
            }
            params = match page.next_cursor.as_deref().map(RawValue::get) {
                None | Some("\"\"") => return Ok(tools),
                Some(cursor) if cursor.starts_with('"') => format!(r#"{{"cursor":{cursor}}}"#),
                Some(_) => return Err(ListingError::Malformed),
            };
        }
        Err(ListingError::TooManyPages)
    }

    /// Sends a request, and returns the JSON text of its result.
    async fn request(&mut self, method: &str, params: &str) -> Result<String, ListingError> {
        self.n_requests += 1;
        let id = RequestId::Number(self.n_requests.to_string().into());
        let message = Message::request(&id, method, Some(params));
        let sent = self.link.send(message).await?;
        let answers = &mut self.answers;
        let answered = async {
            let lost = || Err(UpstreamError::NoAnswer);
            let answer = answers.recv().await.unwrap_or_else(lost)?;
            let envelope = answer.single();
            let result = (envelope.filter(|envelope| envelope.kind() == MessageKind::Success))
                .and_then(|envelope| answer.result(envelope));
            match result {
                Some(result) => Ok(result.to_owned()),
                None => Err(UpstreamError::from_refusal(&answer)),
            }
        };
        tokio::pin!(answered);
        if let SendOutcome::UnderWay(exchange) = sent {
            tokio::select! {
                biased;
                result = &mut answered => return Ok(result?),
                () = exchange.run => {}
            }
        }
        Ok(answered.await?)
    }
}

/// Receives the answers of a connection. Other messages are ignored.
#[derive(Debug)]
struct AnswerQueue(mpsc::Sender<Result<Message, UpstreamError>>);

#[async_trait]
impl UpstreamEvents for AnswerQueue {
    async fn on_message(&self, message: Message, _related: Option<RequestId>) {
        let is_answer = message.single().is_some_and(|envelope| {
            matches!(envelope.kind(), MessageKind::Success | MessageKind::Failure)
        });
        if is_answer {
            // The receiver may have given up.
            let _ = self.0.send(Ok(message)).await;
        }
    }

    async fn on_unanswered(&self, _request: RequestId, error: UpstreamError) {
        let _ = self.0.send(Err(error)).await;
    }

    async fn on_lost(&self, error: UpstreamError) {
        let _ = self.0.send(Err(error)).await;
    }
}
