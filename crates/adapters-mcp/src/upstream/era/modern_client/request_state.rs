//! The opaque `requestState` that a client sends back: the binding of a retry to its request, and
//! the seal against changes.
//!
//! A state is `base64url(payload) "." base64url(HMAC-SHA-256 of the payload)`.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::meta::CLIENT_CAPABILITIES;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::clock::Clock;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::time::Instant;

use riglm_app::clock::SystemClock;

/// Separates the seals of states from other signatures with the same key.
const CONTEXT: &[u8] = b"riglm request state 1\n";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Continues the parked call of this name.
    Resume(Box<str>),
    /// Makes the call again, because it is not parked.
    Repeat,
}

/// The content of a state: the purpose, the request, the principal and the expiry of a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ticket {
    #[serde(rename = "f")]
    pub(super) purpose: Purpose,
    /// The number of rounds in which the call has asked for input.
    #[serde(rename = "n")]
    pub(super) n_rounds: u32,
    /// The expiry in milliseconds of the Unix epoch.
    #[serde(rename = "x")]
    pub(super) expires_ms: i64,
    /// The principal that may use it.
    #[serde(rename = "p")]
    pub(super) principal: Principal,
    #[serde(rename = "m")]
    pub(super) method: Box<str>,
    /// The digest of the parameters that identify the request.
    #[serde(rename = "d")]
    pub(super) digest: Box<str>,
}

/// The reason why a state is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StateError {
    /// The state is foreign, has another key, or was changed.
    #[error("requestState is forged or damaged")]
    Forged,
    /// The state belongs to another principal.
    #[error("requestState belongs to another caller")]
    OtherCaller,
    /// The state belongs to another method or other parameters.
    #[error(
        "requestState belongs to another request: method, name, uri, arguments and capabilities \
         must not change"
    )]
    OtherRequest,
    #[error("requestState has expired: make the call again")]
    Expired,
    /// No call waits under this state.
    #[error("requestState is unknown, expired or already used: make the call again")]
    Unknown,
}

/// Creates and verifies states with one key.
pub(super) struct Seal {
    mac: Hmac<Sha256>,
    hasher: KeyedHasher,
    started_at: Timestamp,
    started: Instant,
}

impl Seal {
    /// Returns the seal with this `key`.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        // A key shorter than the block of the hash is padded with zeros (RFC 2104 section 2).
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..key.len()].copy_from_slice(key);
        Self {
            mac: Hmac::new(&block),
            hasher: KeyedHasher::new(key),
            started_at: SystemClock.now(),
            started: Instant::now(),
        }
    }

    /// Returns the expiry of a state that is created now, in milliseconds of the Unix epoch.
    pub(super) fn expiry(&self, ttl: Duration) -> i64 {
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.now_ms().saturating_add(ttl)
    }

    /// Returns the sealed state with the content of `ticket`.
    pub(super) fn close(&self, ticket: &Ticket) -> String {
        // A struct of texts and numbers can always be serialized.
        let payload = serde_json::to_vec(ticket).unwrap_or_default();
        let seal = self.mac_of(&payload).finalize().into_bytes();
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&payload),
            URL_SAFE_NO_PAD.encode(seal)
        )
    }

    /// Returns the content of a state, if it was created here for this request of this principal
    /// and has not expired.
    ///
    /// # Errors
    ///
    /// Returns the first reason to reject it.
    pub(super) fn open(
        &self,
        state: &str,
        principal: &Principal,
        method: &str,
        params: Option<&str>,
    ) -> Result<Ticket, StateError> {
        let (payload, seal) = state.split_once('.').ok_or(StateError::Forged)?;
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| StateError::Forged);
        let (payload, seal) = (decoded(payload)?, decoded(seal)?);
        self.mac_of(&payload)
            .verify_slice(&seal)
            .map_err(|_| StateError::Forged)?;
        let ticket: Ticket = serde_json::from_slice(&payload).map_err(|_| StateError::Forged)?;
        if ticket.principal != *principal {
            return Err(StateError::OtherCaller);
        }
        if *ticket.method != *method || ticket.digest != self.digest(params) {
            return Err(StateError::OtherRequest);
        }
        if ticket.expires_ms <= self.now_ms() {
            return Err(StateError::Expired);
        }
        Ok(ticket)
    }

    /// Returns the digest of the parameters that identify a request: `name`, `uri` and `arguments`
    /// in canonical form, and the capabilities of the client. The server knows the capabilities
    /// from the handshake and may use any of them until the call ends.
    pub(super) fn digest(&self, params: Option<&str>) -> Box<str> {
        let salient = ["name", "uri", "arguments"].map(|key| {
            let value = params.and_then(|params| edit::member(params, key));
            value.unwrap_or("null")
        });
        let capabilities = params.and_then(|params| edit::meta(params, CLIENT_CAPABILITIES));
        let salient = format!("[{},{}]", salient.join(","), capabilities.unwrap_or("null"));
        let digest = self
            .hasher
            .hash_json(Some(&salient))
            .unwrap_or_else(|_| self.hasher.hash_text(&salient));
        digest.to_string().into()
    }

    fn mac_of(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(CONTEXT);
        mac.update(payload);
        mac
    }

    // Derived from the monotonic clock that also times parked calls, so that both agree.
    fn now_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.started_at.as_millisecond().saturating_add(elapsed)
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &str = r#"{"name":"n","arguments":{"a":1,"b":[2.0]}}"#;

    fn ticket(seal: &Seal) -> Ticket {
        Ticket {
            purpose: Purpose::Resume("0f".into()),
            n_rounds: 1,
            expires_ms: seal.expiry(Duration::from_mins(1)),
            principal: Principal::from_name("p"),
            method: "tools/call".into(),
            digest: seal.digest(Some(PARAMS)),
        }
    }

    #[test]
    fn states_open_for_equivalent_requests() {
        let seal = Seal::new(&[1; 32]);
        let ticket = ticket(&seal);
        let state = seal.close(&ticket);
        let again = r#"{"requestState":"x","arguments":{ "b":[2],"a":1 },"name":"\u006e"}"#;
        let opened = seal.open(
            &state,
            &Principal::from_name("p"),
            "tools/call",
            Some(again),
        );
        assert_eq!(opened, Ok(ticket));
    }

    #[test]
    fn states_of_other_callers_requests_or_keys_are_refused() {
        let seal = Seal::new(&[1; 32]);
        let state = seal.close(&ticket(&seal));
        let open = |state: &str, principal, method, params| {
            seal.open(
                state,
                &Principal::from_name(principal),
                method,
                Some(params),
            )
            .unwrap_err()
        };
        let other = PARAMS.replace("2.0", "3");
        assert_eq!(
            open(&state, "q", "tools/call", PARAMS),
            StateError::OtherCaller
        );
        assert_eq!(
            open(&state, "p", "prompts/get", PARAMS),
            StateError::OtherRequest
        );
        assert_eq!(
            open(&state, "p", "tools/call", &other),
            StateError::OtherRequest
        );
        for forged in [
            "",
            ".",
            "a.b",
            &state[1..],
            &state[..state.len() - 2],
            &format!("{state}A"),
        ] {
            assert_eq!(
                open(forged, "p", "tools/call", PARAMS),
                StateError::Forged,
                "{forged}"
            );
        }
        let foreign = Seal::new(&[2; 32]);
        let foreign = foreign.close(&ticket(&foreign));
        assert_eq!(
            open(&foreign, "p", "tools/call", PARAMS),
            StateError::Forged
        );
    }

    #[test]
    fn request_states_expire() {
        let seal = Seal::new(&[1; 32]);
        let over = Ticket {
            expires_ms: seal.expiry(Duration::ZERO),
            ..ticket(&seal)
        };
        let state = seal.close(&over);
        let opened = seal.open(
            &state,
            &Principal::from_name("p"),
            "tools/call",
            Some(PARAMS),
        );
        assert_eq!(opened, Err(StateError::Expired));
    }
}
