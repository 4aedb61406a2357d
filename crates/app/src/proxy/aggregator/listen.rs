//! Notification streams (`subscriptions/listen`) over several upstreams. A stream of the client
//! consists of one stream per upstream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::downstream::Route;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fan_out::RequestOrigin;
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::list_kind::ListChange;
use crate::proxy::session::ClientSession;
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_session::UpstreamSession;

/// The timeout for acknowledgements of upstreams. Afterwards the stream is acknowledged without the
/// late ones.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(2);
/// The back-off before the ended stream of an upstream is reopened.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// The maximum number of resources of one stream.
const MAX_URIS: usize = 1_024;

/// The open notification streams of the client.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ListenStreams(Mutex<HashMap<RequestId, Arc<ListenStream>>>);

impl ListenStreams {
    fn add(&self, stream: &Arc<ListenStream>) {
        self.0.lock().insert(stream.id.clone(), Arc::clone(stream));
    }

    /// Ends the stream of this request, if it has one.
    pub(in crate::proxy) fn close(&self, id: &RequestId) {
        let stream = self.0.lock().remove(id);
        if let Some(stream) = stream {
            stream.cancel.cancel();
        }
    }

    /// Returns all open streams.
    pub(super) fn all(&self) -> Vec<Arc<ListenStream>> {
        self.0.lock().values().cloned().collect()
    }
}

/// A notification stream of the client.
#[derive(Debug)]
pub(super) struct ListenStream {
    id: RequestId,
    request: Message,
    kinds: BTreeSet<ListChange>,
    uris: Vec<String>,
    cancel: CancellationToken,
    /// The upstream sessions that have acknowledged, and the resources that they confirmed.
    acknowledged: Mutex<Acknowledgements>,
    /// The upstream sessions whose streams are part of it.
    attached: Mutex<BTreeSet<u64>>,
    progress: watch::Sender<StreamStage>,
}

#[derive(Debug, Default)]
struct Acknowledgements {
    members: BTreeSet<u64>,
    uris: BTreeSet<String>,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StreamStage {
    n_acknowledged: usize,
    /// Whether the client got the acknowledgement.
    is_open: bool,
}

impl ListenStream {
    fn new(message: &Message, id: RequestId, cancel: CancellationToken) -> Self {
        let params = message.single().and_then(|part| message.params(part));
        let filter = params.and_then(|params| edit::member(params, "notifications"));
        let filter: Value = filter
            .and_then(|filter| serde_json::from_str(filter).ok())
            .unwrap_or_default();
        let kinds = ListChange::ALL.into_iter();
        let uris = filter["resourceSubscriptions"].as_array();
        Self {
            id,
            request: message.clone(),
            kinds: kinds
                .filter(|kind| filter[kind.filter()] == Value::Bool(true))
                .collect(),
            uris: uris
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .take(MAX_URIS)
                .map(str::to_owned)
                .collect(),
            cancel,
            acknowledged: Mutex::default(),
            attached: Mutex::default(),
            progress: watch::Sender::new(StreamStage::default()),
        }
    }

    /// Returns whether the stream subscribes to this change and is open.
    pub(super) fn wants(&self, kind: ListChange) -> bool {
        self.kinds.contains(&kind) && self.progress.borrow().is_open
    }

    /// Returns the notification with this method on this stream.
    pub(super) fn notification(&self, method: &str, mut params: Map<String, Value>) -> Message {
        let id = serde_json::from_str(&self.id.to_json()).unwrap_or(Value::Null);
        params.insert("_meta".into(), json!({ SUBSCRIPTION_ID: id }));
        let params = Value::Object(params).to_string();
        Message::notification(method, Some(&params))
    }

    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// Registers the acknowledgement of an upstream.
    fn acknowledge(&self, number: u64, params: &str) {
        let honoured = edit::member(params, "notifications").unwrap_or("{}");
        let uris: BTreeSet<String> = edit::member(honoured, "resourceSubscriptions")
            .and_then(|uris| serde_json::from_str(uris).ok())
            .unwrap_or_default();
        // The stream subscribes only to its own resources.
        let uris = self.uris.iter().filter(|uri| uris.contains(*uri));
        let n_acknowledged = {
            let mut acknowledged = self.acknowledged.lock();
            acknowledged.members.insert(number);
            acknowledged.uris.extend(uris.cloned());
            acknowledged.members.len()
        };
        (self.progress).send_modify(|stage| stage.n_acknowledged = n_acknowledged);
    }

    /// Returns the acknowledgement for the client. List changes are always confirmed, because the
    /// proxy itself reports them.
    fn acknowledgement(&self) -> Message {
        let honoured = self.acknowledged.lock();
        let mut filter = Map::new();
        for kind in &self.kinds {
            filter.insert(kind.filter().into(), Value::Bool(true));
        }
        let uris: Vec<&String> = self
            .uris
            .iter()
            .filter(|uri| honoured.uris.contains(*uri))
            .collect();
        if !uris.is_empty() {
            filter.insert("resourceSubscriptions".into(), json!(uris));
        }
        let params = Map::from_iter([("notifications".to_owned(), Value::Object(filter))]);
        self.notification("notifications/subscriptions/acknowledged", params)
    }
}

/// Opens a notification stream and keeps it open until it is cancelled.
pub(in crate::proxy) fn listen(
    session: &Arc<ClientSession>,
    message: &Message,
    id: RequestId,
    cancel: CancellationToken,
) -> impl Future<Output = Reply> + Send + 'static {
    let listen = Arc::new(ListenStream::new(message, id, cancel));
    let session = Arc::clone(session);
    async move {
        session.aggregator.streams.add(&listen);
        session.aggregator.lists.reset_notified(&listen.kinds);
        let members = session.members();
        for member in members.iter() {
            if member.costs_start() && listen.uris.is_empty() {
                // It is attached when it is connected for something else.
                listen.acknowledge(member.number, "{}");
            } else {
                attach(&session, &listen, member);
            }
        }
        let mut progress = listen.progress.subscribe();
        let all = progress.wait_for(|stage| stage.n_acknowledged >= members.len());
        // A late upstream is missing in the acknowledgement, but its stream stays.
        let _ = tokio::time::timeout(ACKNOWLEDGED_WITHIN, all).await;
        send_on_stream(&session, &listen, listen.acknowledgement()).await;
        listen.progress.send_modify(|stage| stage.is_open = true);
        listen.cancel.cancelled().await;
        Reply::Nothing
    }
}

/// Keeps the stream of an upstream open as part of a client stream.
fn attach(session: &Arc<ClientSession>, listen: &Arc<ListenStream>, member: &Arc<UpstreamSession>) {
    if !listen.attached.lock().insert(member.number) {
        return;
    }
    let session = Arc::downgrade(session);
    let listen = Arc::clone(listen);
    let member = Arc::clone(member);
    crate::proxy::log_spans::spawn(async move {
        let cancel = listen.cancel.clone();
        let keeping = async {
            let mut failures = FailureStreak::new(BACKOFF).with_sound_lifetime(BACKOFF.max());
            while let Some(session) = session.upgrade() {
                let behalf = RequestOrigin {
                    request: None,
                    listen: Some(Arc::clone(&listen)),
                };
                let opened = Instant::now();
                let ended = ask(&session, &member, &listen.request, behalf).await;
                if member.is_closed() || ended.is_ok_and(|answer| is_final(&answer)) {
                    // The upstream does not support such streams, so the acknowledgement need
                    // not wait for it.
                    listen.acknowledge(member.number, "{}");
                    return;
                }
                drop(session);
                if member.costs_start() && listen.uris.is_empty() {
                    listen.attached.lock().remove(&member.number);
                    return;
                }
                let delay = failures.record_loss(opened.elapsed(), fastrand::f64());
                tokio::time::sleep(delay).await;
            }
        };
        cancel.run_until_cancelled_owned(keeping).await;
    });
}

/// Processes a message on the stream of an upstream.
pub(super) async fn on_stream_notification(
    session: &ClientSession,
    listen: &Arc<ListenStream>,
    number: u64,
    message: Message,
    envelope: &Envelope,
) {
    let params = message.params(envelope).unwrap_or("{}");
    match envelope.method() {
        Some("notifications/subscriptions/acknowledged") => {
            listen.acknowledge(number, params);
            return;
        }
        Some("notifications/cancelled") => return,
        _ => {}
    }
    let mut progress = listen.progress.subscribe();
    let open = progress.wait_for(|stage| stage.is_open);
    let opened = tokio::time::timeout(2 * ACKNOWLEDGED_WITHIN, open);
    let is_open = matches!(opened.await, Ok(Ok(_)));
    if !is_open {
        return; // The stream ended before it was open.
    }
    let id = listen.id().to_json();
    let params = edit::with_meta(params, &[(SUBSCRIPTION_ID, id.as_str())]);
    let route = Route::Related(listen.id().clone());
    session
        .client
        .deliver(message.with_params(&params), route)
        .await;
}

/// Sends a message of the proxy on a stream.
pub(super) async fn send_on_stream(
    session: &ClientSession,
    listen: &ListenStream,
    message: Message,
) {
    let route = Route::Related(listen.id().clone());
    session.client.deliver(message, route).await;
}

/// Adds a new upstream session to all open streams.
pub(super) fn attach_to_all(session: &Arc<ClientSession>, member: &Arc<UpstreamSession>) {
    for listen in session.aggregator.streams.all() {
        attach(session, &listen, member);
    }
}

/// Ends the notification streams from the time when this upstream was the only one. The client
/// reopens them, and the new streams include all upstreams.
pub(super) async fn end_streams_of(session: &Arc<ClientSession>, member: &Arc<UpstreamSession>) {
    let ended = member.listening().into_iter().map(|id| async move {
        let cancelled = Message::cancellation(&id, None);
        let route = Route::Related(id.clone());
        session.client.deliver(cancelled.clone(), route).await;
        if let Err(error) = member.receive(cancelled).await {
            tracing::debug!("failed to end a stream: {}", error.message);
        }
    });
    join_all(ended).await;
}

/// Returns whether an answer to a listen request refuses the stream permanently.
fn is_final(answer: &Message) -> bool {
    let error = answer.single().and_then(|part| answer.error(part));
    error
        .and_then(|error| edit::member(error, "code"))
        .is_some_and(|code| code.starts_with("-32"))
}
