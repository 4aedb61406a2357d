//! Properties of token buckets, tested with generated times.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn rate(calls: u32, per_ms: u64) -> Rate {
    Rate::new(calls, Duration::from_millis(per_ms)).unwrap()
}

/// Steps between calls, in milliseconds: most are short against the period, some are long.
fn steps() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![8 => 0_u64..400, 1 => 0_u64..5_000];
    proptest::collection::vec(step, 1..300)
}

/// The same with steps backwards, some of them large.
fn wild_steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![6 => 0_i64..400, 2 => -400_i64..0, 1 => -100_000_i64..100_000];
    proptest::collection::vec(step, 1..300)
}

/// Returns a time far enough from the start of the clock to go back from.
fn start() -> Instant {
    Instant::now() + Duration::from_hours(48)
}

fn shift_time(now: Instant, step: i64) -> Instant {
    let by = Duration::from_millis(step.unsigned_abs());
    if step < 0 {
        now.checked_sub(by).unwrap()
    } else {
        now + by
    }
}

proptest! {
    #[test]
    fn each_window_admits_exactly_the_calls_of_the_rate(
        calls in 1_u32..20, per_ms in 1_000_u64..3_000, steps in steps(),
    ) {
        let rate = rate(calls, per_ms);
        let mut bucket = TokenBucket::new(rate);
        let (mut now, mut admitted) = (start(), Vec::new());
        for step in steps {
            now += Duration::from_millis(step);
            // Counts the calls of the window that ends now, one by one.
            let in_window = admitted.iter().filter(|at| now - **at < rate.per()).count();
            prop_assert!(in_window <= rate.calls());
            let is_admitted = bucket.take(now).is_ok();
            prop_assert_eq!(is_admitted, in_window < rate.calls());
            if is_admitted {
                admitted.push(now);
            }
        }
        for window in admitted.windows(rate.calls() + 1) {
            prop_assert!(window[rate.calls()] - window[0] >= rate.per());
        }
    }

    #[test]
    fn a_call_is_admitted_exactly_after_the_returned_wait(
        calls in 1_u32..20, per_ms in 1_000_u64..3_000, steps in wild_steps(),
    ) {
        let rate = rate(calls, per_ms);
        let mut bucket = TokenBucket::new(rate);
        let mut now = start();
        for step in steps {
            now = shift_time(now, step);
            if let Err(wait) = bucket.take(now) {
                prop_assert!(wait > Duration::ZERO && wait <= rate.per());
                prop_assert!(bucket.clone().wait_time(now + wait.saturating_sub(MS / 1_000)).is_some());
                prop_assert_eq!(bucket.clone().wait_time(now + wait), None);
            }
        }
    }

    #[test]
    fn a_backward_clock_neither_frees_nor_locks_tokens(
        calls in 1_u32..20, per_ms in 1_000_u64..3_000, steps in wild_steps(),
    ) {
        let rate = rate(calls, per_ms);
        let mut bucket = TokenBucket::new(rate);
        let mut now = start();
        for step in steps {
            let n_before = bucket.n_taken(now);
            now = shift_time(now, step);
            let n_after = bucket.n_taken(now);
            if step < 0 {
                prop_assert_eq!(n_after, n_before);
            }
            prop_assert_eq!(bucket.clone().n_taken(now + rate.per()), 0);
            let _ = bucket.take(now);
            prop_assert!(bucket.taken.len() <= rate.calls());
            prop_assert!(bucket.taken.iter().is_sorted());
        }
    }

    #[test]
    fn tokens_are_taken_from_all_buckets_or_none(
        rates in proptest::collection::vec((1_u32..6, 1_000_u64..3_000), 1..5), steps in steps(),
    ) {
        let rates = rates.iter().map(|(calls, per_ms)| rate(*calls, *per_ms));
        let mut buckets: Vec<TokenBucket> = rates.map(TokenBucket::new).collect();
        let mut now = start();
        for step in steps {
            now += Duration::from_millis(step);
            let n_out = |buckets: &mut [TokenBucket]| -> Vec<usize> {
                buckets.iter_mut().map(|bucket| bucket.n_taken(now)).collect()
            };
            let before = n_out(&mut buckets);
            let longest = buckets.iter_mut().filter_map(|bucket| bucket.wait_time(now)).max();
            let mut all: Vec<&mut TokenBucket> = buckets.iter_mut().collect();
            let taken = take_all(&mut all, now);
            prop_assert_eq!(taken.err().map(|blocked| blocked.wait), longest);
            match taken {
                Ok(()) => {
                    let more: Vec<usize> = before.iter().map(|n| n + 1).collect();
                    prop_assert_eq!(n_out(&mut buckets), more);
                }
                Err(blocked) => {
                    prop_assert_eq!(buckets[blocked.bucket].wait_time(now), Some(blocked.wait));
                    prop_assert_eq!(n_out(&mut buckets), before);
                    let mut later = buckets.clone();
                    let mut later: Vec<&mut TokenBucket> = later.iter_mut().collect();
                    prop_assert_eq!(take_all(&mut later, now + blocked.wait), Ok(()));
                }
            }
        }
    }
}

#[test]
fn a_token_returns_one_period_after_its_use() {
    let mut bucket = TokenBucket::new(rate(2, 1_000));
    let at = start();
    assert_eq!(bucket.take(at), Ok(()));
    assert_eq!(bucket.take(at + 400 * MS), Ok(()));
    assert_eq!(bucket.take(at + 400 * MS), Err(600 * MS));
    assert_eq!(bucket.take(at + 999 * MS), Err(MS));
    assert_eq!(bucket.take(at + 1_000 * MS), Ok(()));
    assert_eq!(bucket.take(at + 1_000 * MS), Err(400 * MS));
}

#[test]
fn a_clock_set_back_holds_tokens_for_one_period() {
    let mut bucket = TokenBucket::new(rate(1, 1_000));
    let at = start();
    assert_eq!(bucket.take(at), Ok(()));
    let back = at.checked_sub(Duration::from_hours(24)).unwrap();
    assert_eq!(bucket.wait_time(back), Some(1_000 * MS));
    assert_eq!(bucket.wait_time(back + 999 * MS), Some(MS));
    assert_eq!(bucket.wait_time(back + 1_000 * MS), None);
}

#[test]
fn rates_have_bounds() {
    let second = Duration::from_secs(1);
    let day = Duration::from_hours(24);
    assert_eq!(Rate::new(0, second), Err(RateError::Calls));
    assert_eq!(Rate::new(1_001, second), Err(RateError::Calls));
    assert_eq!(Rate::new(1, 999 * MS), Err(RateError::Period));
    assert_eq!(Rate::new(1, day + MS), Err(RateError::Period));
    for (calls, per) in [(1, second), (1_000, day)] {
        let rate = Rate::new(calls, per).unwrap();
        assert_eq!((rate.calls(), rate.per()), (calls as usize, per));
    }
}
