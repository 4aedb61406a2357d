use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::id::SessionId;
use crate::privacy::canonical::KeyedHasher;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    START + SignedDuration::from_secs(seconds)
}

fn session_of_duration(seconds: i64) -> WorkSession {
    let hash = KeyedHasher::new(&[1; 32]).hash_text("");
    WorkSession {
        id: WorkSessionId::new(START, [0; 10]),
        key: WorkSessionKey(hash),
        principal: Principal::local(),
        client: hash,
        started_at: START,
        last_active_at: at(seconds),
    }
}

fn connection(n: u8) -> SessionId {
    SessionId::new(START, [n; 10])
}

#[test]
fn the_allowed_idle_gap_grows_with_the_session() {
    let gap = IdleGap::default();
    for (minutes, allowed) in [(0, 10), (4, 10), (6, 12), (20, 40), (30, 60), (300, 60)] {
        let session = session_of_duration(minutes * 60);
        let end = minutes * 60 + allowed * 60;
        assert!(session.continues_at(at(end), gap), "{minutes}");
        assert!(!session.continues_at(at(end + 1), gap), "{minutes}");
    }
}

#[test]
fn a_moment_before_the_last_request_belongs_to_the_work_session() {
    assert!(session_of_duration(50).continues_at(at(-1_000), Duration::ZERO.into()));
}

#[test]
fn bounds_in_the_wrong_order_are_a_fixed_gap() {
    let gap = IdleGap::new(Duration::from_secs(9), Duration::from_secs(3));
    assert_eq!(gap, Duration::from_secs(9).into());
    assert_eq!(gap.after(Duration::MAX), Duration::from_secs(9));
}

#[test]
fn windows_in_concurrent_use_are_distinguished() {
    let mut windows = ClientWindows::default();
    let mut place = |n, second| windows.assign_window(connection(n), true, at(second), |_| true);
    let placed: Vec<usize> = (0..4).flat_map(|i| [place(1, i), place(2, i)]).collect();
    assert_eq!(placed, [0, 0, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_connection_inherits_the_window_of_its_predecessor() {
    let mut windows = ClientWindows::default();
    for second in 0..5 {
        assert_eq!(
            windows.assign_window(connection(1), true, at(second), |_| true),
            0
        );
    }
    let mut after_quiet = windows.clone();
    assert_eq!(
        after_quiet.assign_window(connection(2), true, at(124), |_| true),
        0
    );
    // The connection was there all the time, and has more calls.
    assert_eq!(
        after_quiet.assign_window(connection(1), true, at(125), |_| true),
        0
    );
    assert_eq!(
        after_quiet.assign_window(connection(2), true, at(126), |_| true),
        1
    );
    let mut side_by_side = windows.clone();
    assert_eq!(
        side_by_side.assign_window(connection(2), true, at(6), |_| true),
        1
    );
    windows.remove_connection(connection(1));
    assert_eq!(
        windows.assign_window(connection(2), true, at(6), |_| true),
        0
    );
}

#[test]
fn a_window_with_continuing_work_is_reused_first() {
    let mut windows = ClientWindows::default();
    for n in [1, 2, 1, 2, 1, 2] {
        windows.assign_window(connection(n), true, at(0), |_| true);
    }
    windows.remove_connection(connection(1));
    windows.remove_connection(connection(2));
    let mut first = windows.clone();
    assert_eq!(
        first.assign_window(connection(3), true, at(9), |n| n == 1),
        1
    );
    assert_eq!(
        windows.assign_window(connection(3), true, at(9), |_| false),
        0
    );
}

proptest! {
    #[test]
    fn a_longer_session_never_has_a_shorter_gap(one in 0_u64..100_000, two in 0_u64..100_000) {
        let gap = IdleGap::default();
        let (less, more) = (one.min(two), one.max(two));
        let after = |seconds| gap.after(Duration::from_secs(seconds));
        prop_assert!(after(less) <= after(more));
        prop_assert!(after(more) >= IdleGap::LEAST && after(more) <= IdleGap::MOST);
    }

    /// A client with one connection for each call has one window, however its calls are
    /// distributed.
    #[test]
    fn connections_with_one_call_each_have_one_window(
        gaps in proptest::collection::vec(0_i64..600, 1..60),
        closes in any::<bool>(),
    ) {
        let mut windows = ClientWindows::default();
        let mut second = 0;
        for (n, gap) in (0..).zip(gaps) {
            second += gap;
            for is_call in [false, true] {
                prop_assert_eq!(windows.assign_window(connection(n), is_call, at(second), |_| true), 0);
            }
            if closes {
                windows.remove_connection(connection(n));
            }
        }
    }

    /// Connections in use never share a window, and there are never more windows than connections.
    #[test]
    fn connections_in_use_have_windows_of_their_own(
        requests in proptest::collection::vec((0_u8..5, any::<bool>()), 1..200),
    ) {
        let mut windows = ClientWindows::default();
        let mut calls = [0_u64; 5];
        let mut place = [0; 5];
        for (n, is_call) in requests {
            let of = usize::from(n);
            place[of] = windows.assign_window(connection(n), is_call, START, |_| true);
            prop_assert!(place[of] < 5);
            for other in 0..5 {
                if other != of && calls[other] >= 2 && calls[other] > calls[of] {
                    prop_assert_ne!(place[of], place[other]);
                }
            }
            calls[of] += u64::from(is_call);
        }
    }
}
