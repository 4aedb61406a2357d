//! One legacy connection from its opening to its end. It is never opened again: what comes after
//! it is another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use riglm_domain::message::{Kind, Message, RequestId};
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamLink};
use tokio::sync::{SetOnce, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::welcome::{Hello, Welcome};

/// The id of the handshake.
const INITIALIZE_ID: &str = "riglm:init";
/// The id of the request for log messages.
const SET_LEVEL_ID: &str = "riglm:log-level";
/// The last message of the handshake.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// How far a connection is.
#[derive(Clone, Debug)]
enum Phase {
    Opening,
    Open,
    Over(UpstreamError),
}

/// Where the answer to a request of the bridge's own goes.
type Answered = oneshot::Sender<Result<Message, UpstreamError>>;

/// One legacy connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its number, different from that of any other of the same link.
    pub(super) number: u64,
    /// What the client says of itself on it.
    pub(super) hello: Arc<Hello>,
    /// Held while subscriptions change, so that an end of one cannot overtake the start of another.
    pub(super) subscribing: tokio::sync::Mutex<()>,
    link: SetOnce<Arc<dyn UpstreamLink>>,
    phase: watch::Sender<Phase>,
    welcome: OnceLock<Arc<Welcome>>,
    own: Mutex<HashMap<RequestId, Answered>>,
    used: Mutex<Instant>,
    leaving: CancellationToken,
    over: CancellationToken,
}

impl Connection {
    /// Returns a connection that is to be opened.
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
            leaving: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    /// Takes the sending half; what waits to be sent goes out.
    pub(super) fn take_link(&self, link: Arc<dyn UpstreamLink>) {
        // The connection is opened once, so that there is no other.
        let _ = self.link.set(link);
    }

    /// Sets the connection up as the client of `hello` would.
    ///
    /// # Errors
    ///
    /// Returns why that failed; the connection is of no use then.
    pub(super) async fn set_up(&self, limit: Duration) -> Result<(), UpstreamError> {
        let unspoken = || UpstreamError::Garbled {
            reason: "the handshake was refused",
        };
        let initialize = self.hello.initialize(INITIALIZE_ID).ok_or_else(unspoken)?;
        let answer = self.ask(initialize, limit).await?;
        let result = answer
            .single()
            .filter(|envelope| envelope.kind() == Kind::Success)
            .and_then(|envelope| answer.result(envelope))
            .ok_or_else(|| UpstreamError::refused(&answer))?;
        let welcome = Arc::new(Welcome::read(result));
        // The connection is set up once, so that nothing is there yet.
        let _ = self.welcome.set(Arc::clone(&welcome));
        if let Ok(initialized) = Message::from_text(INITIALIZED.into()) {
            self.send(initialized).await?;
        }
        if welcome.has_logging()
            && let Some(set_level) = self.hello.set_level(SET_LEVEL_ID)
        {
            // A server that refuses the level still serves the request.
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

    /// Waits until the connection is set up, and returns what the server said of itself.
    ///
    /// # Errors
    ///
    /// Returns why the connection is over.
    pub(super) async fn opened(&self) -> Result<Arc<Welcome>, UpstreamError> {
        let mut phase = self.phase.subscribe();
        let found = phase
            .wait_for(|phase| !matches!(phase, Phase::Opening))
            .await;
        match (found.as_deref(), self.welcome()) {
            (Ok(Phase::Over(error)), _) => Err(error.clone()),
            (Ok(Phase::Open), Some(welcome)) => Ok(welcome),
            _ => Err(lost()),
        }
    }

    /// Returns what the server said of itself; nothing before the connection was set up.
    pub(super) fn welcome(&self) -> Option<Arc<Welcome>> {
        self.welcome.get().cloned()
    }

    /// Takes the connection out of use: what is new goes over another one.
    pub(super) fn leave(&self) {
        self.leaving.cancel();
    }

    /// Ends when the connection is out of use.
    pub(super) async fn left(&self) {
        self.leaving.cancelled().await;
    }

    /// Takes the connection for over. Nobody waits for it any longer.
    pub(super) fn end(&self, error: UpstreamError) {
        let waiting = std::mem::take(&mut *self.own());
        for answered in waiting.into_values() {
            // Who asked may have given up.
            let _ = answered.send(Err(error.clone()));
        }
        self.phase.send_replace(Phase::Over(error));
        self.leaving.cancel();
        self.over.cancel();
    }

    /// Closes the sending half.
    pub(super) async fn close(&self) {
        if let Some(link) = self.link.get() {
            link.close().await;
        }
    }

    /// Sends a message; returns when it is on its way.
    ///
    /// # Errors
    ///
    /// Returns why the server did not get it.
    pub(super) async fn send(&self, message: Message) -> Result<(), UpstreamError> {
        let link = tokio::select! {
            biased;
            link = self.link.wait() => link,
            () = self.over.cancelled() => return Err(lost()),
        };
        if let Sent::UnderWay(exchange) = link.send(message).await? {
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

    /// Sends a request of the bridge's own and waits for its answer.
    ///
    /// # Errors
    ///
    /// Returns why there is none within `limit`.
    pub(super) async fn ask(
        &self,
        message: Message,
        limit: Duration,
    ) -> Result<Message, UpstreamError> {
        let Some(id) = message.request_ids().next().cloned() else {
            return Err(UpstreamError::NoAnswer);
        };
        let (answered, answer) = oneshot::channel();
        self.own().insert(id.clone(), answered);
        let asked = async {
            self.send(message).await?;
            answer.await.unwrap_or_else(|_| Err(lost()))
        };
        let asked = tokio::select! {
            asked = tokio::time::timeout(limit, asked) => asked,
            () = self.over.cancelled() => Ok(Err(lost())),
        };
        self.own().remove(&id);
        asked.unwrap_or(Err(UpstreamError::NoAnswer))
    }

    /// Hands the answer to a request of the bridge's own to who asked; gives it back if it answers
    /// none.
    pub(super) fn take_own(
        &self,
        id: &RequestId,
        answer: Result<Message, UpstreamError>,
    ) -> Option<Result<Message, UpstreamError>> {
        let Some(answered) = self.own().remove(id) else {
            return Some(answer);
        };
        // Who asked may have given up.
        let _ = answered.send(answer);
        None
    }

    /// Notes that the connection is in use.
    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when the connection was last used.
    pub(super) fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, HashMap<RequestId, Answered>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for what was lost with its connection.
pub(super) fn lost() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
