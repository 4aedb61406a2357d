//! The notifications that a legacy client receives, and the stream that supplies them
//! (basic/patterns/subscriptions).
//!
//! This module has only the state. `listening` executes the actions of [`Subscriptions::next_action`].

use std::time::Duration;

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The member of the filter for each capability with list changes.
const KINDS: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];

/// The lifetime after which a stream counts as sound. Its end restarts the back-off.
const SOUND_AFTER: Duration = Duration::from_secs(30);
/// The back-off before a stream is reopened.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_mins(1));
/// The number of consecutive failures after which only a change of the subscriptions opens a new
/// stream.
const MAX_FAILURES: u32 = 10;
/// The maximum number of resources that a client may subscribe to.
const MAX_RESOURCES: usize = 1_024;

/// The notifications that a server supports.
#[derive(Debug, Default)]
pub(super) struct SubscriptionOffer {
    kinds: Vec<&'static str>,
    has_resources: bool,
}

impl SubscriptionOffer {
    /// Reads the capabilities of a server.
    pub(super) fn of(capabilities: &str) -> Self {
        let declares = |capability, what| {
            member(capabilities, capability)
                .is_some_and(|declared| member(declared, what) == Some("true"))
        };
        Self {
            kinds: KINDS
                .into_iter()
                .filter(|(capability, _)| declares(capability, "listChanged"))
                .map(|(_, kind)| kind)
                .collect(),
            has_resources: declares("resources", "subscribe"),
        }
    }
}

/// The outcome of opening a stream, or its end.
#[derive(Debug)]
pub(super) enum StreamOutcome {
    /// The server confirmed these resources, as a JSON array.
    Acknowledged(String),
    /// The server refused with this error, as JSON text.
    Refused(String),
    Ended(UpstreamError),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    Nothing,
    /// No action before this time.
    Later(Instant),
    /// Open a stream with this filter, as JSON text.
    Open(String),
    /// Close the stream, if there is one, because no subscription is left.
    Close(Option<RequestId>),
}

/// The wish of a client that requests a change of its subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionWish {
    Subscribe,
    Unsubscribe,
}

/// A request of the client that waits for a stream.
#[derive(Debug)]
struct WaitingRequest {
    request: RequestId,
    uri: Box<str>,
    wish: SubscriptionWish,
    /// The number of the filter that contains the change.
    filter: u64,
}

/// The answer to a request of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubscriptionReply {
    /// Success.
    Done,
    /// The server does not report changes of this resource.
    NotServed(Box<str>),
    /// The server refused with this error, as JSON text.
    Refused(String),
    /// The server did not answer.
    Unanswered(UpstreamError),
}

#[derive(Debug)]
struct Stream {
    id: RequestId,
    since: Instant,
}

/// The schedule by which a stream is opened again.
#[derive(Debug)]
struct ReopenSchedule {
    failures: FailureStreak,
    retry_at: Option<Instant>,
    /// Whether retries are suspended: the server refused, or too many attempts failed.
    is_given_up: bool,
}

impl Default for ReopenSchedule {
    fn default() -> Self {
        Self {
            failures: FailureStreak::new(BACKOFF).with_sound_lifetime(SOUND_AFTER),
            retry_at: None,
            is_given_up: false,
        }
    }
}

/// The way in which a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// The server does not want the stream.
    Refusal,
    /// The stream broke off.
    Loss,
}

impl ReopenSchedule {
    /// Registers that a stream is open. The failures count until it turns out to be sound.
    fn note_opened(&mut self) {
        self.is_given_up = false;
        self.retry_at = None;
    }

    /// Registers the end of a stream that was open for `lifetime`; of one that never opened, with a
    /// lifetime of zero.
    fn note_ended(&mut self, lifetime: Duration, end: StreamEnd, now: Instant) {
        let wait = self.failures.record_loss(lifetime, fastrand::f64());
        self.is_given_up = end == StreamEnd::Refusal || self.failures.n_failures() >= MAX_FAILURES;
        self.retry_at = Some(now + wait);
    }
}

/// The wanted and the actual subscriptions of one client.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    offer: SubscriptionOffer,
    is_started: bool,
    /// The URIs in the first notation of the client, as JSON text.
    uris: Vec<Box<str>>,
    /// The number of the wanted filter.
    wanted: u64,
    /// The number of the last filter that was tried.
    tried: u64,
    active: Option<Stream>,
    opening: Option<(RequestId, oneshot::Sender<StreamOutcome>)>,
    waiting: Vec<WaitingRequest>,
    reopening: ReopenSchedule,
}

impl Subscriptions {
    /// Stores the supported notifications at a handshake. Earlier subscriptions end with it.
    pub(super) fn set_offer(&mut self, offer: SubscriptionOffer) {
        self.offer = offer;
        self.uris.clear();
        self.wanted += 1;
    }

    /// Starts to listen. Returns whether this is the first start.
    pub(super) fn start(&mut self) -> bool {
        !std::mem::replace(&mut self.is_started, true)
    }

    /// Returns whether the server supports subscriptions to resources.
    pub(super) fn has_resources(&self) -> bool {
        self.offer.has_resources
    }

    /// Changes the subscription to a resource for a request of the client. Returns the answer if no
    /// new stream is needed.
    pub(super) fn change(
        &mut self,
        request: RequestId,
        uri: &str,
        wish: SubscriptionWish,
    ) -> Option<SubscriptionReply> {
        use SubscriptionWish::{Subscribe, Unsubscribe};
        let position = self.uris.iter().position(|known| is_same(known, uri));
        match (position, wish) {
            (Some(position), Unsubscribe) => {
                self.uris.remove(position);
                self.wanted += 1;
            }
            (None, Unsubscribe) => return Some(SubscriptionReply::Done),
            (None, Subscribe) if self.uris.len() >= MAX_RESOURCES => {
                return Some(SubscriptionReply::NotServed(uri.into()));
            }
            (None, Subscribe) => {
                self.uris.push(uri.into());
                self.wanted += 1;
            }
            (Some(_), Subscribe) if self.opening.is_some() || self.wanted != self.tried => {}
            (Some(_), Subscribe) if self.active.is_some() => return Some(SubscriptionReply::Done),
            (Some(_), Subscribe) => self.wanted += 1,
        }
        self.waiting.push(WaitingRequest {
            request,
            uri: uri.into(),
            wish,
            filter: self.wanted,
        });
        None
    }

    /// Removes a request that the client cancelled.
    pub(super) fn forget_request(&mut self, request: &RequestId) {
        self.waiting.retain(|waiting| waiting.request != *request);
    }

    pub(super) fn next_action(&self, now: Instant) -> NextAction {
        if !self.is_started {
            return NextAction::Nothing;
        }
        let Some(filter) = self.filter() else {
            return if self.active.is_some() || !self.waiting.is_empty() {
                NextAction::Close(self.active())
            } else {
                NextAction::Nothing
            };
        };
        if self.wanted != self.tried {
            return NextAction::Open(filter);
        }
        if self.active.is_some() || self.reopening.is_given_up {
            return NextAction::Nothing;
        }
        match self.reopening.retry_at {
            Some(retry) if retry > now => NextAction::Later(retry),
            _ => NextAction::Open(filter),
        }
    }

    /// Removes the stream. Returns the answers to requests that ended the last subscription.
    pub(super) fn forget_stream(&mut self) -> Vec<(RequestId, SubscriptionReply)> {
        self.active = None;
        self.tried = self.wanted;
        let waiting = std::mem::take(&mut self.waiting);
        let done = |waiting: WaitingRequest| (waiting.request, SubscriptionReply::Done);
        waiting.into_iter().map(done).collect()
    }

    /// Registers a stream that is being opened. Returns the number of its filter, and the receiver
    /// of its outcome.
    pub(super) fn open(&mut self, id: RequestId) -> (u64, oneshot::Receiver<StreamOutcome>) {
        let (opened, outcome) = oneshot::channel();
        self.opening = Some((id, opened));
        self.tried = self.wanted;
        (self.tried, outcome)
    }

    /// Registers the acknowledgement of a stream, which replaces the previous one.
    pub(super) fn note_acknowledged(&mut self, id: &RequestId, filter: &str, now: Instant) {
        if let Some((_, opened)) = self.opening.take_if(|(opening, _)| opening == id) {
            let uris = member(filter, "resourceSubscriptions").unwrap_or("[]");
            self.active = Some(Stream {
                id: id.clone(),
                since: now,
            });
            self.reopening.note_opened();
            // The receiver may have given up.
            let _ = opened.send(StreamOutcome::Acknowledged(uris.to_owned()));
        }
    }

    /// Registers the end of a stream. Returns whether there was such a stream.
    pub(super) fn note_ended(&mut self, id: &RequestId, how: StreamOutcome, now: Instant) -> bool {
        if let Some((_, opened)) = self.opening.take_if(|(opening, _)| opening == id) {
            let _ = opened.send(how);
            return true;
        }
        let Some(stream) = self.active.take_if(|active| active.id == *id) else {
            return false;
        };
        let lifetime = now.saturating_duration_since(stream.since);
        let end = match how {
            StreamOutcome::Refused(_) => StreamEnd::Refusal,
            StreamOutcome::Acknowledged(_) | StreamOutcome::Ended(_) => StreamEnd::Loss,
        };
        self.reopening.note_ended(lifetime, end, now);
        true
    }

    /// Returns whether messages on this stream go to the client.
    pub(super) fn is_active(&self, id: &RequestId) -> bool {
        self.active.as_ref().is_some_and(|active| active.id == *id)
    }

    pub(super) fn active(&self) -> Option<RequestId> {
        self.active.as_ref().map(|active| active.id.clone())
    }

    /// Registers the outcome of a stream with this filter. Returns the answers to requests.
    pub(super) fn settle(
        &mut self,
        filter: u64,
        outcome: &StreamOutcome,
        now: Instant,
    ) -> Vec<(RequestId, SubscriptionReply)> {
        self.opening = None;
        let served = match outcome {
            StreamOutcome::Acknowledged(uris) => {
                Some(serde_json::from_str::<Vec<String>>(uris).unwrap_or_default())
            }
            StreamOutcome::Refused(_) => {
                self.reopening
                    .note_ended(Duration::ZERO, StreamEnd::Refusal, now);
                None
            }
            StreamOutcome::Ended(_) => {
                self.reopening
                    .note_ended(Duration::ZERO, StreamEnd::Loss, now);
                None
            }
        };
        let settled: Vec<WaitingRequest> = self
            .waiting
            .extract_if(.., |waiting| waiting.filter <= filter)
            .collect();
        let is_newest = self.wanted == filter;
        let mut replies = Vec::new();
        for waiting in settled {
            let reply = match (outcome, &served) {
                (_, Some(_)) if waiting.wish == SubscriptionWish::Unsubscribe => {
                    SubscriptionReply::Done
                }
                (_, Some(served)) if is_among(&waiting.uri, served) => SubscriptionReply::Done,
                (_, Some(_)) => SubscriptionReply::NotServed(waiting.uri.clone()),
                (StreamOutcome::Refused(error), None) => SubscriptionReply::Refused(error.clone()),
                (StreamOutcome::Ended(error), None) => SubscriptionReply::Unanswered(error.clone()),
                (StreamOutcome::Acknowledged(_), None) => SubscriptionReply::Done,
            };
            if waiting.wish == SubscriptionWish::Subscribe && reply != SubscriptionReply::Done {
                // A failed subscription must not come back with the next stream.
                self.uris.retain(|known| !is_same(known, &waiting.uri));
                self.wanted += 1;
            }
            replies.push((waiting.request, reply));
        }
        if is_newest {
            // The removal of unsupported resources needs no new stream, because the server
            // confirmed the rest.
            self.tried = self.wanted;
        }
        replies
    }

    /// Returns the filter, or `None` without subscriptions.
    fn filter(&self) -> Option<String> {
        let kinds = self.offer.kinds.iter();
        let mut parts: Vec<String> = kinds.map(|kind| format!(r#""{kind}":true"#)).collect();
        if !self.uris.is_empty() {
            let uris = self.uris.join(",");
            parts.push(format!(r#""resourceSubscriptions":[{uris}]"#));
        }
        (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(",")))
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one == other || unescape(one).is_some_and(|text| Some(text) == unescape(other))
}

fn is_among(uri: &str, served: &[String]) -> bool {
    unescape(uri).is_some_and(|uri| served.iter().any(|served| *served == uri))
}
