//! The clauses of [`UsageRepository`](crate::analytics::UsageRepository), on a few rows each.

use std::collections::BTreeMap;
use std::slice;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::{LatencyBucket, LatencyHistogram, ToolStatistics};

use super::UsageStore;
use super::scene::{apply, call, call_of, end, odd_texts, run, run_lost, session, tool};

const ALWAYS: Timestamp = Timestamp::MIN;

/// A record counts as soon as it is a row: a call in flight, and its end.
pub async fn a_record_counts_as_soon_as_it_is_a_row(store: &impl UsageStore) {
    let call = call(session(run(1), 1).id, 2);
    open(store, slice::from_ref(&call)).await;
    assert_eq!(frequencies(store).await, [("echo".into(), 1)]);
    assert_eq!(outcomes(store).await, [("echo".into(), 1, vec![])]);
    apply(store, &[Record::CallClosed(end(&call, Outcome::Ok))]).await;
    assert_eq!(frequencies(store).await, [("echo".into(), 1)]);
    let closed = vec![(Outcome::Ok, 1)];
    assert_eq!(outcomes(store).await, [("echo".into(), 0, closed)]);
}

/// A store without calls has no counts.
pub async fn without_calls_there_are_no_counts(store: &impl UsageStore) {
    apply(store, &[Record::SessionOpened(session(run(1), 1))]).await;
    assert_eq!(store.frequencies(None, ALWAYS).await.unwrap(), []);
    assert_eq!(store.sessions_using(None, None).await.unwrap(), []);
    assert_eq!(store.cooccurrences(None, None).await.unwrap(), []);
    assert_eq!(store.transitions(None, None).await.unwrap(), []);
    assert_eq!(store.statistics(None, None, ALWAYS).await.unwrap(), []);
}

/// A repeated record does not count again, nor does a later end.
pub async fn a_repeated_record_counts_once(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let calls = [call_of(id, 2, "a"), call_of(id, 3, "b")];
    for _ in 0..2 {
        open(store, &calls).await;
        let ends = [Outcome::Error, Outcome::Ok].map(|outcome| end(&calls[0], outcome));
        apply(store, &ends.map(Record::CallClosed)).await;
    }
    let a = ("a".into(), 0, vec![(Outcome::Error, 1)]);
    assert_eq!(outcomes(store).await, [a, ("b".into(), 1, vec![])]);
    let using = store.sessions_using(None, None).await.unwrap();
    assert_eq!(using.len(), 2);
    assert!(using.iter().all(|row| row.n_sessions == 1));
    assert_eq!(transitions(store).await, [("a".into(), "b".into(), 1)]);
}

/// Rounds that continue a call are not counted.
pub async fn rounds_that_continue_a_call_are_not_counted(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let first = call_of(id, 2, "a");
    let next = call_of(id, 3, "b");
    let [mut round, mut other] = [call_of(id, 4, "a"), call_of(id, 5, "only a round")];
    (round.continues, round.sequence) = (Some(first.id), first.sequence);
    (other.continues, other.sequence) = (Some(first.id), 4);
    let ends = [&first, &round, &other].map(|call| Record::CallClosed(end(call, Outcome::Ok)));
    open(store, &[first, round, other, next]).await;
    apply(store, &ends).await;
    let expected = [("a".into(), 1), ("b".into(), 1)];
    assert_eq!(frequencies(store).await, expected);
    assert_eq!(pairs(store).await, [("a".into(), "b".into(), 1, 1.0)]);
    assert_eq!(transitions(store).await, [("a".into(), "b".into(), 1)]);
    let statistics = store.statistics(None, None, ALWAYS).await.unwrap();
    let latencies: Vec<_> = (statistics.iter())
        .map(|row| row.latency.n_calls())
        .collect();
    assert_eq!(latencies, [1, 0]);
}

/// A scope limits the result to the calls of one principal; without it, the result covers all.
pub async fn a_scope_is_one_principal(store: &impl UsageStore) {
    let (alice, bob) = (
        Principal::from_name("alice"),
        Principal::from_name("b\u{0}b"),
    );
    let of = |principal: &Principal, n, names: [&'static str; 2]| {
        let id = session(run(1), n).id;
        let principal = principal.clone();
        [0, 1].map(|index: u8| Invocation {
            principal: principal.clone(),
            ..call_of(id, n + index, names[usize::from(index)])
        })
    };
    open(store, &of(&alice, 10, ["a", "b"])).await;
    open(store, &of(&alice, 20, ["a", "b"])).await;
    open(store, &of(&bob, 30, ["a", "b"])).await;
    open(store, &of(&bob, 40, ["b", "c"])).await;
    let nobody = Principal::from_name("b");
    for (scope, [n_a, n_c], n_pairs) in [
        (None, [3, 1], vec![3, 1]),
        (Some(&alice), [2, 0], vec![2]),
        (Some(&bob), [1, 1], vec![1, 1]),
        (Some(&nobody), [0, 0], vec![]),
    ] {
        let frequencies = store.frequencies(scope, ALWAYS).await.unwrap();
        let using = store.sessions_using(scope, None).await.unwrap();
        let statistics = store.statistics(scope, None, ALWAYS).await.unwrap();
        for (name, n) in [("a", n_a), ("c", n_c)] {
            let n = (n > 0).then_some(n);
            let tool = tool(name);
            let calls = frequencies.iter().find(|row| row.tool == tool);
            assert_eq!(calls.map(|row| row.n_calls), n, "{scope:?} {name}");
            let sessions = using.iter().find(|row| row.tool == tool);
            assert_eq!(sessions.map(|row| row.n_sessions), n, "{scope:?} {name}");
            let row = statistics.iter().find(|row| row.tool == tool);
            assert_eq!(row.map(ToolStatistics::n_calls), n, "{scope:?} {name}");
        }
        let pairs = store.cooccurrences(scope, None).await.unwrap();
        let counts: Vec<_> = pairs.iter().map(|row| row.count).collect();
        assert_eq!(counts, n_pairs, "{scope:?}");
        let transitions = store.transitions(scope, None).await.unwrap();
        let counts: Vec<_> = transitions.iter().map(|row| row.count).collect();
        assert_eq!(counts, n_pairs, "{scope:?}");
    }
}

/// The result covers the named tools: all tools without a list, no tools with an empty list.
pub async fn an_answer_is_about_the_named_tools(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let names = ["a", "b", "c\u{0}", "d"];
    let calls: Vec<_> = (2..)
        .zip(names)
        .map(|(n, name)| call_of(id, n, name))
        .collect();
    open(store, &calls).await;
    for (named, n_tools, n_pairs, n_transitions) in [
        (None, 4, 6, 3),
        (Some(vec![]), 0, 0, 0),
        (Some(vec![tool("nobody's")]), 0, 0, 0),
        (Some(vec![tool("c\u{0}")]), 1, 3, 1),
        (
            Some(vec![tool("a"), tool("b"), tool("a"), tool("x")]),
            2,
            5,
            2,
        ),
        (Some(vec![tool("d")]), 1, 3, 0),
    ] {
        let tools = named.as_deref();
        let using = store.sessions_using(None, tools).await.unwrap();
        assert_eq!(using.len(), n_tools, "{tools:?}");
        let statistics = store.statistics(None, tools, ALWAYS).await.unwrap();
        assert_eq!(statistics.len(), n_tools, "{tools:?}");
        let is_named = |tool: &ToolRef| tools.is_none_or(|tools| tools.contains(tool));
        assert!(using.iter().all(|row| is_named(&row.tool)));
        assert!(statistics.iter().all(|row| is_named(&row.tool)));
        let pairs = store.cooccurrences(None, tools).await.unwrap();
        assert_eq!(pairs.len(), n_pairs, "{tools:?}");
        let is_met = |a, b| is_named(a) || is_named(b);
        assert!(pairs.iter().all(|row| is_met(&row.tool_a, &row.tool_b)));
        let transitions = store.transitions(None, tools).await.unwrap();
        assert_eq!(transitions.len(), n_transitions, "{tools:?}");
        assert!(transitions.iter().all(|row| is_named(&row.from)));
    }
}

/// `since` means the beginning of its hour, before 1970 too.
pub async fn since_means_the_beginning_of_its_hour(store: &impl UsageStore) {
    const HOUR: i64 = 3_600_000_000;
    let at = |micros| Timestamp::from_microsecond(micros).unwrap();
    let id = session(run(1), 1).id;
    let starts = [-HOUR - 1, -HOUR, -1, 0, HOUR - 1, HOUR];
    let calls: Vec<_> = (2..)
        .zip(starts)
        .map(|(n, start)| Invocation {
            started_at: at(start),
            ..call(id, n)
        })
        .collect();
    open(store, &calls).await;
    for (since, expected) in [
        (Timestamp::MIN, 6),
        (at(-HOUR), 5),
        (at(-1), 5),
        (at(0), 3),
        (at(1), 3),
        (at(HOUR - 1), 3),
        (at(HOUR), 1),
        (at(2 * HOUR), 0),
        (Timestamp::MAX, 0),
    ] {
        let frequencies = store.frequencies(None, since).await.unwrap();
        let n_calls: u64 = frequencies.iter().map(|row| row.n_calls).sum();
        assert_eq!(n_calls, expected, "{since}");
        let statistics = store.statistics(None, None, since).await.unwrap();
        let n_calls: u64 = statistics.iter().map(ToolStatistics::n_calls).sum();
        assert_eq!(n_calls, expected, "{since}");
        assert_eq!(frequencies.is_empty(), expected == 0, "{since}");
        assert_eq!(statistics.is_empty(), expected == 0, "{since}");
    }
}

/// The most frequent tool comes first; ties are ordered by upstream and name.
pub async fn the_most_frequent_tool_comes_first(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut names = odd_texts();
    let mut calls: Vec<_> = (2..)
        .zip(&names)
        .map(|(n, name)| call_of(id, n, name))
        .collect();
    calls.extend([call_of(id, 100, "z"), call_of(id, 101, "z")]);
    let mut elsewhere = call_of(id, 102, "z");
    elsewhere.upstream = UpstreamName::parse("UP").unwrap();
    calls.push(elsewhere);
    open(store, &calls).await;
    names.sort_unstable();
    let ties = (names.iter()).map(|name| ("up-1.x".into(), name.clone(), 1));
    let expected: Vec<(String, String, u64)> = [
        ("up-1.x".into(), "z".into(), 2),
        ("UP".into(), "z".into(), 1),
    ]
    .into_iter()
    .chain(ties)
    .collect();
    let frequencies = store.frequencies(None, ALWAYS).await.unwrap();
    let rows: Vec<_> = (frequencies.iter())
        .map(|row| {
            let ToolRef { upstream, tool } = &row.tool;
            (upstream.to_string(), tool.to_string(), row.n_calls)
        })
        .collect();
    assert_eq!(rows, expected);
}

/// All other results are ordered by upstream and name.
pub async fn other_answers_are_ordered_by_upstream_and_name(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let names = odd_texts();
    let mut calls = Vec::new();
    for (n, name) in (1..).zip(&names) {
        let upstream = if n % 3 == 0 { "UP" } else { "up-1.x" };
        calls.push(Invocation {
            upstream: UpstreamName::parse(upstream).unwrap(),
            ..call_of(id, n, name)
        });
    }
    open(store, &calls).await;
    let mut tools: Vec<_> = calls.iter().map(tool_of).collect();
    tools.sort_unstable();
    let using = store.sessions_using(None, None).await.unwrap();
    let read: Vec<_> = using.into_iter().map(|row| row.tool).collect();
    assert_eq!(read, tools);
    let statistics = store.statistics(None, None, ALWAYS).await.unwrap();
    let read: Vec<_> = statistics.into_iter().map(|row| row.tool).collect();
    assert_eq!(read, tools);
    let transitions = store.transitions(None, None).await.unwrap();
    let read: Vec<_> = (transitions.into_iter())
        .map(|row| (row.from, row.to))
        .collect();
    let mut expected: Vec<_> = (calls.windows(2))
        .map(|two| (tool_of(&two[0]), tool_of(&two[1])))
        .collect();
    expected.sort_unstable();
    assert_eq!(read, expected);
    let pairs = store.cooccurrences(None, None).await.unwrap();
    let read: Vec<_> = (pairs.into_iter())
        .map(|row| (row.tool_a, row.tool_b))
        .collect();
    let with_later = |(n, a): (usize, &ToolRef)| {
        let a = a.clone();
        (tools[n + 1..].iter())
            .map(move |b| (a.clone(), b.clone()))
            .collect::<Vec<_>>()
    };
    let expected: Vec<_> = tools.iter().enumerate().flat_map(with_later).collect();
    assert_eq!(read, expected);
}

/// Tools of the same name on different upstreams are different tools.
pub async fn tools_of_different_upstreams_are_different(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let here = call_of(id, 2, "a");
    let mut there = call_of(id, 3, "a");
    there.upstream = UpstreamName::parse("other").unwrap();
    open(store, &[here.clone(), there.clone()]).await;
    let pairs = store.cooccurrences(None, None).await.unwrap();
    let read: Vec<_> = pairs.iter().map(|row| (&row.tool_a, &row.tool_b)).collect();
    assert_eq!(read, [(&tool_of(&there), &tool_of(&here))]);
    let only = [tool_of(&there)];
    let using = store.sessions_using(None, Some(&only)).await.unwrap();
    assert_eq!(using.len(), 1);
    assert_eq!(using[0].tool, only[0]);
}

/// The statistics of a tool have its calls by outcome, and the durations of answered calls.
pub async fn statistics_have_outcomes_and_durations(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut expected = ToolStatistics {
        tool: tool("echo"),
        outcomes: BTreeMap::new(),
        n_open: 1,
        latency: LatencyHistogram::default(),
    };
    open(store, &[call(id, 100)]).await;
    for (n, &outcome) in (1_u8..).zip(Outcome::ALL) {
        for repeat in 0..n {
            let call = call(id, 10 * n + repeat);
            let end = InvocationEnd {
                duration_us: 1_000 * u64::from(n),
                ..end(&call, outcome)
            };
            open(store, &[call]).await;
            if matches!(outcome, Outcome::Ok | Outcome::Error) {
                expected.latency.add(LatencyBucket::of(end.duration_us), 1);
            }
            apply(store, &[Record::CallClosed(end)]).await;
        }
        expected.outcomes.insert(outcome, n.into());
    }
    let statistics = store.statistics(None, None, ALWAYS).await.unwrap();
    assert_eq!(statistics, [expected]);
}

/// An outcome that replaces `unknown` is counted in its place.
pub async fn an_outcome_is_counted_in_place_of_unknown(store: &impl UsageStore) {
    let call = call(session(run(1), 1).id, 2);
    open(store, slice::from_ref(&call)).await;
    for (outcome, n_answered) in [(Outcome::Unknown, 0), (Outcome::Ok, 1)] {
        apply(store, &[Record::CallClosed(end(&call, outcome))]).await;
        let expected = [("echo".into(), 0, vec![(outcome, 1)])];
        assert_eq!(outcomes(store).await, expected);
        let statistics = store.statistics(None, None, ALWAYS).await.unwrap();
        assert_eq!(statistics[0].latency.n_calls(), n_answered);
    }
}

/// Calls that a lost run left open are counted as `unknown`.
pub async fn calls_of_a_lost_run_are_counted_as_unknown(store: &impl UsageStore) {
    let session = session(run(1), 1);
    open(store, &[call(session.id, 2), call(session.id, 3)]).await;
    apply(store, &[Record::SessionOpened(session), run_lost(1, 9)]).await;
    let unknown = vec![(Outcome::Unknown, 2)];
    assert_eq!(outcomes(store).await, [("echo".into(), 0, unknown)]);
}

/// Calls of a session whose beginning is not recorded are counted like any other.
pub async fn calls_of_an_unrecorded_session_are_counted(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut later = call_of(id, 3, "b");
    later.started_at += SignedDuration::from_hours(5);
    open(store, &[call_of(id, 2, "a"), later]).await;
    assert_eq!(frequencies(store).await.len(), 2);
    assert_eq!(pairs(store).await, [("a".into(), "b".into(), 1, 1.0)]);
    assert_eq!(transitions(store).await, [("a".into(), "b".into(), 1)]);
}

pub(super) fn tool_of(call: &Invocation) -> ToolRef {
    ToolRef {
        upstream: call.upstream.clone(),
        tool: call.tool.clone(),
    }
}

pub(super) async fn open(store: &impl UsageStore, calls: &[Invocation]) {
    let records: Vec<_> = calls.iter().cloned().map(Record::CallOpened).collect();
    apply(store, &records).await;
}

pub(super) async fn frequencies(store: &impl UsageStore) -> Vec<(String, u64)> {
    let rows = store.frequencies(None, ALWAYS).await.unwrap().into_iter();
    rows.map(|row| (row.tool.tool.to_string(), row.n_calls))
        .collect()
}

async fn outcomes(store: &impl UsageStore) -> Vec<(String, u64, Vec<(Outcome, u64)>)> {
    let rows = store.statistics(None, None, ALWAYS).await.unwrap();
    rows.into_iter()
        .map(|row| {
            let outcomes = row.outcomes.into_iter().collect();
            (row.tool.tool.to_string(), row.n_open, outcomes)
        })
        .collect()
}

pub(super) async fn pairs(store: &impl UsageStore) -> Vec<(String, String, u64, f64)> {
    let rows = store.cooccurrences(None, None).await.unwrap().into_iter();
    rows.map(|row| {
        let (a, b) = (row.tool_a.tool.to_string(), row.tool_b.tool.to_string());
        (a, b, row.count, row.mean_distance)
    })
    .collect()
}

pub(super) async fn transitions(store: &impl UsageStore) -> Vec<(String, String, u64)> {
    let rows = store.transitions(None, None).await.unwrap().into_iter();
    rows.map(|row| {
        let (from, to) = (row.from.tool.to_string(), row.to.tool.to_string());
        (from, to, row.count)
    })
    .collect()
}
