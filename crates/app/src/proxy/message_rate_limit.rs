//! The rate limit for messages of a principal per second, for transports without their own back
//! pressure.

use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::safeguards::limiter::{Rate, TokenBucket};
use riglm_ports::observer::{Event, EventOrigin, ResourceLimit};

use super::shared_state::SharedState;

/// The maximum number of principals whose rate is remembered.
const MAX_PRINCIPALS: usize = 10_000;
/// The window in which messages are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The message counts of principals in the last second.
#[derive(Debug)]
pub(super) struct MessageRateLimit(Mutex<MessageRates>);

#[derive(Debug)]
struct MessageRates {
    buckets: LruCache<Principal, TokenBucket>,
    latest: Option<Instant>,
}

impl Default for MessageRateLimit {
    fn default() -> Self {
        Self(Mutex::new(MessageRates {
            buckets: LruCache::unbounded(),
            latest: None,
        }))
    }
}

impl MessageRateLimit {
    /// Counts a message of a principal that was received at `at`. A refused client may retry after
    /// one second.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`] if the principal exceeded the limit of messages in
    /// the last second.
    pub(super) fn admit(
        &self,
        shared: &SharedState,
        principal: &Principal,
        at: Instant,
    ) -> Result<(), RpcError> {
        let Some(n) = shared.limits().requests_per_second else {
            return Ok(());
        };
        // An invalid rate is refused when the limits are read.
        let rate = Rate::new(n, WINDOW).ok();
        if rate.is_none_or(|rate| self.admits(principal, rate, at)) {
            return Ok(());
        }
        let origin = EventOrigin::of_principal(principal);
        let event = Event::LimitReached(ResourceLimit::Requests);
        shared.observe_from(&event, &origin);
        let text = format!("rate limit: more than {n} messages in a second; try again in 1 s");
        Err(RpcError::new(RpcErrorCode::LimitReached, text))
    }

    /// Returns whether the rate limit admits a message of a principal. Counts the message if so.
    fn admits(&self, principal: &Principal, rate: Rate, at: Instant) -> bool {
        let mut sent = self.0.lock();
        // Messages can arrive here in a different order than they were received, so time must not
        // run backwards.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_limited_per_principal_in_a_sliding_window() {
        let limit = MessageRateLimit::default();
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let rate = Rate::new(2, WINDOW).unwrap();
        let start = Instant::now();
        let takes = |principal: &Principal, ms| {
            limit.admits(principal, rate, start + Duration::from_millis(ms))
        };
        assert!(takes(&one, 0) && takes(&one, 600) && !takes(&one, 999));
        assert!(takes(&other, 999));
        // A message that was received earlier can arrive later.
        assert!(!takes(&one, 500));
        assert!(takes(&one, 1_000) && !takes(&one, 1_599) && takes(&one, 1_600));
    }

    #[test]
    fn changed_limits_apply_at_once_and_memory_is_bounded() {
        let limit = MessageRateLimit::default();
        let principal = Principal::local();
        let now = Instant::now();
        let takes = |n| limit.admits(&principal, Rate::new(n, WINDOW).unwrap(), now);
        assert!(takes(1) && !takes(1) && takes(2) && takes(2) && !takes(2));
        let rate = Rate::new(1, WINDOW).unwrap();
        for n in 0..MAX_PRINCIPALS + 10 {
            assert!(limit.admits(&Principal::from_name(&n.to_string()), rate, now));
        }
        assert_eq!(limit.0.lock().buckets.len(), MAX_PRINCIPALS);
    }
}
