//! One client session and the connections that stand behind it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{
    Exchange, Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::detection::Answer;
use super::super::legacy_client::LegacyClientLink;
use super::super::options::BridgeOptions;
use super::memory::Memory;
use super::receiver::Receiver;

/// How many connections that were replaced may wait for the end of the session.
const MAX_RETIRED: usize = 4;

/// A connection to the upstream, which both eras may use.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub(super) link: Arc<dyn UpstreamLink>,
    pub(super) receiver: Arc<Receiver>,
    /// Something other than a probe went over it.
    pub(super) is_used: bool,
}

/// Where messages go.
#[derive(Debug)]
pub(super) enum Face {
    /// It has to be found out; over the connection if there is one.
    Undecided(Option<Arc<dyn UpstreamLink>>),
    /// Through, whatever they are: the upstream answered a handshake.
    Legacy(Arc<dyn UpstreamLink>),
    /// Through, as long as what was known at `epoch` holds.
    Modern { inner: Inner, epoch: u64 },
    /// To the bridge for a legacy client.
    LegacyClient(Arc<LegacyClientLink>),
    /// To the bridge for a modern client, likewise.
    ModernClient {
        link: Arc<dyn UpstreamLink>,
        epoch: u64,
    },
    /// Nowhere.
    Closed,
}

/// The place of the connection. Who holds the lock is the only one to find something out; every
/// holder has a deadline.
pub(super) type Place = OwnedMutexGuard<Option<Inner>>;

/// The links that have to be closed at the end.
#[derive(Debug, Default)]
struct Links {
    /// The connection that is up.
    opened: Option<Arc<dyn UpstreamLink>>,
    /// Those that may still have requests in flight though new ones go elsewhere.
    retired: Vec<Arc<dyn UpstreamLink>>,
}

/// Where the client session meets the connections behind it.
#[derive(Debug)]
pub(super) struct Junction {
    pub(super) connector: Arc<dyn UpstreamConnector>,
    pub(super) memory: Arc<Memory>,
    pub(super) principal: Principal,
    pub(super) events: Arc<dyn UpstreamEvents>,
    pub(super) options: BridgeOptions,
    pub(super) face: ArcSwap<Face>,
    pub(super) place: Arc<tokio::sync::Mutex<Option<Inner>>>,
    links: Mutex<Links>,
    pub(super) closing: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Junction {
    /// Returns a junction without a connection.
    pub(super) fn new(
        connector: Arc<dyn UpstreamConnector>,
        memory: Arc<Memory>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        Self {
            connector,
            memory,
            principal,
            events,
            options,
            face: ArcSwap::from_pointee(Face::Undecided(None)),
            place: Arc::default(),
            links: Mutex::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns the connection that is up, or makes one.
    pub(super) async fn open(self: &Arc<Self>, place: &mut Place) -> Result<Inner, UpstreamError> {
        if let Some(inner) = place.as_ref().filter(|inner| !inner.receiver.is_over()) {
            return Ok(inner.clone());
        }
        let receiver = Arc::new(Receiver::new(Arc::downgrade(self)));
        let connecting = self.connector.connect(&self.principal, receiver.clone());
        let link = tokio::select! {
            link = connecting => link?,
            () = self.closing.cancelled() => return Err(closed()),
        };
        let is_closing = {
            let mut links = self.links();
            links.opened = Some(Arc::clone(&link));
            self.closing.is_cancelled()
        };
        if is_closing {
            if let Some(link) = self.take_opened() {
                link.close().await;
            }
            return Err(closed());
        }
        receiver.receives_from(&link);
        let inner = Inner {
            link: Arc::clone(&link),
            receiver,
            is_used: false,
        };
        **place = Some(inner.clone());
        if matches!(&**self.face.load(), Face::Undecided(_)) {
            self.settle(Face::Undecided(Some(link)));
        }
        Ok(inner)
    }

    /// Returns the connection for a message of the client. One that cannot be made is reported as
    /// lost, since the session believes in it.
    pub(super) async fn open_for_client(
        self: &Arc<Self>,
        place: &mut Place,
    ) -> Result<Inner, UpstreamError> {
        match self.open(place).await {
            Ok(inner) => {
                if let Some(inner) = place.as_mut() {
                    inner.is_used = true;
                }
                Ok(inner)
            }
            Err(error) => {
                self.events.lost(error.clone()).await;
                Err(error)
            }
        }
    }

    /// Closes the connection and forgets it.
    pub(super) async fn discard(&self, place: &mut Place) {
        if let Some(inner) = place.take() {
            inner.receiver.retire();
            if let Some(link) = self.take_opened() {
                link.close().await;
            }
        }
    }

    /// Sends a request on the bridge's behalf and waits for its answer; `None` is none in time.
    pub(super) async fn ask(
        &self,
        inner: &Inner,
        id: &RequestId,
        request: Message,
        limit: Duration,
    ) -> Option<Answer> {
        let answer = inner.receiver.expect(id.clone());
        let asked = async {
            match inner.link.send(request).await {
                Ok(Sent::UnderWay(exchange)) => self.drive(exchange),
                Ok(Sent::Delivered) => {}
                Err(error) => return Err(error),
            }
            answer.await.unwrap_or_else(|_| Err(closed()))
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(limit, asked) => answer.ok(),
            () = self.closing.cancelled() => Some(Err(closed())),
        };
        inner.receiver.expect_no_more(id);
        answer
    }

    /// Has an exchange run to its end.
    pub(super) fn drive(&self, exchange: Exchange) {
        self.spawn(exchange.run);
    }

    /// Runs something until it ends or the link is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Lets messages go another way from now on, unless the link is closed.
    pub(super) fn settle(&self, face: Face) {
        let mut links = self.links();
        if self.closing.is_cancelled() {
            return;
        }
        let old = self.face.swap(Arc::new(face));
        if let Face::ModernClient { link, .. } = &*old {
            links.retired.push(Arc::clone(link));
            if links.retired.len() > MAX_RETIRED {
                let oldest = links.retired.remove(0);
                self.tasks.spawn(async move { oldest.close().await });
            }
        }
    }

    fn take_opened(&self) -> Option<Arc<dyn UpstreamLink>> {
        self.links().opened.take()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything. `closing` was cancelled before.
    pub(super) async fn close(&self) {
        let (face, links) = {
            let mut links = self.links();
            let face = self.face.swap(Arc::new(Face::Closed));
            (face, std::mem::take(&mut *links))
        };
        match &*face {
            Face::LegacyClient(client) => client.close().await,
            Face::ModernClient { link, .. } => link.close().await,
            _ => {}
        }
        // Without the place: who holds it may wait for this very connection.
        for link in links.retired.into_iter().chain(links.opened) {
            link.close().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Returns the error for what is sent over a link that was closed.
pub(super) fn closed() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}
