//! The clauses of [`UsageRepository`](crate::analytics::UsageRepository) on co-occurrence and
//! transitions of tools.

use riglm_domain::usage::SessionTools;
use riglm_domain::usage::invocation::Invocation;

use super::UsageStore;
use super::scene::{call_of, moment, run, session, tool};
use super::usage::{frequencies, open, pairs, tool_of, transitions};

/// A session counts once for a tool and for a pair, however often it calls them.
pub async fn a_session_counts_once(store: &impl UsageStore) {
    for n in [10, 20] {
        let id = session(run(1), n).id;
        let calls = [(1, "a"), (2, "b"), (3, "a"), (4, "b")];
        let calls = calls.map(|(index, name)| Invocation {
            sequence: index.into(),
            ..call_of(id, n + index, name)
        });
        open(store, &calls).await;
    }
    let using = store.sessions_using(None, None).await.unwrap();
    let counts: Vec<_> = using.iter().map(|row| row.n_sessions).collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(pairs(store).await, [("a".into(), "b".into(), 2, 1.0)]);
}

/// The distance of a pair is the mean, over its sessions, of the distance of the first uses. Its
/// moment is the first use of the second tool in the newest session.
pub async fn a_pair_has_a_mean_distance_and_a_moment(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let at = |session, n: u8, sequence: u64, name: &str| Invocation {
        sequence,
        ..call_of(session, n, name)
    };
    open(
        store,
        &[
            at(one, 10, 1, "b"),
            at(one, 90, 5, "a"),
            at(one, 95, 6, "b"),
        ],
    )
    .await;
    open(store, &[at(two, 60, 3, "a"), at(two, 61, 4, "b")]).await;
    let pairs = store.cooccurrences(None, None).await.unwrap();
    assert_eq!(pairs.len(), 1);
    assert_eq!(
        (&pairs[0].tool_a, &pairs[0].tool_b),
        (&tool("a"), &tool("b"))
    );
    assert_eq!((pairs[0].count, pairs[0].mean_distance), (2, 2.5));
    assert_eq!(pairs[0].last_updated, moment(90));
}

/// The first use of a tool is the one with the lowest position, in whichever order they were
/// recorded.
pub async fn the_first_use_is_the_one_with_the_lowest_position(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    open(store, &[call_of(id, 9, "a"), call_of(id, 8, "b")]).await;
    assert_eq!(pairs(store).await, [("a".into(), "b".into(), 1, 1.0)]);
    open(store, &[call_of(id, 3, "b"), call_of(id, 7, "a")]).await;
    assert_eq!(pairs(store).await, [("a".into(), "b".into(), 1, 4.0)]);
    let rows = store.cooccurrences(None, None).await.unwrap();
    assert_eq!(rows[0].last_updated, moment(7));
}

/// Of a session with more than 128 tools, sessions and pairs count the first 128. The calls of all
/// tools are counted.
pub async fn of_a_session_with_very_many_tools_the_first_are_known(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let calls: Vec<_> = (1..=140)
        .map(|n| call_of(id, n, &format!("tool {n:03}")))
        .collect();
    for some in calls.chunks(50) {
        open(store, some).await;
    }
    let using = store.sessions_using(None, None).await.unwrap();
    let read: Vec<_> = using.into_iter().map(|row| row.tool).collect();
    let known: Vec<_> = calls
        .iter()
        .map(tool_of)
        .take(SessionTools::MAX_TOOLS)
        .collect();
    assert_eq!(read, known);
    let pairs = store.cooccurrences(None, None).await.unwrap();
    assert_eq!(pairs.len(), 128 * 127 / 2);
    assert_eq!(frequencies(store).await.len(), 140);
    assert_eq!(transitions(store).await.len(), 139);
}

/// A call follows another one when its position in the session is the next, in whichever order they
/// were recorded.
pub async fn a_call_follows_the_one_at_the_position_before(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    // Positions 2, 3, 4 and 6 of one session, and 5 of another.
    open(store, &[call_of(one, 4, "a"), call_of(one, 2, "a")]).await;
    let mut elsewhere = call_of(two, 50, "x");
    elsewhere.sequence = 5;
    open(store, &[elsewhere, call_of(one, 6, "c")]).await;
    assert_eq!(transitions(store).await, []);
    open(store, &[call_of(one, 3, "b")]).await;
    let expected = [("a".into(), "b".into(), 1), ("b".into(), "a".into(), 1)];
    assert_eq!(transitions(store).await, expected);
    open(store, &[call_of(one, 5, "c")]).await;
    let expected = [
        ("a".into(), "b".into(), 1),
        ("a".into(), "c".into(), 1),
        ("b".into(), "a".into(), 1),
        ("c".into(), "c".into(), 1),
    ];
    assert_eq!(transitions(store).await, expected);
}
