//! The opaque `requestState` that a client hands back: what it binds a retry to, and the seal that
//! shows a change of it.
//!
//! A state is `base64url(payload) "." base64url(HMAC-SHA-256 of the payload)`.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use riglm_domain::canonical::KeyedHasher;
use riglm_domain::edit;
use riglm_domain::meta::CLIENT_CAPABILITIES;
use riglm_domain::principal::Principal;
use riglm_ports::clock::Clock;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::time::Instant;

use crate::clock::SystemClock;

/// Keeps the seals of states apart from anything else that is signed with the same key.
const CONTEXT: &[u8] = b"riglm request state 1\n";

/// What a retry is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Going on with the parked call of this name.
    Resume(Box<str>),
    /// Making the call again, as nothing of it is parked.
    Repeat,
}

/// What a state says: which retry it is for, of whom, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ticket {
    /// What the retry is for.
    #[serde(rename = "f")]
    pub(super) purpose: Purpose,
    /// How often the call asked for input so far.
    #[serde(rename = "n")]
    pub(super) n_rounds: u32,
    /// Milliseconds of the Unix epoch after which the state is worth nothing.
    #[serde(rename = "x")]
    pub(super) expires_ms: i64,
    /// Who may use it.
    #[serde(rename = "p")]
    pub(super) principal: Principal,
    /// The method of the request.
    #[serde(rename = "m")]
    pub(super) method: Box<str>,
    /// The digest of the parameters that make the request what it is.
    #[serde(rename = "d")]
    pub(super) digest: Box<str>,
}

/// Why a state is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StateError {
    /// It was not made here, or not under this key, or was changed.
    #[error("requestState is forged or damaged")]
    Forged,
    /// It was made for another principal.
    #[error("requestState is that of another caller")]
    OtherCaller,
    /// It was made for another method or other parameters.
    #[error(
        "requestState is that of another request: method, name, uri, arguments and capabilities must stay"
    )]
    OtherRequest,
    /// Its time is over.
    #[error("requestState has expired: make the call anew")]
    Expired,
    /// There is no call that waits under it.
    #[error("requestState was used already, or is unknown or expired: make the call anew")]
    Unknown,
}

/// Makes and checks states under one key.
pub(super) struct Seal {
    mac: Hmac<Sha256>,
    hasher: KeyedHasher,
    started_at: Timestamp,
    started: Instant,
}

impl Seal {
    /// Returns the seal under `key`.
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

    /// Returns when a state that is made now expires: in milliseconds of the Unix epoch.
    pub(super) fn expiry(&self, ttl: Duration) -> i64 {
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.now_ms().saturating_add(ttl)
    }

    /// Returns the state that says what `ticket` does.
    pub(super) fn close(&self, ticket: &Ticket) -> String {
        // A struct of texts and numbers always has a JSON text.
        let payload = serde_json::to_vec(ticket).unwrap_or_default();
        let seal = self.signed(&payload).finalize().into_bytes();
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&payload),
            URL_SAFE_NO_PAD.encode(seal)
        )
    }

    /// Returns what a state says if it was made here for this request of this caller and has not
    /// expired.
    ///
    /// # Errors
    ///
    /// Returns the first thing that is wrong with it.
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
        self.signed(&payload)
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

    /// Returns the digest of the parameters that make a request what it is: `name`, `uri` and
    /// `arguments`, however they are written, and what the client can do. The server was told that
    /// once and may ask for any of it until the call ends.
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

    fn signed(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(CONTEXT);
        mac.update(payload);
        mac
    }

    /// Counted from the start by the clock that parked calls are timed by, so that both agree.
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
            principal: Principal::named("p"),
            method: "tools/call".into(),
            digest: seal.digest(Some(PARAMS)),
        }
    }

    #[test]
    fn a_state_opens_for_the_same_request_however_it_is_written() {
        let seal = Seal::new(&[1; 32]);
        let ticket = ticket(&seal);
        let state = seal.close(&ticket);
        let again = r#"{"requestState":"x","arguments":{ "b":[2],"a":1 },"name":"\u006e"}"#;
        let opened = seal.open(&state, &Principal::named("p"), "tools/call", Some(again));
        assert_eq!(opened, Ok(ticket));
    }

    #[test]
    fn a_state_opens_for_nothing_else() {
        let seal = Seal::new(&[1; 32]);
        let state = seal.close(&ticket(&seal));
        let open = |state: &str, principal, method, params| {
            seal.open(state, &Principal::named(principal), method, Some(params))
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
    fn a_state_whose_time_is_over_has_expired() {
        let seal = Seal::new(&[1; 32]);
        let over = Ticket {
            expires_ms: seal.expiry(Duration::ZERO),
            ..ticket(&seal)
        };
        let state = seal.close(&over);
        let opened = seal.open(&state, &Principal::named("p"), "tools/call", Some(PARAMS));
        assert_eq!(opened, Err(StateError::Expired));
    }
}
