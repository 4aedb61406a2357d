//! The requests in flight on a shared connection: under which number, of whom, and what for.

use std::collections::{HashMap, VecDeque};

use riglm_domain::message::RequestId;

/// The number of a session at its hub.
pub(super) type SeatNumber = u64;

/// The most requests in flight over one connection.
const MAX_IN_FLIGHT: usize = 16_384;

/// How many cancelled requests are remembered, for answers that were on their way already.
const MAX_CANCELLED: usize = 1_024;

/// How many tokens of answered requests are remembered: the progress of a task goes on.
const MAX_LATE_TOKENS: usize = 1_024;

/// Who waits for an answer, and under which id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Taker {
    pub(super) seat: SeatNumber,
    pub(super) id: RequestId,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For one session, which alone gets the answer.
    Plain,
    /// For all sessions: the handshake.
    Initialize,
    /// For all sessions that want to hear of this resource.
    Subscribe(Box<str>),
    /// For the hub itself; nobody gets the answer.
    Own,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) purpose: Purpose,
    /// Who gets the answer, in the order of asking.
    pub(super) takers: Vec<Taker>,
    /// The progress token as its session knows it.
    token: Option<Taker>,
}

/// What has to be done about a cancelled request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The server must be told that nobody wants this one.
    Upstream(u64),
    /// The same, and the subscription that it asked for is in doubt.
    Subscription(u64, Box<str>),
    /// Nothing, since others wait for it or since it is not in flight.
    Nothing,
    /// Nobody waits for the handshake any more.
    HandshakeAbandoned,
}

impl Cancelled {
    /// Returns the number of the request that the server must be told of.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Upstream(number) | Self::Subscription(number, _) => Some(*number),
            Self::Nothing | Self::HandshakeAbandoned => None,
        }
    }
}

/// All requests in flight over one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last_number: u64,
    entries: HashMap<u64, InFlight>,
    numbers: HashMap<Taker, u64>,
    cancelled: VecDeque<u64>,
    late_tokens: VecDeque<(u64, Taker)>,
}

impl Requests {
    /// Notes a request; `None` when there are too many.
    pub(super) fn open(
        &mut self,
        purpose: Purpose,
        taker: Option<Taker>,
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
            .map(|(seat, token)| Taker { seat, id: token });
        if let Some(taker) = &taker {
            self.numbers.insert(taker.clone(), number);
        }
        if purpose == Purpose::Own {
            // Nobody has a deadline for it.
            self.forget_later(number);
        }
        let entry = InFlight {
            purpose,
            takers: taker.into_iter().collect(),
            token,
        };
        self.entries.insert(number, entry);
        Some(number)
    }

    /// Lets one more wait for a request.
    pub(super) fn follow(&mut self, number: u64, taker: Taker) {
        if let Some(entry) = self.entries.get_mut(&number) {
            self.numbers.insert(taker.clone(), number);
            entry.takers.push(taker);
        }
    }

    /// Takes out a request that ended.
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

    /// Returns who asked for a request first.
    pub(super) fn owner(&self, number: u64) -> Option<&Taker> {
        self.entries.get(&number)?.takers.first()
    }

    /// Returns the ids of the requests that a session waits for.
    pub(super) fn ids_of(&self, seat: SeatNumber) -> Vec<RequestId> {
        let takers = self.numbers.keys().filter(|taker| taker.seat == seat);
        takers.map(|taker| taker.id.clone()).collect()
    }

    /// Returns whose progress is reported under this number, and under which token, also of a
    /// request that was answered not long ago.
    pub(super) fn token(&self, number: u64) -> Option<&Taker> {
        if let Some(entry) = self.entries.get(&number) {
            return entry.token.as_ref();
        }
        let mut newest_first = self.late_tokens.iter().rev();
        let (_, token) = newest_first.find(|(known, _)| *known == number)?;
        Some(token)
    }

    /// Notes that somebody no longer wants an answer. What is told upstream stays known, since its
    /// answer may be on its way.
    pub(super) fn cancel(&mut self, taker: &Taker) -> Cancelled {
        let Some(&number) = self.numbers.get(taker) else {
            return Cancelled::Nothing;
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return Cancelled::Nothing;
        };
        let is_alone = entry.takers.len() == 1;
        let consequence = match &entry.purpose {
            Purpose::Initialize if is_alone => Cancelled::HandshakeAbandoned,
            Purpose::Subscribe(uri) if is_alone => Cancelled::Subscription(number, uri.clone()),
            Purpose::Plain => Cancelled::Upstream(number),
            Purpose::Initialize | Purpose::Subscribe(_) | Purpose::Own => Cancelled::Nothing,
        };
        if consequence.number().is_some() {
            self.forget_later(number);
        } else {
            entry.takers.retain(|known| known != taker);
            self.numbers.remove(taker);
        }
        consequence
    }

    /// Lets a request be forgotten when many others were cancelled after it.
    fn forget_later(&mut self, number: u64) {
        self.cancelled.push_back(number);
        if self.cancelled.len() > MAX_CANCELLED
            && let Some(oldest) = self.cancelled.pop_front()
        {
            self.take(oldest);
        }
    }

    /// Takes out everything of a session. Returns what the server must be told of.
    pub(super) fn leave(&mut self, seat: SeatNumber) -> Vec<Cancelled> {
        let mut takers: Vec<(u64, Taker)> = self
            .numbers
            .iter()
            .filter(|(taker, _)| taker.seat == seat)
            .map(|(taker, number)| (*number, taker.clone()))
            .collect();
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
                    Cancelled::Nothing
                } else {
                    consequence
                }
            })
            .collect();
        self.late_tokens.retain(|(_, token)| token.seat != seat);
        consequences
    }

    /// Returns whom the answers are owed to of all requests in flight.
    pub(super) fn drain(&mut self) -> Vec<Taker> {
        let mut entries: Vec<(u64, InFlight)> = self.entries.drain().collect();
        entries.sort_by_key(|(number, _)| *number);
        *self = Self {
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

    fn taker(seat: SeatNumber, id: &str) -> Taker {
        Taker {
            seat,
            id: RequestId::Text(id.into()),
        }
    }

    fn plain(requests: &mut Requests, seat: SeatNumber, id: &str) -> u64 {
        let token = Some(RequestId::Text("t".into()));
        requests
            .open(Purpose::Plain, Some(taker(seat, id)), token)
            .unwrap()
    }

    #[test]
    fn requests_and_what_is_remembered_of_them_are_bounded() {
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
        assert_eq!(requests.cancel(&taker(1, "a")), Cancelled::Upstream(number));
        assert_eq!(requests.owner(number), Some(&taker(1, "a")));
        assert_eq!(requests.leave(1), [Cancelled::Nothing]);
        assert!(requests.take(number).is_none());
    }

    #[test]
    fn a_handshake_outlives_its_first_session_and_is_abandoned_with_the_last() {
        let mut requests = Requests::default();
        let number = requests
            .open(Purpose::Initialize, Some(taker(1, "a")), None)
            .unwrap();
        requests.follow(number, taker(2, "a"));
        assert_eq!(requests.leave(1), [Cancelled::Nothing]);
        assert_eq!(requests.owner(number), Some(&taker(2, "a")));
        assert_eq!(requests.leave(2), [Cancelled::HandshakeAbandoned]);
    }
}
