//! The requests of one session in flight, and the names that they go by.
//!
//! Several clients may have one session, each with ids and progress tokens of its own. One that is
//! taken is replaced for as long as its request is in flight; so is one that is too long to be
//! remembered after its client has gone, and one that was in use just now: a server that answers
//! twice, or reports progress after its answer, must not be heard by the next client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use riglm_app::proxy::{ClientSession, Room};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::meta::RequestMeta;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::OWN_IDS;
use super::names::{Names, Renamed};

/// How much longer than it may last a request is remembered that nobody waits for: the proxy looks
/// at deadlines only now and then.
const MARGIN: Duration = Duration::from_secs(5);
/// How many requests there are before those are looked for that can be forgotten.
const TIDY_FROM: usize = 256;
/// How many ids, and how many tokens, are known to have been in use just now.
const N_RECENT: usize = 64;
/// The longest id or token that goes on as it is, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Something for the client.
#[derive(Debug)]
pub(super) struct Event {
    /// The message on one line.
    pub(super) data: Bytes,
    /// The status of a response that consists of it, if it is the answer; then nothing follows.
    pub(super) status: Option<StatusCode>,
    /// What it takes while it waits.
    pub(super) room: Option<Room>,
}

/// Where what belongs to a request goes.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    /// Takes it to the response.
    pub(super) queue: mpsc::Sender<Event>,
    /// The session that has to hear of it when the client does not read.
    pub(super) session: Weak<ClientSession>,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The names that were replaced, if any was.
    pub(super) names: Option<Arc<Names>>,
    /// Whether it is a subscription, which the server may end by a message.
    pub(super) is_listen: bool,
    token: Option<NameKey>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(Outlet),
    /// Nobody waits for it. Its names stay taken, because the upstream may still use them.
    Abandoned(Instant),
}

impl Exchange {
    /// Returns where messages go; `None` when nobody waits for them.
    pub(super) fn outlet(&self) -> Option<&Outlet> {
        match &self.state {
            State::Open(outlet) => Some(outlet),
            State::Abandoned(_) => None,
        }
    }
}

/// An id or a token as peers compare them: numbers by their value, in whatever form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NameKey {
    Number(u64),
    Text(Box<str>),
}

impl NameKey {
    fn of(name: &RequestId) -> Self {
        match name {
            // Adding zero makes one of the two zeros the other.
            RequestId::Number(number) => Self::Number(
                number
                    .parse::<f64>()
                    .map_or(0, |value| (value + 0.0).to_bits()),
            ),
            RequestId::Text(text) => Self::Text(text.clone()),
        }
    }
}

/// The names that were in use last.
#[derive(Debug, Default)]
struct Recent(VecDeque<NameKey>);

impl Recent {
    fn has(&self, name: &NameKey) -> bool {
        self.0.contains(name)
    }

    fn note(&mut self, name: NameKey) {
        // Those of the proxy are never given twice.
        if matches!(&name, NameKey::Text(text) if text.starts_with(OWN_IDS)) {
            return;
        }
        if self.0.len() == N_RECENT {
            self.0.pop_front();
        }
        self.0.push_back(name);
    }
}

/// The requests of one session in flight.
#[derive(Debug)]
pub(super) struct Exchanges {
    by_id: HashMap<NameKey, Exchange>,
    tokens: HashSet<NameKey>,
    recent_ids: Recent,
    recent_tokens: Recent,
    n_minted: u64,
    remember: Duration,
    is_closed: bool,
}

impl Exchanges {
    /// Returns a table for requests that last no longer than `longest`.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            by_id: HashMap::new(),
            tokens: HashSet::new(),
            recent_ids: Recent::default(),
            recent_tokens: Recent::default(),
            n_minted: 0,
            remember: longest + MARGIN,
            is_closed: false,
        }
    }

    /// Has requests last no longer than `longest` from now on. What is remembered for longer already
    /// stays so: requests that began before may last that long.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.remember = self.remember.max(longest + MARGIN);
    }

    /// Notes a request. Returns the id under which it is known from now on, and the request as it
    /// goes on; `None` when the session has ended, or of what is no request.
    pub(super) fn open(
        &mut self,
        message: Message,
        outlet: Outlet,
    ) -> Option<(RequestId, Message)> {
        if self.is_closed {
            return None;
        }
        self.tidy();
        let envelope = message.single()?;
        let (method, id) = envelope.as_request()?;
        let is_listen = method == "subscriptions/listen";
        let meta = RequestMeta::read(message.params(envelope));
        let token = meta.progress_token.and_then(RequestId::from_json);
        let key = NameKey::of(id);
        let is_id_replaced =
            is_replaced(id) || self.by_id.contains_key(&key) || self.recent_ids.has(&key);
        let new_id = is_id_replaced.then(|| self.mint(id));
        let new_token = token
            .as_ref()
            .filter(|token| {
                let key = NameKey::of(token);
                is_replaced(token) || self.tokens.contains(&key) || self.recent_tokens.has(&key)
            })
            .cloned()
            .map(|token| self.mint(&token));
        let inner = |new: &Option<Renamed>, own: &RequestId| {
            new.as_ref()
                .map_or_else(|| own.clone(), |new| new.inner.clone())
        };
        let id = inner(&new_id, id);
        let token = token.map(|token| NameKey::of(&inner(&new_token, &token)));
        self.tokens.extend(token.clone());
        let names = (new_id.is_some() || new_token.is_some()).then(|| {
            Arc::new(Names {
                id: new_id,
                token: new_token,
            })
        });
        let message = match &names {
            Some(names) => names.replaced_in(&message),
            None => message,
        };
        let exchange = Exchange {
            names,
            is_listen,
            token,
            state: State::Open(outlet),
        };
        self.by_id.insert(NameKey::of(&id), exchange);
        Some((id, message))
    }

    /// Returns the request with this id.
    pub(super) fn get(&self, id: &RequestId) -> Option<&Exchange> {
        self.by_id.get(&NameKey::of(id))
    }

    /// Forgets a request that was answered: its names are free, a little later.
    pub(super) fn remove(&mut self, id: &RequestId) {
        let Some((key, exchange)) = self.by_id.remove_entry(&NameKey::of(id)) else {
            return;
        };
        self.recent_ids.note(key);
        if let Some(token) = exchange.token {
            self.tokens.remove(&token);
            self.recent_tokens.note(token);
        }
    }

    /// Ends the stream of a request that was not answered. Returns whether somebody waited for it.
    pub(super) fn abandon(&mut self, id: &RequestId) -> bool {
        match self.by_id.get_mut(&NameKey::of(id)) {
            Some(exchange) if exchange.outlet().is_some() => {
                exchange.state = State::Abandoned(Instant::now());
                exchange.names = None; // Nothing goes back under them.
                true
            }
            _ => false,
        }
    }

    /// Ends all streams and takes nothing more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.by_id = HashMap::new();
        self.tokens = HashSet::new();
    }

    fn mint(&mut self, own: &RequestId) -> Renamed {
        self.n_minted += 1;
        Renamed {
            own: own.clone(),
            inner: RequestId::Text(format!("{OWN_IDS}{}", self.n_minted).into()),
        }
    }

    /// Forgets requests that nobody waits for and that have no answer to come any more.
    fn tidy(&mut self) {
        let n = self.by_id.len();
        if n < TIDY_FROM || !n.is_power_of_two() {
            return;
        }
        let (tokens, remember) = (&mut self.tokens, self.remember);
        self.by_id.retain(|_, exchange| {
            let State::Abandoned(since) = exchange.state else {
                return true;
            };
            let is_kept = since.elapsed() < remember;
            if !is_kept && let Some(token) = &exchange.token {
                tokens.remove(token);
            }
            is_kept
        });
    }
}

/// Returns whether a name is replaced even where it is free: one that is long, or that looks like
/// those that are minted here, because the client is a proxy like this.
fn is_replaced(name: &RequestId) -> bool {
    let (RequestId::Number(text) | RequestId::Text(text)) = name;
    let is_own = matches!(name, RequestId::Text(text) if text.starts_with(OWN_IDS));
    text.len() > MAX_NAME_BYTES || is_own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(exchanges: &mut Exchanges, id: &str, token: &str) -> (RequestId, String) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        );
        let (queue, _) = mpsc::channel(1);
        let session = Weak::new();
        let message = Message::from_text(text).unwrap();
        let (id, message) = exchanges.open(message, Outlet { queue, session }).unwrap();
        (id, String::from_utf8(message.raw().to_vec()).unwrap())
    }

    fn minted(n: u64) -> RequestId {
        RequestId::Text(format!("riglm.c:{n}").into())
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_replaced_only_while_they_are_taken() {
        let mut exchanges = Exchanges::new(Duration::from_mins(10));
        let (first, text) = open(&mut exchanges, "1", "\"t\"");
        assert!(text.contains(r#""id":1,"#) && text.contains(r#""progressToken":"t""#));
        let (same, text) = open(&mut exchanges, "1.0", "\"t\"");
        assert_eq!(same, minted(1));
        assert!(
            text.contains("riglm.c:1") && text.contains("riglm.c:2"),
            "{text}"
        );
        assert_eq!(
            open(&mut exchanges, "\"1\"", "1").0,
            RequestId::Text("1".into())
        );
        exchanges.remove(&first);
        // The server may answer the first request once more.
        let (again, text) = open(&mut exchanges, "1", "\"t\"");
        assert_eq!(again, minted(3));
        assert!(text.contains(r#""progressToken":"riglm.c:4""#), "{text}");
        for n in 100..100 + N_RECENT {
            let (other, _) = open(&mut exchanges, &n.to_string(), &n.to_string());
            exchanges.remove(&other);
        }
        let (again, text) = open(&mut exchanges, "1", "\"t\"");
        assert_eq!(again, first);
        assert!(text.contains(r#""progressToken":"t""#));
    }

    #[tokio::test(start_paused = true)]
    async fn names_stay_taken_until_the_answer_or_the_last_deadline() {
        let mut exchanges = Exchanges::new(Duration::from_mins(10));
        let (id, _) = open(&mut exchanges, "1", "\"t\"");
        assert!(exchanges.abandon(&id));
        assert!(!exchanges.abandon(&id), "it is abandoned once");
        assert_eq!(open(&mut exchanges, "1", "2").0, minted(1));
        for n in 2..TIDY_FROM {
            open(&mut exchanges, &format!("\"{n}\""), &format!("\"x{n}\""));
        }
        tokio::time::advance(Duration::from_secs(599)).await;
        let number = TIDY_FROM - 1;
        assert_eq!(exchanges.by_id.len(), number + 1);
        assert_eq!(open(&mut exchanges, "1", "\"t\"").0, minted(2));
        exchanges.remove(&minted(2));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(open(&mut exchanges, "1", "\"t\"").0, id);
    }

    #[tokio::test(start_paused = true)]
    async fn names_stay_taken_until_the_longest_deadline_that_there_was() {
        let mut exchanges = Exchanges::new(Duration::from_mins(1));
        exchanges.set_longest(Duration::from_mins(10));
        exchanges.set_longest(Duration::from_mins(2));
        let (id, _) = open(&mut exchanges, "1", "\"t\"");
        assert!(exchanges.abandon(&id));
        for n in 1..TIDY_FROM {
            open(&mut exchanges, &format!("\"{n}\""), &format!("\"x{n}\""));
        }
        assert!(exchanges.by_id.len().is_power_of_two());
        tokio::time::advance(Duration::from_secs(599)).await;
        assert_ne!(open(&mut exchanges, "1", "\"t\"").0, id);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_are_long_are_not_remembered() {
        let mut exchanges = Exchanges::new(Duration::from_mins(10));
        let (long, digits) = ("x".repeat(100_000), "1".repeat(100_000));
        let (id, text) = open(&mut exchanges, &format!("\"{long}\""), &digits);
        assert_eq!(id, minted(1));
        assert!(text.len() < 1_000, "{} bytes go on", text.len());
        let exchange = exchanges.get(&id).unwrap();
        assert!(exchange.names.is_some());
        exchanges.abandon(&id);
        assert!(exchanges.get(&id).unwrap().names.is_none());
    }
}
