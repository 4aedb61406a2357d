//! The clauses of [`SessionRepository`](crate::analytics::SessionRepository).

use std::collections::BTreeMap;

use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, SessionSummary};

use super::UsageStore;
use super::scene::{apply, call, call_of, end, hash, moment, odd_texts, page, run, session};
use crate::analytics::SessionFilter;

/// A session is read with every value that was recorded.
pub async fn a_session_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let session = session(run(1), 1);
    apply(store, &[Record::SessionOpened(session.clone())]).await;
    let mut expected = SessionSummary {
        session: session.clone(),
        ended_at: None,
        n_calls: 0,
        tools_available: Vec::new(),
    };
    assert_eq!(store.sessions(9).await.unwrap(), [expected.clone()]);
    let closed = Record::SessionClosed {
        session: session.id,
        ended_at: moment(2),
    };
    apply(store, &[closed]).await;
    expected.ended_at = Some(moment(2));
    assert_eq!(store.sessions(9).await.unwrap(), [expected]);
}

/// A session is read without its unknown values, and with any texts.
pub async fn any_texts_of_a_session_survive(store: &impl UsageStore) {
    let mut bare = session(run(1), 1);
    bare.profile = None;
    bare.metadata.clear();
    let mut expected = vec![bare];
    for (n, text) in (2..).zip(odd_texts()) {
        let mut odd = session(run(1), n);
        odd.principal = Principal::from_name(&text);
        odd.metadata = BTreeMap::from([(text.clone(), text.clone())]);
        odd.profile = Some(text);
        expected.push(odd);
    }
    let opened: Vec<_> = expected
        .iter()
        .cloned()
        .map(Record::SessionOpened)
        .collect();
    apply(store, &opened).await;
    let sessions = store.sessions(u32::MAX).await.unwrap();
    let read: Vec<_> = sessions.into_iter().map(|row| row.session).collect();
    assert_eq!(read, expected);
}

/// The first record of a session stays.
pub async fn the_first_record_of_a_session_stays(store: &impl UsageStore) {
    let first = session(run(1), 1);
    let mut second = first.clone();
    second.profile = Some("another".into());
    let opened = [&first, &second].map(|session| Record::SessionOpened(session.clone()));
    apply(store, &opened).await;
    let sessions = store.sessions(9).await.unwrap();
    let read: Vec<_> = sessions.into_iter().map(|row| row.session).collect();
    assert_eq!(read, [first]);
}

/// The newest sessions by start are returned, oldest first.
pub async fn the_newest_sessions_come_oldest_first(store: &impl UsageStore) {
    let opened = [3, 1, 4, 2].map(|n| Record::SessionOpened(session(run(1), n)));
    apply(store, &opened).await;
    for (limit, expected) in [(0, &[][..]), (1, &[4]), (3, &[2, 3, 4]), (9, &[1, 2, 3, 4])] {
        let starts: Vec<_> = (store.sessions(limit).await.unwrap().iter())
            .map(|row| row.session.started_at)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(starts, expected, "{limit}");
    }
}

/// Sessions that started at the same moment are ordered by identifier.
pub async fn sessions_of_one_moment_are_ordered_by_identifier(store: &impl UsageStore) {
    let opened = [3, 1, 2].map(|n| {
        let mut session = session(run(1), n);
        session.started_at = moment(9);
        session
    });
    apply(store, &opened.clone().map(Record::SessionOpened)).await;
    let mut expected: Vec<SessionId> = opened.iter().map(|session| session.id).collect();
    expected.sort_unstable();
    let ids: Vec<_> = (store.sessions(2).await.unwrap().iter())
        .map(|row| row.session.id)
        .collect();
    assert_eq!(ids, expected[1..]);
}

/// A session counts the calls whose beginning is recorded, in flight or not.
pub async fn a_session_counts_the_calls_whose_beginning_is_recorded(store: &impl UsageStore) {
    let (busy, idle) = (session(run(1), 1), session(run(1), 2));
    let (open, done, unheard) = (call(busy.id, 3), call(busy.id, 4), call(busy.id, 5));
    let records = [
        Record::SessionOpened(busy),
        Record::SessionOpened(idle),
        Record::CallOpened(open),
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        Record::CallClosed(end(&unheard, Outcome::Ok)),
    ];
    apply(store, &records).await;
    let counts: Vec<_> = (store.sessions(9).await.unwrap().iter())
        .map(|row| row.n_calls)
        .collect();
    assert_eq!(counts, [2, 0]);
}

/// The tools of a session are the tools of every page listed to it, sorted, without repetition.
pub async fn a_session_has_the_tools_of_every_page_listed_to_it(store: &impl UsageStore) {
    let (asking, silent) = (session(run(1), 1), session(run(1), 2));
    let seen = |id, tools: &[&str]| Record::ToolsSeen {
        listing: page(id, tools),
        seen_at: moment(2),
    };
    let listed = |id: &str| Record::ToolsListed {
        session: asking.id,
        listing: id.into(),
        listed_at: moment(3),
    };
    let records = [
        seen("one", &["b\u{0}\"", "a"]),
        seen("two", &["c", "a"]),
        seen("other", &["d"]),
        Record::SessionOpened(asking.clone()),
        Record::SessionOpened(silent),
        listed("one"),
        listed("two"),
        listed("one"),
    ];
    apply(store, &records).await;
    let sessions = store.sessions(9).await.unwrap();
    assert_eq!(sessions[0].tools_available, ["a", "b\u{0}\"", "c"]);
    assert_eq!(sessions[1].tools_available, [""; 0]);
}

/// Pages of sessions together contain all sessions, even if several started at the same moment.
pub async fn pages_of_sessions_join_to_all(store: &impl UsageStore) {
    let opened = [3, 1, 4, 2, 5].map(|n| {
        let mut session = session(run(1), n);
        session.started_at = moment(i64::from(n) / 2);
        session
    });
    apply(store, &opened.clone().map(Record::SessionOpened)).await;
    let mut expected: Vec<_> = (opened.iter())
        .map(|session| (session.started_at, session.id))
        .collect();
    expected.sort_unstable();
    expected.reverse();
    let mut filter = SessionFilter::default();
    let mut read = Vec::new();
    loop {
        let page = store.sessions_where(&filter, 2).await.unwrap();
        let places = page.iter().rev();
        let places = places.map(|row| (row.session.started_at, row.session.id));
        read.extend(places);
        if page.is_empty() {
            break;
        }
        filter.before = read.last().copied();
    }
    assert_eq!(read, expected);
}

/// Sessions are filtered by whether they are open, and by their identifier.
pub async fn sessions_are_found_by_state_and_identifier(store: &impl UsageStore) {
    let (open, ended) = (session(run(1), 1), session(run(1), 2));
    let records = [
        Record::SessionOpened(open.clone()),
        Record::SessionOpened(ended.clone()),
        Record::SessionClosed {
            session: ended.id,
            ended_at: moment(9),
        },
    ];
    apply(store, &records).await;
    let found = async |filter: SessionFilter| {
        let rows = store.sessions_where(&filter, 9).await.unwrap();
        rows.into_iter()
            .map(|row| row.session.id)
            .collect::<Vec<_>>()
    };
    let by_state = |is_open| SessionFilter {
        is_open: Some(is_open),
        ..SessionFilter::default()
    };
    assert_eq!(found(by_state(true)).await, [open.id]);
    assert_eq!(found(by_state(false)).await, [ended.id]);
    let by_id = |id| SessionFilter {
        id: Some(id),
        ..SessionFilter::default()
    };
    assert_eq!(found(by_id(open.id)).await, [open.id]);
    assert_eq!(found(by_id(session(run(1), 7).id)).await, []);
}

/// The calls of a session are counted up to the requested limit.
pub async fn calls_are_counted_as_far_as_is_wanted(store: &impl UsageStore) {
    let [three, none] = [1, 2].map(|n| session(run(1), n));
    let opened = [three.clone(), none.clone()].map(Record::SessionOpened);
    apply(store, &opened).await;
    let calls = [1, 2, 3].map(|n| Record::CallOpened(call_of(three.id, n, "a")));
    apply(store, &calls).await;
    for (count_up_to, expected) in [
        (None, [3, 0]),
        (Some(0), [0, 0]),
        (Some(2), [2, 0]),
        (Some(3), [3, 0]),
        (Some(u32::MAX), [3, 0]),
    ] {
        let filter = SessionFilter {
            count_up_to,
            ..SessionFilter::default()
        };
        let read = store.sessions_where(&filter, 9).await.unwrap();
        let counted: Vec<u64> = read.iter().map(|row| row.n_calls).collect();
        assert_eq!(counted, expected, "{count_up_to:?}");
    }
}

/// Clients are found by their own name, and by their keyed hash.
pub async fn clients_are_found_by_name_and_by_hash(store: &impl UsageStore) {
    let [first, mut second, mut other] = [1, 2, 3].map(|n| session(run(1), n));
    second.client = hash("alice/client/2.0");
    other.client = hash("alice/other/1.0");
    other.client_info = ClientInfo::new("other", "1.0");
    let all = [first.clone(), first.clone(), second.clone(), other.clone()];
    apply(store, &all.map(Record::SessionOpened)).await;
    for (name, expected) in [
        (
            first.client_info.name.clone(),
            vec![first.client, second.client],
        ),
        ("other".into(), vec![other.client]),
        (second.client.to_string(), vec![second.client]),
        (hash("nobody").to_string(), Vec::new()),
        ("Other".into(), Vec::new()),
        (String::new(), Vec::new()),
    ] {
        let found = store.clients_named(&name).await.unwrap();
        assert_eq!(found, expected.into_iter().collect(), "{name}");
    }
}
