//! The rounds of one logical call.
//!
//! A modern server may answer a call with a request for input; the client then sends the call again
//! with its answers and the `requestState` of the server, as a request of its own. What was asked is
//! remembered here, so that such a call is known as a further round of the first one. Of states,
//! names and arguments only digests are kept.

use std::collections::VecDeque;

use riglm_domain::canonical::write_canonical;
use riglm_domain::id::InvocationId;
use sha2::{Digest, Sha256};

use super::Relay;
use super::params::{RequestParams, is_input_required, request_state};
use super::pending::{Pending, Purpose};

/// The most requests for input that are remembered of one client and upstream. The oldest ones are
/// forgotten first: calls that come back to them count as new ones.
const MAX_ASKED: usize = 256;

/// What the rows of all rounds of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogicalCall {
    /// The row of its first round.
    pub(crate) first: InvocationId,
    /// Position among the calls of the session.
    pub(crate) sequence: u64,
}

/// What a further round goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Continued {
    pub(crate) call: LogicalCall,
    /// It is the first to come back to what was asked, with the arguments of the call that was asked: a
    /// part of a call that was let go on already, and no other one.
    pub(crate) is_expected: bool,
}

/// The requests for input that calls were answered with, oldest first.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Rounds {
    asked: VecDeque<Asked>,
}

/// A request for input that a call was answered with.
#[derive(Debug)]
struct Asked {
    key: RoundKey,
    call: LogicalCall,
    /// A call came back to it already.
    is_continued: bool,
}

/// The first half of a SHA-256.
type Half = [u8; 16];

/// What a call and the one that continues it have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundKey {
    /// Tool and arguments.
    call: Half,
    /// Tool and `requestState`, if the server gave one.
    state: Option<Half>,
}

impl RoundKey {
    fn new(params: &RequestParams<'_>, state: Option<&str>) -> Self {
        let tool = params.name().unwrap_or_default();
        let of_tool = || {
            let mut digest = Sha256::new();
            digest.update(tool.len().to_le_bytes());
            digest.update(tool.as_bytes());
            digest
        };
        let mut call = of_tool();
        let arguments = params.arguments().unwrap_or("{}");
        if write_canonical(arguments, &mut |piece| call.update(piece)).is_err() {
            call.update(arguments.as_bytes());
        }
        let state = state.map(|state| half(of_tool().chain_update(state.as_bytes())));
        Self {
            call: half(call),
            state,
        }
    }
}

fn half(digest: Sha256) -> Half {
    let full = digest.finalize();
    let mut half = Half::default();
    half.copy_from_slice(&full[..16]);
    half
}

impl Rounds {
    fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    fn remember(&mut self, key: RoundKey, call: LogicalCall) {
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(Asked {
            key,
            call,
            is_continued: false,
        });
    }

    /// Returns the call that one with this key continues: the one with the same state, or, where
    /// there is none, with the same tool and arguments.
    ///
    /// A server may give several calls the same state, or none. Then those with the same arguments
    /// come first, then those that nothing came back to, then the newest. What was asked is not
    /// forgotten when it is found, since a client may repeat a round whose answer it did not get.
    fn find(&mut self, key: &RoundKey) -> Option<Continued> {
        let fits = |asked: &&mut Asked| {
            asked.key.state == key.state && (key.state.is_some() || asked.key.call == key.call)
        };
        let found = self
            .asked
            .iter_mut()
            .filter(fits)
            .max_by_key(|asked| (asked.key.call == key.call, !asked.is_continued))?;
        let was_continued = std::mem::replace(&mut found.is_continued, true);
        Some(Continued {
            call: found.call,
            is_expected: !was_continued && found.key.call == key.call,
        })
    }
}

impl Relay {
    /// Returns the logical call of which a call is a further round; `None` for an ordinary one, and
    /// for one that continues what is not known here.
    pub(super) fn continued(&self, params: &RequestParams<'_>) -> Option<Continued> {
        if !params.is_further_round() || self.state().rounds.is_empty() {
            return None;
        }
        let key = RoundKey::new(params, params.request_state().as_deref());
        self.state().rounds.find(&key)
    }

    /// Remembers a call of a modern client whose answer asks for input.
    pub(super) fn remember_round(&self, pending: &Pending, result: &str) {
        let Purpose::Call(Some(row)) = &pending.purpose else {
            return;
        };
        if !self.caller.is_modern() || !is_input_required(result) {
            return;
        }
        let request = pending.message.as_ref();
        let Some((message, envelope)) =
            request.and_then(|message| Some((message, message.single()?)))
        else {
            return;
        };
        let params = RequestParams::read(message.params(envelope));
        let key = RoundKey::new(&params, request_state(result).as_deref());
        self.state().rounds.remember(key, row.call);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn logical(number: u8) -> LogicalCall {
        LogicalCall {
            first: InvocationId::new(Timestamp::UNIX_EPOCH, [number; 10]),
            sequence: number.into(),
        }
    }

    fn key(params: &str, state: Option<&str>) -> RoundKey {
        RoundKey::new(&RequestParams::read(Some(params)), state)
    }

    fn found(rounds: &mut Rounds, key: RoundKey) -> Option<LogicalCall> {
        rounds.find(&key).map(|continued| continued.call)
    }

    #[test]
    fn only_the_first_that_comes_back_with_the_same_arguments_is_expected() {
        let mut rounds = Rounds::default();
        rounds.remember(key(T, Some("s")), logical(1));
        rounds.remember(key(U, Some("s")), logical(2));
        let mut is_expected = |text| {
            let found = rounds.find(&key(text, Some("s")));
            found.map(|continued| continued.is_expected)
        };
        assert_eq!(is_expected(T_AGAIN), Some(true));
        assert_eq!(is_expected(T_AGAIN), Some(false), "it came back before");
        let other = U.replace("\"b\":2", "\"b\":3");
        assert_eq!(
            is_expected(&other),
            Some(false),
            "it asks for something else"
        );
    }

    const T: &str = r#"{"name":"t","arguments":{"a":1,"b":2}}"#;
    const T_AGAIN: &str = r#"{"arguments":{ "b":2.0,"a":1 },"name":"\u0074"}"#;
    const T_OTHER: &str = r#"{"name":"t","arguments":{"a":2}}"#;
    const U: &str = r#"{"name":"u","arguments":{"a":1,"b":2}}"#;

    #[test]
    fn a_state_names_the_call_of_its_tool_whatever_its_arguments() {
        let mut rounds = Rounds::default();
        rounds.remember(key(T, Some("s")), logical(1));
        assert_eq!(
            found(&mut rounds, key(T_OTHER, Some("s"))),
            Some(logical(1))
        );
        assert_eq!(found(&mut rounds, key(T, Some("x"))), None);
        assert_eq!(found(&mut rounds, key(U, Some("s"))), None);
        assert_eq!(found(&mut rounds, key(T, None)), None);
    }

    #[test]
    fn without_a_state_tool_and_arguments_name_the_call() {
        let mut rounds = Rounds::default();
        rounds.remember(key(T, None), logical(1));
        assert_eq!(found(&mut rounds, key(T_AGAIN, None)), Some(logical(1)));
        assert_eq!(found(&mut rounds, key(T_OTHER, None)), None);
        assert_eq!(found(&mut rounds, key(U, None)), None);
    }

    #[test]
    fn of_calls_with_one_state_the_newest_is_continued_then_the_others() {
        for state in [None, Some("s")] {
            let mut rounds = Rounds::default();
            for number in 1..=2 {
                rounds.remember(key(T, state), logical(number));
            }
            let found: Vec<_> = (0..3).map(|_| found(&mut rounds, key(T, state))).collect();
            assert_eq!(found, [2, 1, 2].map(|number| Some(logical(number))));
        }
    }

    #[test]
    fn of_calls_with_one_state_that_with_the_same_arguments_comes_first() {
        let mut rounds = Rounds::default();
        rounds.remember(key(T, Some("s")), logical(1));
        rounds.remember(key(T_OTHER, Some("s")), logical(2));
        assert_eq!(
            found(&mut rounds, key(T_AGAIN, Some("s"))),
            Some(logical(1))
        );
        assert_eq!(
            found(&mut rounds, key(T_AGAIN, Some("s"))),
            Some(logical(1))
        );
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut rounds = Rounds::default();
        for number in 0..=MAX_ASKED {
            rounds.remember(key(T, Some(&number.to_string())), logical(1));
        }
        assert_eq!(rounds.asked.len(), MAX_ASKED);
        assert_eq!(found(&mut rounds, key(T, Some("0"))), None);
        assert_eq!(found(&mut rounds, key(T, Some("1"))), Some(logical(1)));
    }
}
