//! How many messages of a principal are taken in a second, over transports on which nothing else holds
//! up who sends too many.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use riglm_domain::principal::Principal;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::safeguard::limiter::{Rate, TokenBucket};
use riglm_ports::observer::{Event, EventOrigin, Limit};

use super::Proxy;

/// The most principals of which is remembered what they sent in the last second.
const MAX_PRINCIPALS: usize = 10_000;
/// The window in which messages are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// What principals sent in the last second.
#[derive(Debug)]
pub(super) struct Floods(Mutex<Sent>);

#[derive(Debug)]
struct Sent {
    buckets: LruCache<Principal, TokenBucket>,
    latest: Option<Instant>,
}

impl Default for Floods {
    fn default() -> Self {
        Self(Mutex::new(Sent {
            buckets: LruCache::unbounded(),
            latest: None,
        }))
    }
}

impl Floods {
    /// Returns whether a message of a principal is one of those that a rate allows, and counts it if so.
    fn takes(&self, principal: &Principal, rate: Rate, at: Instant) -> bool {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Messages come here in another order than they were received.
        let at = sent.latest.map_or(at, |latest| latest.max(at));
        sent.latest = Some(at);
        let is_known = sent.buckets.contains(principal);
        if !is_known && sent.buckets.len() >= MAX_PRINCIPALS {
            sent.buckets.pop_lru();
        }
        let bucket = (sent.buckets).get_or_insert_mut_ref(principal, || TokenBucket::new(rate));
        if bucket.rate() != rate {
            *bucket = TokenBucket::new(rate); // The limit was changed.
        }
        bucket.take(at).is_ok()
    }
}

impl Proxy {
    /// Counts a message of a principal that came at a moment. Who is refused may try again in a second.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`] where the principal sent as many in the last second as
    /// the limits allow.
    pub fn admit_message(&self, principal: &Principal, at: Instant) -> Result<(), RpcError> {
        let Some(n) = self.shared.limits().requests_per_second else {
            return Ok(());
        };
        // What is no rate is refused where limits are read.
        let rate = Rate::new(n, WINDOW).ok();
        if rate.is_none_or(|rate| self.floods.takes(principal, rate, at)) {
            return Ok(());
        }
        let origin = EventOrigin::of_principal(principal);
        let event = Event::LimitReached(Limit::Requests);
        self.shared.observe_from(&event, &origin);
        let text = format!("more than {n} messages in a second; try again in 1 s");
        Err(RpcError::new(RpcErrorCode::LimitReached, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_may_send_so_much_in_any_second() {
        let floods = Floods::default();
        let [one, other] = ["one", "other"].map(Principal::named);
        let rate = Rate::new(2, WINDOW).unwrap();
        let start = Instant::now();
        let takes = |principal: &Principal, ms| {
            floods.takes(principal, rate, start + Duration::from_millis(ms))
        };
        assert!(takes(&one, 0) && takes(&one, 600) && !takes(&one, 999));
        assert!(takes(&other, 999));
        // One that was received before another came later.
        assert!(!takes(&one, 500));
        assert!(takes(&one, 1_000) && !takes(&one, 1_599) && takes(&one, 1_600));
    }

    #[test]
    fn a_limit_that_changes_holds_at_once_and_what_is_remembered_is_bounded() {
        let floods = Floods::default();
        let principal = Principal::local();
        let now = Instant::now();
        let takes = |n| floods.takes(&principal, Rate::new(n, WINDOW).unwrap(), now);
        assert!(takes(1) && !takes(1) && takes(2) && takes(2) && !takes(2));
        let rate = Rate::new(1, WINDOW).unwrap();
        for n in 0..MAX_PRINCIPALS + 10 {
            assert!(floods.takes(&Principal::named(&n.to_string()), rate, now));
        }
        assert_eq!(floods.0.lock().unwrap().buckets.len(), MAX_PRINCIPALS);
    }
}
