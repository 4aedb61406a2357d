//! Which sessions want to hear of which resources: the server knows of one subscriber only.

use std::collections::{BTreeMap, BTreeSet};

use super::requests::SeatNumber;

/// The most resources that are subscribed to over one connection.
const MAX_RESOURCES: usize = 16_384;

#[derive(Debug, Default)]
struct Subscription {
    seats: BTreeSet<SeatNumber>,
    /// The request that is to make it, while that is in flight.
    asked: Option<u64>,
}

/// What a session that subscribes has to wait for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Its own request: the server does not know yet.
    First,
    /// The request of another session, with this number.
    Asked(u64),
    /// Nothing: the server knows.
    Known,
    /// There are too many subscriptions.
    Full,
}

/// What becomes of a subscription that a session gives up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The server must be told, or asked what it makes of it.
    Upstream,
    /// Others keep it.
    Kept,
}

/// All subscriptions of one connection, by the URI of the resource.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(BTreeMap<Box<str>, Subscription>);

impl Subscriptions {
    /// Notes that a session subscribes.
    pub(super) fn join(&mut self, seat: SeatNumber, uri: &str) -> Joining {
        if let Some(subscription) = self.0.get_mut(uri) {
            subscription.seats.insert(seat);
            return subscription.asked.map_or(Joining::Known, Joining::Asked);
        }
        if self.0.len() >= MAX_RESOURCES {
            return Joining::Full;
        }
        let subscription = self.0.entry(uri.into()).or_default();
        subscription.seats.insert(seat);
        Joining::First
    }

    /// Notes the request by which the server is told.
    pub(super) fn asked(&mut self, uri: &str, number: u64) {
        if let Some(subscription) = self.0.get_mut(uri) {
            subscription.asked = Some(number);
        }
    }

    /// Notes that the server agreed.
    pub(super) fn agreed(&mut self, uri: &str, number: u64) {
        if let Some(subscription) = self.0.get_mut(uri)
            && subscription.asked == Some(number)
        {
            subscription.asked = None;
        }
    }

    /// Notes that the server did not agree.
    pub(super) fn failed(&mut self, uri: &str, number: u64) {
        if self
            .0
            .get(uri)
            .is_some_and(|subscription| subscription.asked == Some(number))
        {
            self.0.remove(uri);
        }
    }

    /// Notes that a session unsubscribes.
    pub(super) fn leave(&mut self, seat: SeatNumber, uri: &str) -> Leaving {
        let Some(subscription) = self.0.get_mut(uri) else {
            return Leaving::Upstream;
        };
        subscription.seats.remove(&seat);
        if !subscription.seats.is_empty() {
            return Leaving::Kept;
        }
        self.0.remove(uri);
        Leaving::Upstream
    }

    /// Takes a session out of all subscriptions. Returns those that nobody wants any more.
    pub(super) fn leave_all(&mut self, seat: SeatNumber) -> Vec<Box<str>> {
        let mut unwanted = Vec::new();
        self.0.retain(|uri, subscription| {
            let was_there = subscription.seats.remove(&seat);
            let is_unwanted = was_there && subscription.seats.is_empty();
            if is_unwanted {
                unwanted.push(uri.clone());
            }
            !is_unwanted
        });
        unwanted
    }

    /// Returns whether somebody is subscribed to a resource.
    pub(super) fn is_known(&self, uri: &str) -> bool {
        self.0.contains_key(uri)
    }

    /// Returns the sessions that want to hear of a resource. A server may name a part of what was
    /// subscribed to; of what fits nothing all subscribers are told.
    pub(super) fn subscribers(&self, uri: &str) -> BTreeSet<SeatNumber> {
        let of = |is_meant: &dyn Fn(&str) -> bool| -> BTreeSet<SeatNumber> {
            let meant = self.0.iter().filter(|(known, _)| is_meant(known));
            meant
                .flat_map(|(_, subscription)| subscription.seats.iter().copied())
                .collect()
        };
        let fitting = of(&|known| is_part(uri, known));
        if fitting.is_empty() {
            of(&|_| true)
        } else {
            fitting
        }
    }
}

/// Returns whether `uri` names the resource `whole` or something below it.
fn is_part(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole).is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_and_the_last_concern_the_server() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(subscriptions.join(1, "a"), Joining::First);
        subscriptions.asked("a", 7);
        assert_eq!(subscriptions.join(2, "a"), Joining::Asked(7));
        subscriptions.agreed("a", 7);
        assert_eq!(subscriptions.join(3, "a"), Joining::Known);
        assert_eq!(subscriptions.leave(1, "a"), Leaving::Kept);
        assert_eq!(subscriptions.leave_all(3), Vec::<Box<str>>::new());
        assert_eq!(subscriptions.leave_all(2), ["a".into()]);
        assert_eq!(subscriptions.leave(2, "a"), Leaving::Upstream);
    }

    #[test]
    fn an_old_refusal_does_not_end_a_new_subscription() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, "a");
        subscriptions.asked("a", 1);
        subscriptions.leave(1, "a");
        subscriptions.join(1, "a");
        subscriptions.asked("a", 2);
        subscriptions.failed("a", 1);
        assert_eq!(subscriptions.join(2, "a"), Joining::Asked(2));
        subscriptions.failed("a", 2);
        assert_eq!(subscriptions.join(2, "a"), Joining::First);
    }

    #[test]
    fn a_part_of_a_resource_is_news_of_the_whole() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, "file:///a");
        subscriptions.join(2, "file:///b");
        assert_eq!(subscriptions.subscribers("file:///a/x"), [1].into());
        assert_eq!(subscriptions.subscribers("file:///b"), [2].into());
        for unknown in ["other://", "file:///ab"] {
            assert_eq!(subscriptions.subscribers(unknown), [1, 2].into());
        }
    }
}
