//! The clauses of [`ListRepository`](crate::analytics::ListRepository) about activities.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::account::{ListActivity, ListTokens};
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::invocation::{Invocation, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::work_session::IdleGap;

use super::UsageStore;
use super::scene::{
    apply, call, call_of, list_shown, moment, odd_texts, run, search, session, session_closed,
    work_session,
};

/// The activity of a session has its lists, calls and searches. Further rounds of a multi-round
/// call and rows of other sessions are omitted. A session without activity has an empty entry.
pub async fn the_activity_of_a_session_is_read(store: &impl UsageStore) {
    let [one, two, idle] = [1, 2, 3].map(|n| session(run(1), n).id);
    let mut calls = Vec::new();
    let sources = [ToolSource::Shown, ToolSource::Found, ToolSource::Hidden];
    for (n, (text, source)) in (5..).zip(odd_texts().iter().zip(sources.into_iter().cycle())) {
        calls.push(Invocation {
            source,
            work_session: None,
            ..call_of(one, n, text)
        });
    }
    let round = Invocation {
        continues: Some(calls[0].id),
        ..call(one, 40)
    };
    let (first, mut second, mut bare) = (search(one, 4), search(one, 6), list_shown(one, 3));
    second.results.clear();
    bare.selection = None;
    let lists = [bare, list_shown(one, 5)];
    let others = [
        Record::CallOpened(call(two, 50)),
        Record::Searched(search(two, 51)),
        Record::ListShown(list_shown(two, 52)),
    ];
    let records: Vec<Record> = (calls.iter().cloned().map(Record::CallOpened))
        .chain([Record::CallOpened(round), Record::Searched(first.clone())])
        .chain([Record::Searched(second.clone())])
        .chain(lists.iter().cloned().map(Record::ListShown))
        .chain(others)
        .collect();
    apply(store, &records).await;
    let read = store.list_activities(&[idle, one], 99).await.unwrap();
    assert_eq!(read.keys().copied().collect::<Vec<_>>(), [one, idle]);
    assert_eq!(read[&idle], ListActivity::default());
    let expected = ListActivity {
        lists: lists.iter().map(Into::into).collect(),
        calls: calls.iter().map(Into::into).collect(),
        searches: [first, second].iter().map(Into::into).collect(),
    };
    assert_eq!(read[&one], expected);
    let tokens = ListTokens {
        shown: 1_600,
        available: 70_000,
    };
    let read: Vec<_> = read[&one].lists.iter().map(|list| list.tokens).collect();
    assert_eq!(read, [None, Some(tokens)]);
    assert!(store.list_activities(&[], 9).await.unwrap().is_empty());
}

/// The newest of each kind of each session are read, oldest first.
pub async fn the_newest_of_each_kind_are_read(store: &impl UsageStore) {
    let sessions = [(1, 0), (2, 100)].map(|(n, later)| (session(run(1), n).id, later));
    for (id, later) in sessions {
        let records = [7, 5, 9, 6].into_iter().flat_map(|n| {
            [
                Record::CallOpened(call(id, later + n)),
                Record::Searched(search(id, later + n)),
                Record::ListShown(list_shown(id, later + n)),
            ]
        });
        apply(store, &records.collect::<Vec<_>>()).await;
    }
    let ids = sessions.map(|(id, _)| id);
    for (limit, expected) in [(0, &[][..]), (2, &[7, 9]), (9, &[5, 6, 7, 9])] {
        let read = store.list_activities(&ids, limit).await.unwrap();
        for (id, later) in sessions {
            let expected: Vec<_> = (expected.iter())
                .map(|n| moment(i64::from(later + n)))
                .collect();
            let did = &read[&id];
            let lists: Vec<_> = did.lists.iter().map(|list| list.at).collect();
            let calls: Vec<_> = did.calls.iter().map(|call| call.at).collect();
            let searches: Vec<_> = did.searches.iter().map(|search| search.at).collect();
            assert_eq!([lists, calls, searches], [(); 3].map(|()| expected.clone()));
        }
    }
}

/// The activity of a work session has its calls over all connections. It has the lists and searches
/// of those connections while it was active, and the list that was current when it began.
pub async fn a_work_session_is_read_over_its_connections(store: &impl UsageStore) {
    let [one, two, other] = [1, 2, 3].map(|n| session(run(1), n).id);
    let asked = work_session("key", 9, 30);
    let resolved = store
        .resolve_work_session(&asked, IdleGap::new(Duration::ZERO, Duration::ZERO))
        .await;
    let id = resolved.unwrap().id;
    let later = [(one, 40), (two, 50)].map(|(session, n)| call_in(session, n, Some(id)));
    let before = call_in(one, 20, Some(WorkSessionId::new(moment(1), [1; 10])));
    let after = call_in(two, 60, None);
    let round = Invocation {
        continues: Some(later[0].id),
        ..call_in(one, 45, Some(id))
    };
    let calls = later.iter().chain([&before, &after, &round]);
    let lists: Vec<ListShown> = [
        (one, 10),
        (one, 15),
        (one, 35),
        (two, 48),
        (two, 55),
        (other, 36),
    ]
    .map(|(session, n)| list_shown(session, n))
    .into();
    let searches: Vec<Search> = [(one, 19), (one, 31), (two, 49), (two, 57), (other, 37)]
        .map(|(session, n)| search(session, n))
        .into();
    let records: Vec<Record> = (calls.cloned().map(Record::CallOpened))
        .chain(lists.iter().cloned().map(Record::ListShown))
        .chain(searches.iter().cloned().map(Record::Searched))
        .collect();
    apply(store, &records).await;
    let expected = ListActivity {
        lists: lists[1..4].iter().map(Into::into).collect(),
        calls: later.iter().map(Into::into).collect(),
        searches: searches[1..3].iter().map(Into::into).collect(),
    };
    assert_eq!(store.list_activity_of(id, 99).await.unwrap(), expected);
    let newest = ListActivity {
        lists: expected.lists[2..].into(),
        calls: expected.calls[1..].into(),
        searches: expected.searches[1..].into(),
    };
    assert_eq!(store.list_activity_of(id, 1).await.unwrap(), newest);
}

/// An unknown work session, or one without calls, has an empty activity.
pub async fn a_work_session_without_calls_did_nothing(store: &impl UsageStore) {
    let known = work_session("key", 1, 30);
    let resolved = store
        .resolve_work_session(&known, IdleGap::new(Duration::ZERO, Duration::ZERO))
        .await;
    let id = session(run(1), 1).id;
    let shown = Record::ListShown(list_shown(id, 30));
    apply(store, &[shown, Record::Searched(search(id, 30))]).await;
    let unknown = WorkSessionId::new(moment(30), [7; 10]);
    for asked in [resolved.unwrap().id, unknown] {
        let did = store.list_activity_of(asked, 9).await.unwrap();
        assert_eq!(did, ListActivity::default());
    }
}

/// The work sessions of a session are the ones of its calls, each once.
pub async fn the_work_sessions_of_a_session_are_those_of_its_calls(store: &impl UsageStore) {
    let [one, two, none, other] = [1, 2, 3, 4].map(|n| session(run(1), n).id);
    let [a, b] = [1, 2].map(|n| WorkSessionId::new(moment(n.into()), [n; 10]));
    let calls = [
        (one, 10, Some(b)),
        (one, 11, Some(a)),
        (one, 12, Some(b)),
        (one, 13, None),
        (two, 14, Some(a)),
        (none, 15, None),
        (other, 16, Some(a)),
    ];
    let opened = calls.map(|(id, n, of)| Record::CallOpened(call_in(id, n, of)));
    apply(store, &opened).await;
    let asked = [none, two, one];
    let none_asked = store.work_sessions_of(&[], 9).await.unwrap();
    assert!(none_asked.is_empty());
    for (limit, expected) in [
        (0, vec![]),
        (1, vec![(two, [a].into())]),
        (2, vec![(one, [b].into()), (two, [a].into())]),
        (3, vec![(one, [a, b].into()), (two, [a].into())]),
        (9, vec![(one, [a, b].into()), (two, [a].into())]),
    ] {
        let read = store.work_sessions_of(&asked, limit).await.unwrap();
        let expected: BTreeMap<_, BTreeSet<_>> = expected.into_iter().collect();
        assert_eq!(read, expected, "{limit}");
    }
}

/// The newest work sessions since a moment are returned, each with the session of its newest call.
pub async fn the_newest_work_sessions_name_the_session_of_their_newest_call(
    store: &impl UsageStore,
) {
    let [one, two] = [1, 2].map(|n| session(run(1), n).id);
    let [a, b, c] = [1, 2, 3].map(|n| WorkSessionId::new(moment(n.into()), [n; 10]));
    let calls = [
        (one, 10, Some(a)),
        (two, 11, Some(a)),
        (one, 12, Some(b)),
        (one, 13, Some(c)),
        (one, 14, None),
        (two, 15, Some(c)),
        (one, 16, Some(c)),
    ];
    let opened = calls.map(|(id, n, of)| Record::CallOpened(call_in(id, n, of)));
    apply(store, &opened).await;
    for (since, limit, expected) in [
        (0, 9, &[(a, two), (b, one), (c, one)][..]),
        (1, 9, &[(a, two), (b, one), (c, one)]),
        (2, 9, &[(b, one), (c, one)]),
        (0, 3, &[(a, two), (b, one), (c, one)]),
        (0, 2, &[(b, one), (c, one)]),
        (0, 1, &[(c, one)]),
        (0, 0, &[]),
        (4, 9, &[]),
    ] {
        let read = store.work_sessions_since(moment(since), limit).await;
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(read.unwrap(), expected, "{since} {limit}");
    }
}

/// The newest sessions that were open at a moment or later are returned, oldest first.
pub async fn the_newest_sessions_open_since_a_moment_come_oldest_first(store: &impl UsageStore) {
    let sessions = [5, 2, 9, 7].map(|n| session(run(1), n));
    apply(store, &sessions.clone().map(Record::SessionOpened)).await;
    // The session that started at 5 stays open.
    let ends = [(2, 12), (7, 8), (9, 10)];
    let ends = ends.map(|(n, end)| session_closed(&session(run(1), n), end));
    apply(store, &ends).await;
    for (since, limit, expected) in [
        (0, 9, &[2, 5, 7, 9][..]),
        (8, 9, &[2, 5, 7, 9]),
        (9, 9, &[2, 5, 9]),
        (9, 2, &[5, 9]),
        (12, 9, &[2, 5]),
        (13, 9, &[5]),
        (0, 0, &[]),
    ] {
        let expected = expected.iter().map(|n| session(run(1), *n));
        let expected: Vec<(SessionId, Timestamp)> = expected
            .map(|session| (session.id, session.started_at))
            .collect();
        let read = store.sessions_open_since(moment(since), limit).await;
        assert_eq!(read.unwrap(), expected, "{since} {limit}");
    }
}

fn call_in(session: SessionId, n: u8, work_session: Option<WorkSessionId>) -> Invocation {
    Invocation {
        work_session,
        ..call(session, n)
    }
}
