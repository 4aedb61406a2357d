//! The requests of one session in flight, and the ids and tokens that they use towards the
//! upstream.
//!
//! Several clients may share one session, each with its own ids and progress tokens. An id or token
//! that is in use is replaced while its request is in flight. It is also replaced if it is too long
//! to be remembered after its client has gone, or if it was in use a short time ago: a late second
//! answer, or progress after an answer, must not reach the next client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use riglm_app::proxy::{ClientSession, ReservedMemory};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::OWN_IDS;
use super::names::{ReplacedName, ReplacedNames};

/// The extra time that an abandoned request is remembered after its deadline, because the proxy
/// checks deadlines only periodically.
const MARGIN: Duration = Duration::from_secs(5);
/// The number of requests from which on old ones are searched and removed.
const TIDY_FROM: usize = 256;
/// The number of recently used ids, and of recently used tokens, that are remembered.
const N_RECENT: usize = 64;
/// The maximum length of an id or token that is forwarded unchanged, in bytes.
const MAX_NAME_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct ResponseEvent {
    pub(super) data: Bytes,
    /// The HTTP status of a JSON response with this event, if it is the answer. No event follows it
    /// then.
    pub(super) status: Option<StatusCode>,
    /// The memory reservation of the event while it waits.
    pub(super) room: Option<ReservedMemory>,
}

/// The receiver of the messages that belong to a request.
#[derive(Clone, Debug)]
pub(super) struct ResponseReceiver {
    pub(super) queue: mpsc::Sender<ResponseEvent>,
    /// The session to notify when the client does not read.
    pub(super) session: Weak<ClientSession>,
}

#[derive(Debug)]
pub(super) struct OpenRequest {
    /// The replaced names, if any.
    pub(super) names: Option<Arc<ReplacedNames>>,
    /// Whether it is a subscription, which the server may end by a message.
    pub(super) is_listen: bool,
    token: Option<NameKey>,
    state: ExchangeState,
}

#[derive(Debug)]
enum ExchangeState {
    Open(ResponseReceiver),
    /// No client waits for it. Its names stay in use, because the upstream may still use them.
    Abandoned(Instant),
}

impl OpenRequest {
    /// Returns the receiver of messages; `None` if no client waits for them.
    pub(super) fn outlet(&self) -> Option<&ResponseReceiver> {
        match &self.state {
            ExchangeState::Open(outlet) => Some(outlet),
            ExchangeState::Abandoned(_) => None,
        }
    }
}

/// An id or a token in canonical form, as peers compare them: numbers by value, whatever their
/// notation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NameKey {
    Number(u64),
    Text(Box<str>),
}

impl NameKey {
    fn of(name: &RequestId) -> Self {
        match name {
            // Adding zero turns negative zero into positive zero.
            RequestId::Number(number) => {
                let number = number.parse::<f64>();
                Self::Number(number.map_or(0, |value| (value + 0.0).to_bits()))
            }
            RequestId::Text(text) => Self::Text(text.clone()),
        }
    }
}

/// The most recently used names.
#[derive(Debug, Default)]
struct RecentNames(VecDeque<NameKey>);

impl RecentNames {
    fn has(&self, name: &NameKey) -> bool {
        self.0.contains(name)
    }

    fn note(&mut self, name: NameKey) {
        // Names of the proxy are never used twice.
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
pub(super) struct OpenRequests {
    by_id: HashMap<NameKey, OpenRequest>,
    tokens: HashSet<NameKey>,
    recent_ids: RecentNames,
    recent_tokens: RecentNames,
    n_minted: u64,
    remember: Duration,
    is_closed: bool,
}

impl OpenRequests {
    /// Returns a table for requests that last no longer than `longest`.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            by_id: HashMap::new(),
            tokens: HashSet::new(),
            recent_ids: RecentNames::default(),
            recent_tokens: RecentNames::default(),
            n_minted: 0,
            remember: longest + MARGIN,
            is_closed: false,
        }
    }

    /// Sets the maximum duration of requests from now on. It never shortens the time for which
    /// requests are remembered, because earlier requests may last longer.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.remember = self.remember.max(longest + MARGIN);
    }

    /// Returns the time for which a request is remembered without an answer.
    pub(super) fn remember(&self) -> Duration {
        self.remember
    }

    /// Adds a request. Returns its internal id and the request to forward; `None` when the session
    /// has ended, or if the message is not a request.
    pub(super) fn open(
        &mut self,
        message: Message,
        outlet: ResponseReceiver,
    ) -> Option<(RequestId, Message)> {
        if self.is_closed {
            return None;
        }
        self.remove_expired();
        let envelope = message.single()?;
        let (method, id) = envelope.as_request()?;
        let is_listen = method == method::SUBSCRIPTIONS_LISTEN;
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
        let inner = |new: &Option<ReplacedName>, own: &RequestId| {
            new.as_ref()
                .map_or_else(|| own.clone(), |new| new.inner.clone())
        };
        let id = inner(&new_id, id);
        let token = token.map(|token| NameKey::of(&inner(&new_token, &token)));
        self.tokens.extend(token.clone());
        let names = (new_id.is_some() || new_token.is_some()).then(|| {
            Arc::new(ReplacedNames {
                id: new_id,
                token: new_token,
            })
        });
        let message = match &names {
            Some(names) => names.replaced_in(&message),
            None => message,
        };
        let exchange = OpenRequest {
            names,
            is_listen,
            token,
            state: ExchangeState::Open(outlet),
        };
        self.by_id.insert(NameKey::of(&id), exchange);
        Some((id, message))
    }

    pub(super) fn get(&self, id: &RequestId) -> Option<&OpenRequest> {
        self.by_id.get(&NameKey::of(id))
    }

    /// Removes an answered request. Its names can be used again a little later.
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

    /// Marks a request as abandoned by its client. Returns whether a client was waiting for it.
    pub(super) fn abandon(&mut self, id: &RequestId) -> bool {
        match self.by_id.get_mut(&NameKey::of(id)) {
            Some(exchange) if exchange.outlet().is_some() => {
                exchange.state = ExchangeState::Abandoned(Instant::now());
                exchange.names = None; // Nothing goes back under them.
                true
            }
            _ => false,
        }
    }

    /// Ends all streams and refuses further requests.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.by_id = HashMap::new();
        self.tokens = HashSet::new();
    }

    fn mint(&mut self, own: &RequestId) -> ReplacedName {
        self.n_minted += 1;
        ReplacedName {
            own: own.clone(),
            inner: RequestId::Text(format!("{OWN_IDS}{}", self.n_minted).into()),
        }
    }

    /// Removes abandoned requests whose answer can no longer arrive.
    fn remove_expired(&mut self) {
        let n = self.by_id.len();
        if n < TIDY_FROM || !n.is_power_of_two() {
            return;
        }
        let (tokens, remember) = (&mut self.tokens, self.remember);
        self.by_id.retain(|_, exchange| {
            let ExchangeState::Abandoned(since) = exchange.state else {
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

/// Returns whether a name is replaced even if it is free: a long one, or one that looks like the
/// names of this proxy, because the client is a proxy of the same kind.
fn is_replaced(name: &RequestId) -> bool {
    let (RequestId::Number(text) | RequestId::Text(text)) = name;
    let is_own = matches!(name, RequestId::Text(text) if text.starts_with(OWN_IDS));
    text.len() > MAX_NAME_BYTES || is_own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(exchanges: &mut OpenRequests, id: &str, token: &str) -> (RequestId, String) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        );
        let (queue, _) = mpsc::channel(1);
        let session = Weak::new();
        let message = Message::from_text(text).unwrap();
        let (id, message) = exchanges
            .open(message, ResponseReceiver { queue, session })
            .unwrap();
        (id, String::from_utf8(message.raw().to_vec()).unwrap())
    }

    fn minted_id(n: u64) -> RequestId {
        RequestId::Text(format!("riglm.c:{n}").into())
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_replaced_only_while_they_are_taken() {
        let mut exchanges = OpenRequests::new(Duration::from_mins(10));
        let (first, text) = open(&mut exchanges, "1", "\"t\"");
        assert!(text.contains(r#""id":1,"#) && text.contains(r#""progressToken":"t""#));
        let (same, text) = open(&mut exchanges, "1.0", "\"t\"");
        assert_eq!(same, minted_id(1));
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
        assert_eq!(again, minted_id(3));
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
        let mut exchanges = OpenRequests::new(Duration::from_mins(10));
        let (id, _) = open(&mut exchanges, "1", "\"t\"");
        assert!(exchanges.abandon(&id));
        assert!(!exchanges.abandon(&id), "it is abandoned once");
        assert_eq!(open(&mut exchanges, "1", "2").0, minted_id(1));
        for n in 2..TIDY_FROM {
            open(&mut exchanges, &format!("\"{n}\""), &format!("\"x{n}\""));
        }
        tokio::time::advance(Duration::from_secs(599)).await;
        let number = TIDY_FROM - 1;
        assert_eq!(exchanges.by_id.len(), number + 1);
        assert_eq!(open(&mut exchanges, "1", "\"t\"").0, minted_id(2));
        exchanges.remove(&minted_id(2));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(open(&mut exchanges, "1", "\"t\"").0, id);
    }

    #[tokio::test(start_paused = true)]
    async fn names_stay_taken_until_the_longest_configured_deadline() {
        let mut exchanges = OpenRequests::new(Duration::from_mins(1));
        exchanges.set_longest(Duration::from_mins(10));
        exchanges.set_longest(Duration::from_mins(2));
        assert_eq!(exchanges.remember(), Duration::from_mins(10) + MARGIN);
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
    async fn long_names_of_abandoned_requests_are_forgotten() {
        let mut exchanges = OpenRequests::new(Duration::from_mins(10));
        let (long, digits) = ("x".repeat(100_000), "1".repeat(100_000));
        let (id, text) = open(&mut exchanges, &format!("\"{long}\""), &digits);
        assert_eq!(id, minted_id(1));
        assert!(text.len() < 1_000, "{} bytes go on", text.len());
        let exchange = exchanges.get(&id).unwrap();
        assert!(exchange.names.is_some());
        exchanges.abandon(&id);
        assert!(exchanges.get(&id).unwrap().names.is_none());
    }
}
