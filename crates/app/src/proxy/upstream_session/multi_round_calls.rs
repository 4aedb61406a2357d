//! The multi-round calls of a session.
//!
//! A modern server may answer a call with a request for input. The client then sends the call
//! again, as a new request, with its input and the `requestState` of the server. This module stores
//! the requests for input, so that the new request is recognized as a further round of the first
//! call. Only digests of states, names and arguments are stored.

use std::collections::VecDeque;

use parking_lot::Mutex;
use riglm_domain::id::InvocationId;
use riglm_domain::mcp::message::{Envelope, Message};
use riglm_domain::privacy::canonical::write_canonical;
use sha2::{Digest, Sha256};

use super::upstream_requests::CallRow;
use crate::proxy::request_params::{RequestParams, is_input_required, request_state};

/// The maximum number of stored requests for input per client and upstream. The oldest ones are
/// dropped first. A call that answers a dropped request counts as a new call.
const MAX_ASKED: usize = 256;

/// The values that the rows of all rounds of a call share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogicalCall {
    /// The row of the first round.
    pub(crate) first: InvocationId,
    /// The position among the calls of the session.
    pub(crate) sequence: u64,
}

/// The call that a further round continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContinuedCall {
    pub(crate) call: LogicalCall,
    /// Whether it is the first to answer the request for input, with the arguments of the original
    /// call. Only then it is part of a call that was admitted already.
    pub(crate) is_expected: bool,
}

/// The stored requests for input, oldest first.
#[derive(Debug, Default)]
struct InputQuestions {
    asked: VecDeque<InputQuestion>,
}

#[derive(Debug)]
struct InputQuestion {
    key: RoundKey,
    call: LogicalCall,
    /// Whether a call has answered it.
    is_continued: bool,
}

/// The first half of a SHA-256.
type Half = [u8; 16];

/// The key that matches a call with the call that continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundKey {
    /// The digest of tool and arguments.
    call: Half,
    /// The digest of tool and `requestState`, if the server sent one.
    state: Option<Half>,
}

impl RoundKey {
    fn new(params: &RequestParams<'_>, state: Option<&str>) -> Self {
        let tool = params.name().unwrap_or_default();
        let of_tool = || {
            let mut digest = Sha256::new();
            // The length separates the name from the text that follows.
            digest.update(tool.len().to_le_bytes());
            digest.update(tool.as_bytes());
            digest
        };
        let mut call = of_tool();
        let arguments = params.arguments().unwrap_or("{}");
        // Invalid JSON is compared verbatim.
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

impl InputQuestions {
    fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    fn remember(&mut self, key: RoundKey, call: LogicalCall) {
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(InputQuestion {
            key,
            call,
            is_continued: false,
        });
    }

    /// Returns the call that a call with this key continues: the one with the same state, or,
    /// without a state, the one with the same tool and arguments.
    ///
    /// A server may send the same state for several calls, or none. Then calls with the same
    /// arguments have priority, then calls without a further round, then the newest. A match stays
    /// stored, because a client may repeat a round whose answer it did not receive.
    fn find(&mut self, key: &RoundKey) -> Option<ContinuedCall> {
        let fits = |asked: &&mut InputQuestion| {
            asked.key.state == key.state && (key.state.is_some() || asked.key.call == key.call)
        };
        let found = self
            .asked
            .iter_mut()
            .filter(fits)
            .max_by_key(|asked| (asked.key.call == key.call, !asked.is_continued))?;
        let was_continued = std::mem::replace(&mut found.is_continued, true);
        Some(ContinuedCall {
            call: found.call,
            is_expected: !was_continued && found.key.call == key.call,
        })
    }
}

/// The multi-round calls of one client at one upstream.
#[derive(Debug, Default)]
pub(super) struct MultiRoundCalls(Mutex<InputQuestions>);

impl MultiRoundCalls {
    /// Returns the logical call that a further round continues. Returns `None` for an ordinary
    /// call, and if the request for input is not stored.
    pub(super) fn continued_call(&self, params: &RequestParams<'_>) -> Option<ContinuedCall> {
        if !params.is_further_round() || self.0.lock().is_empty() {
            return None;
        }
        let key = RoundKey::new(params, params.request_state().as_deref());
        self.0.lock().find(&key)
    }

    /// Stores a call whose answer asks for input.
    pub(super) fn note_result(
        &self,
        row: &CallRow,
        request: Option<&Message>,
        answer: &Message,
        part: &Envelope,
    ) {
        if !is_input_required(answer, part) {
            return;
        }
        let result = answer.result(part).unwrap_or_default();
        let Some((message, envelope)) =
            request.and_then(|message| Some((message, message.single()?)))
        else {
            return;
        };
        let params = RequestParams::of(message, envelope);
        let key = RoundKey::new(&params, request_state(result).as_deref());
        self.0.lock().remember(key, row.call);
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

    fn found_call(rounds: &mut InputQuestions, key: RoundKey) -> Option<LogicalCall> {
        rounds.find(&key).map(|continued| continued.call)
    }

    #[test]
    fn only_the_first_identical_retry_is_expected() {
        let mut rounds = InputQuestions::default();
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
    fn states_identify_calls_of_their_tool_regardless_of_arguments() {
        let mut rounds = InputQuestions::default();
        rounds.remember(key(T, Some("s")), logical(1));
        assert_eq!(
            found_call(&mut rounds, key(T_OTHER, Some("s"))),
            Some(logical(1))
        );
        assert_eq!(found_call(&mut rounds, key(T, Some("x"))), None);
        assert_eq!(found_call(&mut rounds, key(U, Some("s"))), None);
        assert_eq!(found_call(&mut rounds, key(T, None)), None);
    }

    #[test]
    fn without_a_state_tool_and_arguments_name_the_call() {
        let mut rounds = InputQuestions::default();
        rounds.remember(key(T, None), logical(1));
        assert_eq!(
            found_call(&mut rounds, key(T_AGAIN, None)),
            Some(logical(1))
        );
        assert_eq!(found_call(&mut rounds, key(T_OTHER, None)), None);
        assert_eq!(found_call(&mut rounds, key(U, None)), None);
    }

    #[test]
    fn calls_sharing_a_state_are_continued_newest_first() {
        for state in [None, Some("s")] {
            let mut rounds = InputQuestions::default();
            for number in 1..=2 {
                rounds.remember(key(T, state), logical(number));
            }
            let found: Vec<_> = (0..3)
                .map(|_| found_call(&mut rounds, key(T, state)))
                .collect();
            assert_eq!(found, [2, 1, 2].map(|number| Some(logical(number))));
        }
    }

    #[test]
    fn equal_arguments_win_among_calls_sharing_a_state() {
        let mut rounds = InputQuestions::default();
        rounds.remember(key(T, Some("s")), logical(1));
        rounds.remember(key(T_OTHER, Some("s")), logical(2));
        assert_eq!(
            found_call(&mut rounds, key(T_AGAIN, Some("s"))),
            Some(logical(1))
        );
        assert_eq!(
            found_call(&mut rounds, key(T_AGAIN, Some("s"))),
            Some(logical(1))
        );
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut rounds = InputQuestions::default();
        for number in 0..=MAX_ASKED {
            rounds.remember(key(T, Some(&number.to_string())), logical(1));
        }
        assert_eq!(rounds.asked.len(), MAX_ASKED);
        assert_eq!(found_call(&mut rounds, key(T, Some("0"))), None);
        assert_eq!(found_call(&mut rounds, key(T, Some("1"))), Some(logical(1)));
    }
}
