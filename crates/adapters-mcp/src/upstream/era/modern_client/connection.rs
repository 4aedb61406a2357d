//! One legacy connection from its opening to its end. It is never reopened; a new connection
//! replaces it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use tokio::sync::{SetOnce, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::welcome::{Hello, Welcome};
use riglm_adapters_programs::Link;

#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open,
    Over(UpstreamError),
}

/// The sender for the answer to a request of the bridge.
type AnswerSender = oneshot::Sender<Result<Message, UpstreamError>>;

#[derive(Debug)]
pub(super) struct Connection {
    /// A number that is unique in the link.
    pub(super) number: u64,
    /// The description of the client for the handshake.
    pub(super) hello: Arc<Hello>,
    // Locked while subscriptions change, so that an unsubscription cannot overtake a new
    // subscription.
    pub(super) subscribing: tokio::sync::Mutex<()>,
    link: SetOnce<Link>,
    phase: watch::Sender<Phase>,
    welcome: OnceLock<Arc<Welcome>>,
    own: Mutex<HashMap<RequestId, AnswerSender>>,
    used: Mutex<Instant>,
    /// Whether it is a process that another connection can take over.
    is_process: AtomicBool,
    /// Whether it carried other requests than those for lists.
    has_calls: AtomicBool,
    leaving: CancellationToken,
    over: CancellationToken,
}

impl Connection {
    /// Returns a connection that is not open yet.
    pub(super) fn new(number: u64, hello: Arc<Hello>) -> Self {
        Self {
            number,
            hello,
            subscribing: tokio::sync::Mutex::new(()),
            link: SetOnce::new(),
            phase: watch::Sender::new(Phase::Opening),
            welcome: OnceLock::new(),
            own: Mutex::default(),
            used: Mutex::new(Instant::now()),
            is_process: AtomicBool::new(false),
            has_calls: AtomicBool::new(false),
            leaving: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    /// Sets the sending half. Waiting messages are then sent.
    pub(super) fn take_link(&self, link: Link) {
        let is_process = link.time_to_start().is_some();
        self.is_process.store(is_process, Ordering::Relaxed);
        // The connection is opened once, so an error cannot occur.
        let _ = self.link.set(link);
    }

    /// Returns the time that the server still has for its first answer.
    pub(super) fn time_to_start(&self) -> Option<Duration> {
        self.link.get()?.time_to_start()
    }

    /// Registers a request of the client with this method.
    pub(super) fn note_request(&self, method: &str) {
        let leaves_no_trace = method == method::SERVER_DISCOVER || method.ends_with("/list");
        self.has_calls.fetch_or(!leaves_no_trace, Ordering::Relaxed);
    }

    /// Returns whether another connection can go on with the process of this one.
    pub(super) fn can_be_handed_over(&self) -> bool {
        self.is_process.load(Ordering::Relaxed) && !self.has_calls.load(Ordering::Relaxed)
    }

    /// Sets the connection up with the handshake of the client `hello`.
    ///
    /// # Errors
    ///
    /// Returns the reason of the failure. The connection is then of no use.
    pub(super) async fn set_up(&self, limit: Duration) -> Result<(), UpstreamError> {
        let answer = self.ask(self.hello.initialize(), limit).await?;
        let result = answer
            .single()
            .filter(|envelope| envelope.kind() == MessageKind::Success)
            .and_then(|envelope| answer.result(envelope))
            .ok_or_else(|| UpstreamError::from_refusal(&answer))?;
        let welcome = Arc::new(Welcome::read(result));
        // The connection is set up once, so an error cannot occur.
        let _ = self.welcome.set(Arc::clone(&welcome));
        let initialized = Message::notification(method::NOTIFICATIONS_INITIALIZED, None);
        self.send(initialized).await?;
        if welcome.has_logging()
            && let Some(set_level) = self.hello.set_level()
        {
            // A server that refuses the level can still serve the request.
            self.ask(set_level, limit).await?;
        }
        self.phase.send_if_modified(|phase| {
            let is_opening = matches!(phase, Phase::Opening);
            if is_opening {
                *phase = Phase::Open;
            }
            is_opening
        });
        Ok(())
    }

    /// Waits until the connection is set up and returns the server's description of itself.
    ///
    /// # Errors
    ///
    /// Returns the reason why the connection ended.
    pub(super) async fn wait_open(&self) -> Result<Arc<Welcome>, UpstreamError> {
        let mut phase = self.phase.subscribe();
        let found = phase
            .wait_for(|phase| !matches!(phase, Phase::Opening))
            .await;
        match (found.as_deref(), self.welcome()) {
            (Ok(Phase::Over(error)), _) => Err(error.clone()),
            (Ok(Phase::Open), Some(welcome)) => Ok(welcome),
            _ => Err(connection_lost()),
        }
    }

    /// Returns the server's description of itself, or `None` before the connection is set up.
    pub(super) fn welcome(&self) -> Option<Arc<Welcome>> {
        self.welcome.get().cloned()
    }

    /// Retires the connection. New requests use another one.
    pub(super) fn retire(&self) {
        self.leaving.cancel();
    }

    /// Waits until the connection is retired.
    pub(super) async fn wait_retired(&self) {
        self.leaving.cancelled().await;
    }

    /// Marks the connection as ended and fails all waiting requests of the bridge.
    pub(super) fn end(&self, error: UpstreamError) {
        let waiting = std::mem::take(&mut *self.own.lock());
        for answered in waiting.into_values() {
            // The receiver may have given up.
            let _ = answered.send(Err(error.clone()));
        }
        self.phase.send_replace(Phase::Over(error));
        self.leaving.cancel();
        self.over.cancel();
    }

    pub(super) async fn close(&self) {
        if let Some(link) = self.link.get() {
            link.close().await;
        }
    }

    /// Sends a message and returns when it has been sent.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server did not receive it.
    pub(super) async fn send(&self, message: Message) -> Result<(), UpstreamError> {
        let link = tokio::select! {
            biased;
            link = self.link.wait() => link,
            () = self.over.cancelled() => return Err(connection_lost()),
        };
        if let SendOutcome::UnderWay(exchange) = link.send(message).await? {
            let over = self.over.clone();
            let run = exchange.run;
            tokio::spawn(async move {
                tokio::select! {
                    () = run => {}
                    () = over.cancelled() => {}
                }
            });
            exchange.on_its_way.await;
        }
        Ok(())
    }

    /// Sends a request of the bridge and waits for its answer.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no answer within `limit`.
    pub(super) async fn ask(
        &self,
        message: Message,
        limit: Duration,
    ) -> Result<Message, UpstreamError> {
        let Some(id) = message.request_ids().next().cloned() else {
            return Err(UpstreamError::NoAnswer);
        };
        let (answered, answer) = oneshot::channel();
        self.own.lock().insert(id.clone(), answered);
        let asked = async {
            self.send(message).await?;
            answer.await.unwrap_or_else(|_| Err(connection_lost()))
        };
        let asked = tokio::select! {
            asked = tokio::time::timeout(limit, asked) => asked,
            () = self.over.cancelled() => Ok(Err(connection_lost())),
        };
        self.own.lock().remove(&id);
        asked.unwrap_or(Err(UpstreamError::NoAnswer))
    }

    /// Passes the answer to a request of the bridge to its receiver. Returns the answer if it
    /// belongs to another request.
    pub(super) fn take_own(
        &self,
        id: &RequestId,
        answer: Result<Message, UpstreamError>,
    ) -> Option<Result<Message, UpstreamError>> {
        let Some(answered) = self.own.lock().remove(id) else {
            return Some(answer);
        };
        // The receiver may have given up.
        let _ = answered.send(answer);
        None
    }

    /// Registers a use of the connection.
    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns the time of the last use.
    pub(super) fn last_used(&self) -> Instant {
        *self.used.lock()
    }
}

/// Returns the error for requests whose connection ended.
pub(super) fn connection_lost() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
