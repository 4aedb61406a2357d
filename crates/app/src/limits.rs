//! The limits under which messages are proxied.

use std::time::Duration;

use serde::Deserialize;
use validator::{Validate, ValidationError};

/// The `limits` section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "deadlines_are_ordered"))]
pub struct Limits {
    /// The longest that a request may stay without an answer or a sign of progress.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// The longest that a request may take however much progress it reports.
    #[serde(with = "humantime_serde")]
    pub call_timeout_max: Duration,
    /// The longest that an upstream which was started again may take for its handshake.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// How long a session may be silent and unconnected before it is ended.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// How long requests in flight may take to end when the proxy or a client stops.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    /// How long several upstreams are waited for when all of them are asked. One that is late is
    /// left out of the answer, and clients are told of its lists when it comes.
    #[serde(with = "humantime_serde")]
    pub unite_timeout: Duration,
    /// The most entries of one page of a list that the proxy makes of those of several upstreams.
    #[validate(range(min = 1))]
    pub list_page_entries: usize,
    /// The most requests in flight at once in the whole proxy.
    #[validate(range(min = 1))]
    pub in_flight: usize,
    /// The most requests in flight at once in one session.
    #[validate(range(min = 1))]
    pub in_flight_per_session: usize,
    /// The most sessions at once.
    #[validate(range(min = 1))]
    pub sessions: usize,
    /// The most sessions of one principal at once.
    #[validate(range(min = 1))]
    pub sessions_per_principal: usize,
    /// The most messages of one principal in a second that are taken over HTTP; `None` for any number.
    #[validate(range(min = 1, max = 1_000))]
    pub requests_per_second: Option<u32>,
    /// The largest message that a client may send, in bytes.
    #[validate(range(min = 1024))]
    pub request_body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_mins(1),
            call_timeout_max: Duration::from_mins(10),
            handshake_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(30),
            drain_timeout: Duration::from_secs(30),
            unite_timeout: Duration::from_secs(10),
            list_page_entries: 1_000,
            in_flight: 4_096,
            in_flight_per_session: 1_024,
            sessions: 10_000,
            sessions_per_principal: 1_000,
            requests_per_second: None,
            request_body_bytes: 4 << 20,
        }
    }
}

fn deadlines_are_ordered(limits: &Limits) -> Result<(), ValidationError> {
    if limits.call_timeout <= limits.call_timeout_max {
        return Ok(());
    }
    Err(ValidationError::new("order")
        .with_message("call_timeout must not be longer than call_timeout_max".into()))
}
