//! What a legacy client hears of unasked, and the stream that brings it (basic/patterns/subscriptions).
//!
//! Only bookkeeping: `listening` does what [`Subscriptions::due`] says.

use std::time::Duration;

use riglm_domain::edit::member;
use riglm_domain::message::RequestId;
use riglm_domain::scan::unescaped;
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The member of the filter for each capability that announces changes of its list.
const KINDS: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];

/// A stream that lived this long was sound: its end starts the back-off anew.
const SOUND_AFTER: Duration = Duration::from_secs(30);
/// The wait before a stream is opened again; each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// The longest such wait.
const LAST_DELAY: Duration = Duration::from_mins(1);
/// After so many failures in a row only a change of what the client wants opens another stream.
const MAX_FAILURES: u32 = 10;
/// How many resources a client may subscribe to.
const MAX_RESOURCES: usize = 1_024;

/// What a server can report.
#[derive(Debug, Default)]
pub(super) struct Offer {
    kinds: Vec<&'static str>,
    has_resources: bool,
}

impl Offer {
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

/// How a stream began or ended.
#[derive(Debug)]
pub(super) enum Opened {
    /// The server reports on these resources, a JSON array.
    Acknowledged(String),
    /// The server answered with this error, JSON text.
    Refused(String),
    /// It ended.
    Ended(UpstreamError),
}

/// What has to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// Nothing before that.
    Later(Instant),
    /// A stream has to be opened with this filter, JSON text.
    Open(String),
    /// Nothing is wanted any more: the stream, if there is one, has to be closed.
    Close(Option<RequestId>),
}

/// A request of the client that waits for a stream.
#[derive(Debug)]
struct Waiting {
    request: RequestId,
    uri: Box<str>,
    is_on: bool,
    /// The filter that has the change in it.
    filter: u64,
}

/// How a request of the client is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// The server does not report on this resource.
    NotServed(Box<str>),
    /// The server refused with this error, JSON text.
    Refused(String),
    /// The server did not answer.
    Unanswered(UpstreamError),
}

#[derive(Debug)]
struct Stream {
    id: RequestId,
    since: Instant,
}

/// What one client wants to hear of and what it gets.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    offer: Offer,
    is_started: bool,
    /// The URIs as the client wrote them first, JSON text.
    uris: Vec<Box<str>>,
    /// Number of the filter that is wanted.
    wanted: u64,
    /// Number of the filter that was tried last.
    tried: u64,
    active: Option<Stream>,
    opening: Option<(RequestId, oneshot::Sender<Opened>)>,
    waiting: Vec<Waiting>,
    n_failures: u32,
    retry_at: Option<Instant>,
    /// The server refused: it is not asked for the same again.
    is_given_up: bool,
}

impl Subscriptions {
    /// Notes what the server can report, at a handshake. Earlier subscriptions end with it.
    pub(super) fn offered(&mut self, offer: Offer) {
        self.offer = offer;
        self.uris.clear();
        self.wanted += 1;
    }

    /// Begins to listen. Returns whether that is new.
    pub(super) fn start(&mut self) -> bool {
        !std::mem::replace(&mut self.is_started, true)
    }

    /// Returns whether the server reports changes of resources at all.
    pub(super) fn has_resources(&self) -> bool {
        self.offer.has_resources
    }

    /// Notes that a request of the client wants reports on a resource, or none any more. Returns
    /// the answer if nothing has to be done for it.
    pub(super) fn change(&mut self, request: RequestId, uri: &str, is_on: bool) -> Option<Reply> {
        let position = self.uris.iter().position(|known| is_same(known, uri));
        match (position, is_on) {
            (Some(position), false) => {
                self.uris.remove(position);
                self.wanted += 1;
            }
            (None, false) => return Some(Reply::Done),
            (None, true) if self.uris.len() >= MAX_RESOURCES => {
                return Some(Reply::NotServed(uri.into()));
            }
            (None, true) => {
                self.uris.push(uri.into());
                self.wanted += 1;
            }
            (Some(_), true) if self.opening.is_some() || self.wanted != self.tried => {}
            (Some(_), true) if self.active.is_some() => return Some(Reply::Done),
            (Some(_), true) => self.wanted += 1,
        }
        self.waiting.push(Waiting {
            request,
            uri: uri.into(),
            is_on,
            filter: self.wanted,
        });
        None
    }

    /// Forgets a request that the client cancelled.
    pub(super) fn nobody_waits(&mut self, request: &RequestId) {
        self.waiting.retain(|waiting| waiting.request != *request);
    }

    /// Returns what has to be done now.
    pub(super) fn due(&self, now: Instant) -> Due {
        if !self.is_started {
            return Due::Nothing;
        }
        let Some(filter) = self.filter() else {
            return if self.active.is_some() || !self.waiting.is_empty() {
                Due::Close(self.active())
            } else {
                Due::Nothing
            };
        };
        if self.wanted != self.tried {
            return Due::Open(filter);
        }
        if self.active.is_some() || self.is_given_up {
            return Due::Nothing;
        }
        match self.retry_at {
            Some(retry) if retry > now => Due::Later(retry),
            _ => Due::Open(filter),
        }
    }

    /// Returns the answers to requests after which nothing is wanted, and forgets the stream.
    pub(super) fn closed(&mut self) -> Vec<(RequestId, Reply)> {
        self.active = None;
        self.tried = self.wanted;
        let waiting = std::mem::take(&mut self.waiting);
        let done = |waiting: Waiting| (waiting.request, Reply::Done);
        waiting.into_iter().map(done).collect()
    }

    /// Notes that a stream is being opened. Its fate comes out of the returned end, together with
    /// the number of its filter.
    pub(super) fn open(&mut self, id: RequestId) -> (u64, oneshot::Receiver<Opened>) {
        let (opened, outcome) = oneshot::channel();
        self.opening = Some((id, opened));
        self.tried = self.wanted;
        (self.tried, outcome)
    }

    /// Takes note that a stream began: from now on it counts, and the one before it does not.
    pub(super) fn acknowledged(&mut self, id: &RequestId, filter: &str, now: Instant) {
        if let Some((_, opened)) = self.opening.take_if(|(opening, _)| opening == id) {
            let uris = member(filter, "resourceSubscriptions").unwrap_or("[]");
            self.active = Some(Stream {
                id: id.clone(),
                since: now,
            });
            self.is_given_up = false;
            self.retry_at = None;
            // Whoever waits may have given up.
            let _ = opened.send(Opened::Acknowledged(uris.to_owned()));
        }
    }

    /// Takes note that a stream ended. Returns whether there was such a stream.
    pub(super) fn ended(&mut self, id: &RequestId, how: Opened, now: Instant) -> bool {
        if let Some((_, opened)) = self.opening.take_if(|(opening, _)| opening == id) {
            let _ = opened.send(how);
            return true;
        }
        let Some(stream) = self.active.take_if(|active| active.id == *id) else {
            return false;
        };
        if now.saturating_duration_since(stream.since) >= SOUND_AFTER {
            self.n_failures = 0;
        }
        self.failed(matches!(how, Opened::Refused(_)), now);
        true
    }

    /// Returns whether what comes on this stream is for the client.
    pub(super) fn is_active(&self, id: &RequestId) -> bool {
        self.active.as_ref().is_some_and(|active| active.id == *id)
    }

    /// Returns the id of the stream that brings notifications.
    pub(super) fn active(&self) -> Option<RequestId> {
        self.active.as_ref().map(|active| active.id.clone())
    }

    /// Takes note of the fate of a stream with this filter. Returns the answers to requests.
    pub(super) fn settle(
        &mut self,
        filter: u64,
        outcome: &Opened,
        now: Instant,
    ) -> Vec<(RequestId, Reply)> {
        self.opening = None;
        let served = match outcome {
            Opened::Acknowledged(uris) => {
                Some(serde_json::from_str::<Vec<String>>(uris).unwrap_or_default())
            }
            Opened::Refused(_) => {
                self.failed(true, now);
                None
            }
            Opened::Ended(_) => {
                self.failed(false, now);
                None
            }
        };
        let settled: Vec<Waiting> = self
            .waiting
            .extract_if(.., |waiting| waiting.filter <= filter)
            .collect();
        let is_newest = self.wanted == filter;
        let mut replies = Vec::new();
        for waiting in settled {
            let reply = match (outcome, &served) {
                (_, Some(_)) if !waiting.is_on => Reply::Done,
                (_, Some(served)) if is_among(&waiting.uri, served) => Reply::Done,
                (_, Some(_)) => Reply::NotServed(waiting.uri.clone()),
                (Opened::Refused(error), None) => Reply::Refused(error.clone()),
                (Opened::Ended(error), None) => Reply::Unanswered(error.clone()),
                (Opened::Acknowledged(_), None) => Reply::Done,
            };
            if waiting.is_on && reply != Reply::Done {
                self.uris.retain(|known| !is_same(known, &waiting.uri));
                self.wanted += 1;
            }
            replies.push((waiting.request, reply));
        }
        if is_newest {
            // The server said what it serves of it; asking for less brings the same.
            self.tried = self.wanted;
        }
        replies
    }

    fn failed(&mut self, is_refusal: bool, now: Instant) {
        self.n_failures = self.n_failures.saturating_add(1);
        self.is_given_up = is_refusal || self.n_failures >= MAX_FAILURES;
        let delay = FIRST_DELAY.saturating_mul(1 << (self.n_failures - 1).min(16));
        self.retry_at = Some(now + delay.min(LAST_DELAY));
    }

    /// Returns the filter, or `None` if nothing is wanted.
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
    one == other || unescaped(one).is_some_and(|text| Some(text) == unescaped(other))
}

fn is_among(uri: &str, served: &[String]) -> bool {
    unescaped(uri).is_some_and(|uri| served.iter().any(|served| *served == uri))
}
