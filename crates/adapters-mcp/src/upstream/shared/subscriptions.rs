//! The subscriptions of sessions to resources. The server sees one subscriber per shared
//! connection.

use std::collections::{BTreeMap, BTreeSet};

use super::requests::SharedSessionNumber;

/// The maximum number of resources with a subscription on one connection.
const MAX_RESOURCES: usize = 16_384;

#[derive(Debug, Default)]
struct Subscription {
    seats: BTreeSet<SharedSessionNumber>,
    /// The number of the subscription request while it is in flight.
    asked: Option<u64>,
}

/// The state of a subscription that a session joins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    /// The first subscriber: its own request goes to the server.
    First,
    /// The request of another session, with this number, is in flight.
    Asked(u64),
    /// The server has confirmed the subscription.
    Known,
    /// The maximum number of subscriptions is reached.
    Full,
}

/// The effect of a session that unsubscribes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaveOutcome {
    /// The request goes to the server, which also answers it for unknown subscriptions.
    Upstream,
    /// Other sessions are still subscribed.
    Kept,
}

#[derive(Debug, Default)]
pub(super) struct Subscriptions(BTreeMap<Box<str>, Subscription>);

impl Subscriptions {
    /// Adds a session to the subscribers of a resource.
    pub(super) fn join(&mut self, seat: SharedSessionNumber, uri: &str) -> JoinOutcome {
        if let Some(subscription) = self.0.get_mut(uri) {
            subscription.seats.insert(seat);
            return subscription
                .asked
                .map_or(JoinOutcome::Known, JoinOutcome::Asked);
        }
        if self.0.len() >= MAX_RESOURCES {
            return JoinOutcome::Full;
        }
        let subscription = self.0.entry(uri.into()).or_default();
        subscription.seats.insert(seat);
        JoinOutcome::First
    }

    /// Stores the number of the request that subscribes at the server.
    pub(super) fn set_pending_request(&mut self, uri: &str, number: u64) {
        if let Some(subscription) = self.0.get_mut(uri) {
            subscription.asked = Some(number);
        }
    }

    /// Confirms a subscription after the server accepted it.
    pub(super) fn confirm(&mut self, uri: &str, number: u64) {
        if let Some(subscription) = self.0.get_mut(uri)
            && subscription.asked == Some(number)
        {
            subscription.asked = None;
        }
    }

    /// Removes a subscription after the server rejected it.
    pub(super) fn reject(&mut self, uri: &str, number: u64) {
        if self
            .0
            .get(uri)
            .is_some_and(|subscription| subscription.asked == Some(number))
        {
            self.0.remove(uri);
        }
    }

    /// Removes a session from the subscribers of a resource.
    pub(super) fn leave(&mut self, seat: SharedSessionNumber, uri: &str) -> LeaveOutcome {
        let Some(subscription) = self.0.get_mut(uri) else {
            return LeaveOutcome::Upstream;
        };
        subscription.seats.remove(&seat);
        if !subscription.seats.is_empty() {
            return LeaveOutcome::Kept;
        }
        self.0.remove(uri);
        LeaveOutcome::Upstream
    }

    /// Removes a session from all subscriptions. Returns the resources without any subscriber left.
    pub(super) fn leave_all(&mut self, seat: SharedSessionNumber) -> Vec<Box<str>> {
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

    pub(super) fn has_subscribers(&self, uri: &str) -> bool {
        self.0.contains_key(uri)
    }

    /// Returns the sessions to notify of an update. A server may name a part of a subscribed
    /// resource. If no subscription matches, all subscribers are returned.
    pub(super) fn subscribers(&self, uri: &str) -> BTreeSet<SharedSessionNumber> {
        let of = |is_meant: &dyn Fn(&str) -> bool| -> BTreeSet<SharedSessionNumber> {
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

/// Returns whether `uri` names the resource `whole` or a part of it.
fn is_part(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole).is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_and_last_subscribers_cause_upstream_requests() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(subscriptions.join(1, "a"), JoinOutcome::First);
        subscriptions.set_pending_request("a", 7);
        assert_eq!(subscriptions.join(2, "a"), JoinOutcome::Asked(7));
        subscriptions.confirm("a", 7);
        assert_eq!(subscriptions.join(3, "a"), JoinOutcome::Known);
        assert_eq!(subscriptions.leave(1, "a"), LeaveOutcome::Kept);
        assert_eq!(subscriptions.leave_all(3), Vec::<Box<str>>::new());
        assert_eq!(subscriptions.leave_all(2), ["a".into()]);
        assert_eq!(subscriptions.leave(2, "a"), LeaveOutcome::Upstream);
    }

    #[test]
    fn an_old_refusal_does_not_end_a_new_subscription() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, "a");
        subscriptions.set_pending_request("a", 1);
        subscriptions.leave(1, "a");
        subscriptions.join(1, "a");
        subscriptions.set_pending_request("a", 2);
        subscriptions.reject("a", 1);
        assert_eq!(subscriptions.join(2, "a"), JoinOutcome::Asked(2));
        subscriptions.reject("a", 2);
        assert_eq!(subscriptions.join(2, "a"), JoinOutcome::First);
    }

    #[test]
    fn updates_of_subresources_reach_subscribers_of_the_parent() {
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
