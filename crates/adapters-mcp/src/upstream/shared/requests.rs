//! The registry of requests in flight on a shared connection: their numbers, waiters and purposes.

use std::collections::{HashMap, VecDeque};

use riglm_domain::mcp::message::RequestId;

/// The number that identifies a session at its hub.
pub(super) type SharedSessionNumber = u64;

/// The maximum number of requests in flight on one connection.
const MAX_IN_FLIGHT: usize = 16_384;

/// The number of cancelled requests that are remembered, because their answers may already be on
/// the way.
const MAX_CANCELLED: usize = 1_024;

/// The number of progress tokens that are remembered after their requests were answered, because
/// the progress of a task continues.
const MAX_LATE_TOKENS: usize = 1_024;

/// A session that waits for an answer, with the id of the request in that session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) seat: SharedSessionNumber,
    pub(super) id: RequestId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request of one session, which alone gets the answer.
    Plain,
    /// The handshake for all sessions.
    Initialize,
    /// A subscription to a resource for all sessions that want its updates.
    Subscribe(Box<str>),
    /// A request of the hub itself. No session gets the answer.
    Own,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) purpose: Purpose,
    /// The sessions that get the answer, in the order of their requests.
    pub(super) takers: Vec<Waiter>,
    /// The progress token as its session knows it.
    token: Option<Waiter>,
}

/// The action that a cancelled request requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CancelEffect {
    /// The server must be notified that this request is cancelled.
    Upstream(u64),
    /// The server must be notified, and the requested subscription counts as failed.
    Subscription(u64, Box<str>),
    /// No action: other sessions wait for it, or it is not in flight.
    Nothing,
    /// No session waits for the handshake any more.
    HandshakeAbandoned,
}

impl CancelEffect {
    /// Returns the number of the request whose cancellation is sent to the server.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Upstream(number) | Self::Subscription(number, _) => Some(*number),
            Self::Nothing | Self::HandshakeAbandoned => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    last_number: u64,
    entries: HashMap<u64, InFlight>,
    numbers: HashMap<Waiter, u64>,
    cancelled: VecDeque<u64>,
    late_tokens: VecDeque<(u64, Waiter)>,
}

impl Requests {
    /// Registers a request and returns its number. Returns `None` if too many are in flight.
    pub(super) fn open(
        &mut self,
        purpose: Purpose,
        taker: Option<Waiter>,
        token: Option<RequestId>,
    ) -> Option<u64> {
        if self.entries.len() >= MAX_IN_FLIGHT {
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        let seat = taker.as_ref().map(|taker| taker.seat);
        let token = seat
            .zip(token)
            .map(|(seat, token)| Waiter { seat, id: token });
        if let Some(taker) = &taker {
            self.numbers.insert(taker.clone(), number);
        }
        if purpose == Purpose::Own {
            // No session times out this request, so it is removed after many other cancellations.
            self.schedule_removal(number);
        }
        let entry = InFlight {
            purpose,
            takers: taker.into_iter().collect(),
            token,
        };
        self.entries.insert(number, entry);
        Some(number)
    }

    pub(super) fn add_waiter(&mut self, number: u64, taker: Waiter) {
        if let Some(entry) = self.entries.get_mut(&number) {
            self.numbers.insert(taker.clone(), number);
            entry.takers.push(taker);
        }
    }

    /// Removes a request that ended and returns it.
    pub(super) fn take(&mut self, number: u64) -> Option<InFlight> {
        let entry = self.entries.remove(&number)?;
        for taker in &entry.takers {
            self.numbers.remove(taker);
        }
        if let Some(token) = &entry.token {
            if self.late_tokens.len() >= MAX_LATE_TOKENS {
                self.late_tokens.pop_front();
            }
            self.late_tokens.push_back((number, token.clone()));
        }
        Some(entry)
    }

    /// Returns the first waiter of a request.
    pub(super) fn owner(&self, number: u64) -> Option<&Waiter> {
        self.entries.get(&number)?.takers.first()
    }

    /// Returns the ids of the requests for which a session waits.
    pub(super) fn ids_of(&self, seat: SharedSessionNumber) -> Vec<RequestId> {
        let takers = self.numbers.keys().filter(|taker| taker.seat == seat);
        takers.map(|taker| taker.id.clone()).collect()
    }

    /// Returns the session and the progress token for progress under this number. Also finds
    /// requests that were answered recently.
    pub(super) fn token(&self, number: u64) -> Option<&Waiter> {
        if let Some(entry) = self.entries.get(&number) {
            return entry.token.as_ref();
        }
        let mut newest_first = self.late_tokens.iter().rev();
        let (_, token) = newest_first.find(|(known, _)| *known == number)?;
        Some(token)
    }

    /// Registers that a session cancelled a request. A request that is cancelled at the server
    /// stays registered, because its answer may already be on the way.
    pub(super) fn cancel(&mut self, taker: &Waiter) -> CancelEffect {
        let Some(&number) = self.numbers.get(taker) else {
            return CancelEffect::Nothing;
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return CancelEffect::Nothing;
        };
        let is_alone = entry.takers.len() == 1;
        let consequence = match &entry.purpose {
            Purpose::Initialize if is_alone => CancelEffect::HandshakeAbandoned,
            Purpose::Subscribe(uri) if is_alone => CancelEffect::Subscription(number, uri.clone()),
            Purpose::Plain => CancelEffect::Upstream(number),
            Purpose::Initialize | Purpose::Subscribe(_) | Purpose::Own => CancelEffect::Nothing,
        };
        if consequence.number().is_some() {
            self.schedule_removal(number);
        } else {
            entry.takers.retain(|known| known != taker);
            self.numbers.remove(taker);
        }
        consequence
    }

    /// Schedules a request for removal after `MAX_CANCELLED` later cancellations.
    fn schedule_removal(&mut self, number: u64) {
        self.cancelled.push_back(number);
        if self.cancelled.len() > MAX_CANCELLED
            && let Some(oldest) = self.cancelled.pop_front()
        {
            self.take(oldest);
        }
    }

    /// Removes all requests of a session. Returns the actions that this requires at the server.
    pub(super) fn leave(&mut self, seat: SharedSessionNumber) -> Vec<CancelEffect> {
        let mut takers: Vec<(u64, Waiter)> = self
            .numbers
            .iter()
            .filter(|(taker, _)| taker.seat == seat)
            .map(|(taker, number)| (*number, taker.clone()))
            .collect();
        // Sorted, because the order of a hash map is random and the server should see the order of
        // sending.
        takers.sort_by_key(|(number, _)| *number);
        let consequences = takers
            .into_iter()
            .map(|(number, taker)| {
                let was_cancelled = self.cancelled.contains(&number);
                let consequence = self.cancel(&taker);
                if consequence.number().is_some() {
                    self.take(number);
                }
                if was_cancelled {
                    CancelEffect::Nothing
                } else {
                    consequence
                }
            })
            .collect();
        self.late_tokens.retain(|(_, token)| token.seat != seat);
        consequences
    }

    /// Removes all requests in flight and returns their waiters.
    pub(super) fn drain(&mut self) -> Vec<Waiter> {
        let mut entries: Vec<(u64, InFlight)> = self.entries.drain().collect();
        entries.sort_by_key(|(number, _)| *number);
        *self = Self {
            // Numbers are never used again, so that a late answer cannot match a newer request.
            last_number: self.last_number,
            ..Self::default()
        };
        let takers = entries.into_iter().flat_map(|(_, entry)| entry.takers);
        takers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taker(seat: SharedSessionNumber, id: &str) -> Waiter {
        Waiter {
            seat,
            id: RequestId::Text(id.into()),
        }
    }

    fn plain(requests: &mut Requests, seat: SharedSessionNumber, id: &str) -> u64 {
        let token = Some(RequestId::Text("t".into()));
        requests
            .open(Purpose::Plain, Some(taker(seat, id)), token)
            .unwrap()
    }

    #[test]
    fn open_and_cancelled_requests_are_bounded() {
        let mut requests = Requests::default();
        for n in 0..MAX_IN_FLIGHT {
            plain(&mut requests, 1, &n.to_string());
        }
        assert_eq!(requests.open(Purpose::Own, None, None), None);
        for n in 0..=MAX_CANCELLED {
            requests.cancel(&taker(1, &n.to_string()));
        }
        assert_eq!(requests.entries.len(), MAX_IN_FLIGHT - 1);
        for n in 1..=MAX_IN_FLIGHT {
            requests.take(n as u64);
        }
        assert_eq!(requests.late_tokens.len(), MAX_LATE_TOKENS);
        assert!(requests.numbers.is_empty());
    }

    #[test]
    fn a_cancelled_request_can_still_be_answered_and_is_cancelled_once() {
        let mut requests = Requests::default();
        let number = plain(&mut requests, 1, "a");
        assert_eq!(
            requests.cancel(&taker(1, "a")),
            CancelEffect::Upstream(number)
        );
        assert_eq!(requests.owner(number), Some(&taker(1, "a")));
        assert_eq!(requests.leave(1), [CancelEffect::Nothing]);
        assert!(requests.take(number).is_none());
    }

    #[test]
    fn handshakes_are_abandoned_with_their_last_session() {
        let mut requests = Requests::default();
        let number = requests
            .open(Purpose::Initialize, Some(taker(1, "a")), None)
            .unwrap();
        requests.add_waiter(number, taker(2, "a"));
        assert_eq!(requests.leave(1), [CancelEffect::Nothing]);
        assert_eq!(requests.owner(number), Some(&taker(2, "a")));
        assert_eq!(requests.leave(2), [CancelEffect::HandshakeAbandoned]);
    }
}
