//! One-time codes of the page. The address of the page can have a code instead of a token, so that
//! no token gets into an address, a history or a log.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time for which a code is valid.
pub(crate) const VALID_FOR: Duration = Duration::from_mins(1);

/// The most codes at the same time. Beyond it, the oldest one is dropped.
const MAX_CODES: usize = 32;

/// The valid codes, in memory only.
#[derive(Debug, Default)]
pub(crate) struct PageCodes(Mutex<IssuedCodes>);

/// The codes, the oldest first.
#[derive(Debug, Default)]
struct IssuedCodes {
    codes: VecDeque<IssuedCode>,
    /// Whether a task waits to forget codes that expire.
    has_sweeper: bool,
}

/// A code with the token that it stands for.
#[derive(Debug)]
struct IssuedCode {
    /// The digest of the code. The time to compare it tells nothing about the code.
    digest: [u8; 32],
    token: SecretString,
    /// Cancelled when the key of the token is removed.
    revocation: CancellationToken,
    ends_at: Instant,
}

impl PageCodes {
    /// Creates a code for a token: 128 random bits. It is forgotten when it is used or expired.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system if it gives no random numbers.
    pub(crate) fn issue(
        self: &Arc<Self>,
        token: SecretString,
        revocation: CancellationToken,
    ) -> Result<String, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let code = URL_SAFE_NO_PAD.encode(random);
        let ends_at = Instant::now() + VALID_FOR;
        let issued = IssuedCode {
            digest: digest(&code),
            token,
            revocation,
            ends_at,
        };
        let mut held = self.0.lock();
        if held.codes.len() >= MAX_CODES {
            held.codes.pop_front();
        }
        held.codes.push_back(issued);
        if !std::mem::replace(&mut held.has_sweeper, true) {
            tokio::spawn(forget_expired(Arc::downgrade(self), ends_at));
        }
        Ok(code)
    }

    /// Returns the token of a code, and forgets the code. Returns `None` for an unknown, used or
    /// expired code, and if the key of the token was removed.
    pub(crate) fn redeem(&self, code: &str) -> Option<SecretString> {
        self.remove_expired();
        let digest = digest(code);
        let codes = &mut self.0.lock().codes;
        let position = codes.iter().position(|issued| issued.digest == digest)?;
        let issued = codes.remove(position)?;
        (!issued.revocation.is_cancelled()).then_some(issued.token)
    }

    fn remove_expired(&self) {
        let now = Instant::now();
        self.0.lock().codes.retain(|issued| issued.ends_at > now);
    }

    /// Forgets the expired codes, and returns when the next one expires. Without codes, it notes
    /// that no task waits any more.
    fn next_end(&self) -> Option<Instant> {
        self.remove_expired();
        let mut held = self.0.lock();
        let next = held.codes.front().map(|issued| issued.ends_at);
        held.has_sweeper = next.is_some();
        next
    }
}

/// Forgets codes when they expire, until none is left: a token must not stay in memory if nobody
/// uses its code.
async fn forget_expired(codes: Weak<PageCodes>, first_end: Instant) {
    let mut end = first_end;
    loop {
        tokio::time::sleep_until(end).await;
        let Some(codes) = codes.upgrade() else {
            return;
        };
        let Some(next) = codes.next_end() else {
            return;
        };
        end = next;
    }
}

fn digest(code: &str) -> [u8; 32] {
    Sha256::digest(code).into()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn issue(codes: &Arc<PageCodes>, token: &str) -> String {
        codes.issue(token.into(), CancellationToken::new()).unwrap()
    }

    fn redeem(codes: &PageCodes, code: &str) -> Option<String> {
        let token = codes.redeem(code)?;
        Some(token.expose_secret().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_is_valid_once_and_for_a_minute() {
        let codes = Arc::new(PageCodes::default());
        let code = issue(&codes, "token of alice");
        assert_eq!(code.len(), 22);
        assert_eq!(redeem(&codes, "unknown"), None);
        tokio::time::advance(VALID_FOR.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(redeem(&codes, &code).as_deref(), Some("token of alice"));
        assert_eq!(redeem(&codes, &code), None);

        let code = issue(&codes, "token of alice");
        tokio::time::advance(VALID_FOR).await;
        assert_eq!(redeem(&codes, &code), None);
    }

    #[tokio::test(start_paused = true)]
    async fn unused_tokens_do_not_stay_in_memory() {
        let codes = Arc::new(PageCodes::default());
        for n in 0..3 {
            // The task that waited for the first code is over before the last one.
            let others = (0..n).map(|n| issue(&codes, &format!("token {n}")));
            assert_eq!(others.count(), n);
            issue(&codes, "token of alice");
            tokio::time::sleep(VALID_FOR / 2).await;
            issue(&codes, "token of bob");
            tokio::time::sleep(VALID_FOR * 2).await;
            let held = codes.0.lock();
            assert!(held.codes.is_empty() && !held.has_sweeper);
        }
    }

    #[tokio::test]
    async fn the_oldest_code_is_dropped_beyond_the_limit() {
        let codes = Arc::new(PageCodes::default());
        let all: Vec<String> = (0..=MAX_CODES)
            .map(|n| issue(&codes, &n.to_string()))
            .collect();
        assert_eq!(redeem(&codes, &all[0]), None);
        assert_eq!(redeem(&codes, &all[1]).as_deref(), Some("1"));
        assert_eq!(redeem(&codes, &all[MAX_CODES]).as_deref(), Some("32"));
    }

    #[tokio::test]
    async fn the_code_of_a_removed_key_is_not_valid() {
        let codes = Arc::new(PageCodes::default());
        let revocation = CancellationToken::new();
        let code = codes.issue("token".into(), revocation.clone()).unwrap();
        revocation.cancel();
        assert_eq!(redeem(&codes, &code), None);
    }

    #[tokio::test]
    async fn tokens_are_hidden_in_debug_output() {
        let codes = Arc::new(PageCodes::default());
        issue(&codes, "token of alice");
        assert!(!format!("{codes:?}").contains("alice"));
    }
}
