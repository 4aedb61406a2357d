//! The last calls of a session with their outcomes, for the view of the session. They are held in
//! memory, and only while there is such a view.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::usage::invocation::{Outcome, SessionKey};

/// The maximum number of remembered calls of one connection.
const MAX_CALLS: usize = 100;
/// The maximum size of the names of the remembered calls in bytes.
const MAX_NAME_BYTES: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedCall {
    pub(super) session_key: SessionKey,
    /// The tool, under the name that its upstream knows.
    pub(super) tool: ToolRef,
    pub(super) outcome: Outcome,
    /// The time of receipt.
    pub(super) began_at: Timestamp,
    /// The time that the upstream needed.
    pub(super) duration: Duration,
}

/// The last calls of one connection.
#[derive(Debug, Default)]
pub(super) struct RecentCalls(Mutex<CallQueue>);

#[derive(Debug, Default)]
struct CallQueue {
    calls: VecDeque<EndedCall>,
    n_name_bytes: usize,
    /// The session keys in the queue of which a call was dropped.
    cut: HashSet<SessionKey>,
}

/// The recent calls under one session key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionCalls {
    /// The calls, the newest first.
    pub(super) calls: Vec<EndedCall>,
    /// Whether older calls are no longer remembered.
    pub(super) is_cut: bool,
}

impl RecentCalls {
    /// Adds a call. Beyond the maximum number and size, the oldest calls of the session with the most
    /// of it are dropped, so that a busy session does not displace the others of the connection.
    pub(super) fn add(&self, call: EndedCall) {
        let mut queue = self.0.lock();
        queue.n_name_bytes += name_bytes(&call);
        queue.calls.push_back(call);
        while queue.calls.len() > MAX_CALLS {
            queue.drop_oldest_of_largest(|_| 1);
        }
        while queue.n_name_bytes > MAX_NAME_BYTES && queue.calls.len() > 1 {
            queue.drop_oldest_of_largest(name_bytes);
        }
    }

    pub(super) fn of(&self, session_key: SessionKey) -> SessionCalls {
        let queue = self.0.lock();
        let calls = queue.calls.iter().rev();
        let own = calls.filter(|call| call.session_key == session_key);
        SessionCalls {
            calls: own.cloned().collect(),
            is_cut: queue.cut.contains(&session_key),
        }
    }
}

impl CallQueue {
    /// Drops the oldest call of the session key whose calls have the largest sum of `size`.
    fn drop_oldest_of_largest(&mut self, size: impl Fn(&EndedCall) -> usize) {
        let mut sizes: HashMap<SessionKey, usize> = HashMap::new();
        for call in &self.calls {
            *sizes.entry(call.session_key).or_default() += size(call);
        }
        let size_of = |call: &EndedCall| sizes.get(&call.session_key).copied();
        let largest = self.calls.iter().map(size_of).max().flatten();
        let oldest = self.calls.iter().position(|call| size_of(call) == largest);
        let Some(dropped) = oldest.and_then(|at| self.calls.remove(at)) else {
            return;
        };
        self.n_name_bytes -= name_bytes(&dropped);
        self.cut.insert(dropped.session_key);
        // The set stays as small as the queue.
        let kept: HashSet<SessionKey> = self.calls.iter().map(|call| call.session_key).collect();
        self.cut.retain(|key| kept.contains(key));
    }
}

fn name_bytes(call: &EndedCall) -> usize {
    call.tool.tool.as_str().len()
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::{SessionId, UpstreamName};

    use super::*;

    fn over(n: u8) -> SessionKey {
        SessionKey::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
    }

    fn call(session_key: SessionKey, name: &str) -> EndedCall {
        EndedCall {
            session_key,
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: name.into(),
            },
            outcome: Outcome::Ok,
            began_at: Timestamp::UNIX_EPOCH,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn calls_are_returned_newest_first_and_by_session() {
        let calls = RecentCalls::default();
        for (n, name) in [(1, "a"), (2, "b"), (1, "c")] {
            calls.add(call(over(n), name));
        }
        let of = |n| -> Vec<String> {
            let calls = calls.of(over(n)).calls;
            let names = calls.iter().map(|call| call.tool.tool.as_str().to_owned());
            names.collect()
        };
        assert_eq!(of(1), ["c", "a"]);
        assert_eq!(of(2), ["b"]);
        assert!(of(3).is_empty());
    }

    #[test]
    fn number_and_size_are_limited() {
        let calls = RecentCalls::default();
        for n in 0..2 * MAX_CALLS {
            calls.add(call(over(1), &n.to_string()));
        }
        let kept = calls.of(over(1));
        assert!(kept.is_cut);
        let kept = kept.calls;
        assert_eq!(kept.len(), MAX_CALLS);
        assert_eq!(kept[0].tool.tool.as_str(), "199");
        let long = "x".repeat(MAX_NAME_BYTES / 4);
        for _ in 0..10 {
            calls.add(call(over(1), &long));
        }
        assert_eq!(calls.of(over(1)).calls.len(), 4);
    }

    #[test]
    fn a_busy_session_displaces_no_other() {
        let calls = RecentCalls::default();
        for name in ["a", "b"] {
            calls.add(call(over(2), name));
        }
        for n in 0..2 * MAX_CALLS {
            calls.add(call(over(1), &n.to_string()));
        }
        let quiet = calls.of(over(2));
        assert_eq!((quiet.calls.len(), quiet.is_cut), (2, false));
        let busy = calls.of(over(1));
        assert_eq!((busy.calls.len(), busy.is_cut), (MAX_CALLS - 2, true));
        // Neither does one with long names.
        for _ in 0..10 {
            calls.add(call(over(3), &"x".repeat(MAX_NAME_BYTES / 4)));
        }
        assert_eq!(calls.of(over(2)).calls.len(), 2);
    }
}
