//! Limits for proxied messages.

use std::time::Duration;

use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The `limits` section of the configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "deadlines_are_ordered"))]
pub struct Limits {
    /// The longest time of a request without an answer or progress.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// The longest time of a request, even with progress.
    #[serde(with = "humantime_serde")]
    pub call_timeout_max: Duration,
    /// The longest time for the handshake of an upstream that was started again.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// The pause after which an unconnected session is ended.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// The longest time for requests in flight to end when the proxy or a client stops.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    /// The time that the first clients wait for an upstream of which nothing is known yet, before
    /// they get a handshake or a list without it.
    #[serde(with = "humantime_serde")]
    pub first_wait: Duration,
    /// Timeout of a fan-out to several upstreams. A late upstream is left out of the answer;
    /// clients get a notification about its lists later.
    #[serde(with = "humantime_serde")]
    pub unite_timeout: Duration,
    /// The most entries of one page of an aggregated list.
    #[validate(range(min = 1))]
    pub list_page_entries: usize,
    /// The most requests in flight at once in the whole proxy.
    #[validate(range(min = 1))]
    pub in_flight: usize,
    /// The most requests in flight at once in one session.
    #[validate(range(min = 1))]
    pub in_flight_per_session: usize,
    /// The most bytes of all messages of requests in flight. One request may always have as many as
    /// `request_body_bytes`.
    #[validate(range(min = 1_048_576))]
    pub in_flight_bytes: usize,
    /// The most TCP connections of clients at once.
    #[validate(range(min = 8))]
    pub connections: usize,
    /// The most sessions at once.
    #[validate(range(min = 1))]
    pub sessions: usize,
    /// The most sessions of one principal at once.
    #[validate(range(min = 1))]
    pub sessions_per_principal: usize,
    /// The most bytes of all messages that wait for clients over HTTP.
    #[validate(range(min = 1_048_576))]
    pub waiting_bytes: usize,
    /// The largest share of one principal in each resource: sessions, requests in flight and their
    /// bytes, connections of an upstream, waiting bytes, searches, and long texts in processing. It
    /// applies if there may be several principals.
    #[validate(custom(function = "is_share"))]
    pub principal_share: f64,
    /// The most messages of one principal in a second over HTTP; `None` for no limit.
    #[validate(range(min = 1, max = 1_000))]
    pub requests_per_second: Option<u32>,
    /// The largest message of a client, in bytes.
    #[validate(range(min = 1024))]
    pub request_body_bytes: usize,
    /// The most levels of objects and arrays in one message, of clients and of upstreams.
    #[validate(range(min = 16, max = 10_000))]
    pub message_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_mins(1),
            call_timeout_max: Duration::from_mins(10),
            handshake_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(30),
            drain_timeout: Duration::from_secs(30),
            first_wait: Duration::from_millis(1_500),
            unite_timeout: Duration::from_secs(10),
            list_page_entries: 1_000,
            in_flight: 4_096,
            in_flight_per_session: 1_024,
            in_flight_bytes: 256 << 20,
            connections: 16_384,
            sessions: 10_000,
            sessions_per_principal: 1_000,
            waiting_bytes: 256 << 20,
            principal_share: 0.5,
            requests_per_second: None,
            request_body_bytes: 4 << 20,
            message_depth: 100,
        }
    }
}

impl Limits {
    /// Returns the number of `n_places` that one principal may use if there may be several: at
    /// least one.
    pub(crate) fn share_of(&self, n_places: usize) -> usize {
        if n_places == usize::MAX {
            return n_places; // As many as anybody wants.
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a number of places, which is checked to be one"
        )]
        let share = (n_places as f64 * self.principal_share) as usize;
        share.clamp(1, n_places.max(1))
    }
}

fn is_share(share: f64) -> Result<(), ValidationError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    let message = "expected a share above 0 and at most 1";
    Err(ValidationError::new("range").with_message(message.into()))
}

fn deadlines_are_ordered(limits: &Limits) -> Result<(), ValidationError> {
    if limits.call_timeout <= limits.call_timeout_max {
        return Ok(());
    }
    Err(ValidationError::new("order")
        .with_message("call_timeout must not be longer than call_timeout_max".into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn principal_shares_are_fractions_of_at_least_one() {
        let of = |n_places, principal_share| {
            let limits = Limits {
                principal_share,
                ..Limits::default()
            };
            limits.share_of(n_places)
        };
        assert_eq!(of(4_096, 0.5), 2_048);
        assert_eq!(of(3, 0.5), 1);
        assert_eq!(of(1, 0.5), 1);
        assert_eq!(of(10, 1.0), 10);
        assert_eq!(of(usize::MAX, 0.5), usize::MAX);
    }

    #[test]
    fn shares_must_be_above_zero_and_at_most_one() {
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(is_share(share).is_err(), "{share}");
        }
        assert!(is_share(0.01).is_ok() && is_share(1.0).is_ok());
    }

    proptest! {
        #[test]
        fn a_share_is_at_least_one_and_rounded_down(
            n_places in 1_usize..1_000_000,
            principal_share in 0.001_f64..=1.0,
        ) {
            let limits = Limits { principal_share, ..Limits::default() };
            let share = limits.share_of(n_places);
            prop_assert!(share >= 1 && share <= n_places);
            #[expect(clippy::cast_precision_loss, reason = "numbers of places are small")]
            let part = n_places as f64 * principal_share;
            #[expect(clippy::cast_precision_loss, reason = "numbers of places are small")]
            let share = share as f64;
            prop_assert!(share <= part.max(1.0));
        }
    }
}
