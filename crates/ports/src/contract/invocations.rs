//! The clauses of [`InvocationRepository`](crate::analytics::InvocationRepository).

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{CallState, Invocation, Outcome, PastCall};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{
    apply, call, call_of, calls, context, end, moment, odd_texts, run, session, summary, tokens,
};
use crate::analytics::InvocationFilter;

/// A call is read with every value that was recorded, also those that may be absent.
pub async fn a_call_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let full = call(session(run(1), 1).id, 2);
    let mut bare = call(session(run(1), 1).id, 3);
    bare.arguments = None;
    bare.continues = Some(full.id);
    (bare.work_session, bare.list_epoch, bare.context) = (None, None, None);
    let full_end = end(&full, Outcome::Cancelled);
    let mut bare_end = end(&bare, Outcome::Error);
    bare_end.result = None;
    let records = [
        Record::CallOpened(full.clone()),
        Record::CallOpened(bare.clone()),
        Record::CallClosed(full_end.clone()),
    ];
    apply(store, &records).await;
    apply(store, &[Record::CallClosed(bare_end.clone())]).await;
    let expected = [(full, full_end), (bare, bare_end)]
        .map(|(invocation, end)| summary(invocation, Some(end)));
    assert_eq!(calls(store).await, expected);
}

/// Calls in flight are returned, without an end.
pub async fn a_call_in_flight_has_no_end(store: &impl UsageStore) {
    let open = call(session(run(1), 1).id, 2);
    apply(store, &[Record::CallOpened(open.clone())]).await;
    let expected = summary(open, None);
    assert_eq!(calls(store).await, [expected]);
    let all = InvocationFilter::default();
    assert_eq!(store.count(&all).await.unwrap(), 1);
}

/// The token counts of a call are read with it. The first count of each text stays.
pub async fn the_first_count_of_tokens_stays(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let [one_by_one, at_once, uncounted] = [2, 3, 4].map(|n| call(session, n));
    apply(store, &[Record::CallOpened(one_by_one.clone())]).await;
    for (request, response) in [(None, Some(7)), (Some(0), Some(8)), (Some(9), None)] {
        apply(store, &[tokens(&one_by_one, request, response)]).await;
    }
    let records = [
        Record::CallOpened(at_once.clone()),
        tokens(&at_once, Some(1), None),
        tokens(&at_once, Some(2), Some(3)),
        Record::CallOpened(uncounted),
    ];
    apply(store, &records).await;
    let counts: Vec<_> = (calls(store).await.iter())
        .map(|call| (call.request_tokens, call.response_tokens))
        .collect();
    let expected = [(Some(0), Some(7)), (Some(1), Some(3)), (None, None)];
    assert_eq!(counts, expected);
}

/// The calls that followed contexts are returned, oldest first, and no others.
pub async fn the_calls_after_contexts_come_oldest_first(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let [one, two, unknown] = [11, 12, 13].map(|n| context(session, n).id);
    let contexts = [Some(one), None, Some(two), Some(one)];
    let mut calls = Vec::new();
    for (n, context) in (2..).zip(contexts) {
        let mut call = call(session, n);
        call.context = context;
        calls.push(call);
    }
    let records: Vec<_> = (calls.iter().rev())
        .map(|call| Record::CallOpened(call.clone()))
        .collect();
    apply(store, &records).await;
    let ended = end(&calls[2], Outcome::Ok);
    apply(store, &[Record::CallClosed(ended.clone())]).await;
    let of = |at: usize| summary(calls[at].clone(), (at == 2).then(|| ended.clone()));
    for (contexts, expected) in [
        (vec![one], vec![of(0), of(3)]),
        (vec![two, one, two], vec![of(0), of(2), of(3)]),
        (vec![unknown], vec![]),
        (vec![], vec![]),
    ] {
        let read = store.calls_after(&contexts).await.unwrap();
        assert_eq!(read, expected, "{contexts:?}");
    }
}

/// Token counts of an unrecorded call create no row.
pub async fn tokens_of_an_unknown_call_make_no_row(store: &impl UsageStore) {
    let unknown = call(session(run(1), 1).id, 2);
    apply(store, &[tokens(&unknown, Some(1), Some(2))]).await;
    assert_eq!(calls(store).await, []);
    apply(store, &[Record::CallOpened(unknown.clone())]).await;
    assert_eq!(calls(store).await, [summary(unknown, None)]);
}

/// A call before 1970 is read as it was recorded.
pub async fn a_call_before_1970_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let mut early = call(session(run(1), 1).id, 2);
    early.started_at = Timestamp::from_microsecond(-1).unwrap();
    apply(store, &[Record::CallOpened(early.clone())]).await;
    assert_eq!(calls(store).await, [summary(early, None)]);
}

/// The newest calls by identifier are returned, oldest first, up to the limit.
pub async fn the_newest_calls_come_oldest_first(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let opened = [3, 1, 4, 2].map(|n| Record::CallOpened(call(session, n)));
    apply(store, &opened).await;
    for (limit, expected) in [(0, &[][..]), (1, &[4]), (3, &[2, 3, 4]), (9, &[1, 2, 3, 4])] {
        let calls = store.invocations(&InvocationFilter::default(), limit).await;
        let calls = calls.unwrap().into_iter();
        let starts: Vec<_> = calls.map(|call| call.invocation.started_at).collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(starts, expected, "{limit}");
    }
}

/// Calls are ordered by identifier, even if the clock was set back between receipt and start.
pub async fn calls_are_ordered_by_identifier_whatever_their_start(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let opened = [3_u8, 1, 2].map(|n| {
        let mut call = call(session, n);
        call.started_at = moment(9 - i64::from(n));
        call
    });
    apply(store, &opened.clone().map(Record::CallOpened)).await;
    let mut expected: Vec<InvocationId> = opened.iter().map(|call| call.id).collect();
    expected.sort_unstable();
    let newest = store.invocations(&InvocationFilter::default(), 2).await;
    let ids: Vec<_> = newest
        .unwrap()
        .iter()
        .map(|call| call.invocation.id)
        .collect();
    assert_eq!(ids, expected[1..]);
}

/// The calls of one principal are read without those of others, by pages and the newest alone. The
/// call before the newest ones is found, of one principal and of all.
pub async fn the_history_of_a_principal_has_only_its_calls(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    // PostgreSQL has an index of the beginnings of names.
    let long = |end: &str| Principal::from_name(&format!("{}{end}", "p".repeat(300)));
    let (one, two) = (long("one"), long("two"));
    let opened = [3, 1, 5, 2, 4, 6].map(|n| {
        let mut call = call(session, n);
        call.principal = if n % 2 == 0 { two.clone() } else { one.clone() };
        Record::CallOpened(call)
    });
    apply(store, &opened).await;
    let id = |n: u8| call(session, n).id;
    let ids =
        |calls: Vec<PastCall>| -> Vec<InvocationId> { calls.iter().map(|call| call.id).collect() };
    for (after, limit, expected) in [
        (None, 2, &[1, 3][..]),
        (Some(3), 9, &[5]),
        (Some(2), 1, &[3]),
        (None, 0, &[]),
    ] {
        let page = store.past_calls(Some(&one), after.map(id), limit).await;
        let expected: Vec<_> = expected.iter().map(|n| id(*n)).collect();
        assert_eq!(ids(page.unwrap()), expected, "{after:?}");
    }
    for (limit, expected) in [(0, &[][..]), (2, &[4, 6]), (9, &[2, 4, 6])] {
        let newest = store.recent_calls(Some(&two), limit).await.unwrap();
        let expected: Vec<_> = expected.iter().map(|n| id(*n)).collect();
        assert_eq!(ids(newest), expected, "{limit}");
    }
    for (scope, n, expected) in [
        (None, 0, Some(6)),
        (None, 5, Some(1)),
        (None, 6, None),
        (Some(&one), 0, Some(5)),
        (Some(&one), 2, Some(1)),
        (Some(&one), 3, None),
    ] {
        let found = store.call_before_newest(scope, n).await.unwrap();
        assert_eq!(found, expected.map(id), "{scope:?}, {n}");
    }
    let nobody = Principal::from_name("nobody");
    assert_eq!(store.recent_calls(Some(&nobody), 9).await.unwrap(), []);
}

/// Pages contain every call once, in the order of identifiers, if each page begins after the last
/// call of the page before, even if that call was deleted meanwhile. The newest calls can also be
/// read alone.
pub async fn the_history_is_read_page_by_page(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let opened = [3, 1, 5, 2, 4].map(|n| Record::CallOpened(call(session, n)));
    apply(store, &opened).await;
    let pages = [
        (None, 2, &[1, 2][..]),
        (Some(2), 2, &[3, 4]),
        (Some(4), 9, &[5]),
    ];
    let none = [(Some(5), 9, &[][..]), (None, 0, &[])];
    for (after, limit, expected) in pages.into_iter().chain(none) {
        let after = after.map(|n| call(session, n).id);
        let page = store.past_calls(None, after, limit).await.unwrap();
        let starts: Vec<_> = page.iter().map(|call| call.started_at).collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(starts, expected, "{after:?}");
    }
    let unknown = call(session, 6).id;
    assert_eq!(store.past_calls(None, Some(unknown), 9).await.unwrap(), []);
    for (limit, expected) in [(0, &[][..]), (2, &[4, 5]), (9, &[1, 2, 3, 4, 5])] {
        let newest = store.recent_calls(None, limit).await.unwrap();
        let starts: Vec<_> = newest.iter().map(|call| call.started_at).collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(starts, expected, "{limit}");
    }
}

/// A past call has its recorded values, and the client of its session if the session is recorded.
pub async fn a_past_call_has_the_client_of_its_session(store: &impl UsageStore) {
    let known = session(run(1), 1);
    let full = call(known.id, 2);
    let mut bare = call(session(run(1), 9).id, 3);
    bare.continues = Some(full.id);
    bare.work_session = None;
    bare.context = None;
    let ended = end(&full, Outcome::Error);
    let records = [
        Record::SessionOpened(known.clone()),
        Record::CallOpened(full.clone()),
        Record::CallOpened(bare.clone()),
        Record::CallClosed(ended),
    ];
    apply(store, &records).await;
    let past = |call: Invocation, client, outcome| PastCall {
        id: call.id,
        session: call.session,
        work_session: call.work_session,
        principal: call.principal,
        client,
        upstream: call.upstream,
        tool: call.tool,
        started_at: call.started_at,
        continues: call.continues,
        context: call.context,
        outcome,
    };
    let expected = [
        past(full, Some(known.client_info.name), Some(Outcome::Error)),
        past(bare, None, None),
    ];
    assert_eq!(store.past_calls(None, None, 9).await.unwrap(), expected);
    assert_eq!(store.recent_calls(None, 9).await.unwrap(), expected);
}

/// Only calls of the session and of the tool that the filter names are read and counted.
pub async fn only_calls_that_fit_are_read_and_counted(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let add = ToolName::from("add");
    let opened = [
        (one, 3, "echo"),
        (one, 4, "add"),
        (two, 5, "add"),
        (two, 6, "ADD"),
    ];
    let opened = opened.map(|(session, n, tool)| {
        let mut call = call(session, n);
        call.tool = ToolName::from(tool);
        Record::CallOpened(call)
    });
    apply(store, &opened).await;
    for (session, tool, expected) in [
        (None, None, &[3, 4, 5, 6][..]),
        (Some(one), None, &[3, 4]),
        (None, Some(add.clone()), &[4, 5]),
        (Some(two), Some(add.clone()), &[5]),
        (Some(session(run(1), 9).id), None, &[]),
    ] {
        let filter = InvocationFilter {
            session,
            tool,
            ..InvocationFilter::default()
        };
        assert_fitting(store, &filter, expected).await;
    }
}

/// Asserts that exactly the calls with these positions match the filter.
async fn assert_fitting(store: &impl UsageStore, filter: &InvocationFilter, expected: &[u64]) {
    let fitting = store.invocations(filter, 9).await.unwrap();
    let sequences: Vec<_> = (fitting.iter())
        .map(|call| call.invocation.sequence)
        .collect();
    assert_eq!(sequences, expected, "{filter:?}");
    let count = store.count(filter).await.unwrap();
    assert_eq!(count, expected.len() as u64, "{filter:?}");
    let newest = store.invocations(filter, 1).await.unwrap();
    let newest: Vec<_> = (newest.iter())
        .map(|call| call.invocation.sequence)
        .collect();
    assert_eq!(
        newest,
        expected[expected.len().saturating_sub(1)..],
        "{filter:?}"
    );
}

/// The filter by upstream, time and state selects calls to read and to count, alone or together
/// with session and tool.
pub async fn calls_are_told_apart_by_upstream_moment_and_state(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let [mail, files] = ["mail", "files"].map(|name| UpstreamName::parse(name).unwrap());
    let ok = Some(Outcome::Ok);
    let made = [
        (3, one, &mail, "send", ok),
        (4, one, &files, "send", Some(Outcome::Error)),
        (5, two, &mail, "send", None),
        (6, two, &mail, "read", ok),
        (7, one, &files, "read", Some(Outcome::Timeout)),
    ];
    for (n, session, upstream, tool, outcome) in made {
        let mut call = call_of(session, n, tool);
        call.upstream = upstream.clone();
        let ended = outcome.map(|outcome| Record::CallClosed(end(&call, outcome)));
        let opened = Record::CallOpened(call);
        apply(
            store,
            &[opened].into_iter().chain(ended).collect::<Vec<_>>(),
        )
        .await;
    }
    let all = InvocationFilter::default();
    let ended = |outcome| Some(CallState::Ended(outcome));
    let of_mail = InvocationFilter {
        upstream: Some(mail),
        ..all.clone()
    };
    let since = |n: i64| InvocationFilter {
        since: Some(moment(n)),
        ..all.clone()
    };
    let in_state = |state| InvocationFilter {
        state,
        ..all.clone()
    };
    let of_tool = |session: Option<SessionId>, rest: &InvocationFilter| InvocationFilter {
        session,
        tool: Some(ToolName::from("send")),
        ..rest.clone()
    };
    assert_fitting(store, &of_mail, &[3, 5, 6]).await;
    assert_fitting(store, &of_tool(None, &of_mail), &[3, 5]).await;
    assert_fitting(store, &of_tool(Some(two), &of_mail), &[5]).await;
    assert_fitting(store, &since(0), &[3, 4, 5, 6, 7]).await;
    assert_fitting(store, &since(5), &[5, 6, 7]).await;
    assert_fitting(store, &since(8), &[]).await;
    let early = InvocationFilter {
        since: Some(Timestamp::MIN),
        ..all.clone()
    };
    assert_fitting(store, &early, &[3, 4, 5, 6, 7]).await;
    assert_fitting(store, &of_tool(Some(one), &since(4)), &[4]).await;
    assert_fitting(store, &in_state(Some(CallState::InFlight)), &[5]).await;
    assert_fitting(store, &in_state(ended(Outcome::Ok)), &[3, 6]).await;
    assert_fitting(store, &in_state(ended(Outcome::Refused)), &[]).await;
    let session_key = InvocationFilter {
        session: Some(one),
        since: Some(moment(4)),
        state: ended(Outcome::Timeout),
        upstream: Some(files),
        tool: None,
    };
    assert_fitting(store, &session_key, &[7]).await;
}

/// The calls with the requested identifiers are returned, oldest first, and no others.
pub async fn calls_are_found_by_identifier(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let calls = [2, 3, 4].map(|n| call(session, n));
    let opened = calls.clone().map(Record::CallOpened);
    apply(store, &opened).await;
    let ended = end(&calls[2], Outcome::Ok);
    apply(store, &[Record::CallClosed(ended.clone())]).await;
    let unknown = call(session, 9).id;
    let wanted = [calls[2].id, unknown, calls[0].id, calls[2].id];
    let found = store.calls_by_id(&wanted).await.unwrap();
    let expected = [
        summary(calls[0].clone(), None),
        summary(calls[2].clone(), Some(ended)),
    ];
    assert_eq!(found, expected);
    assert_eq!(store.calls_by_id(&[]).await.unwrap(), []);
}

/// A tool can have any name, and is found by it.
pub async fn any_name_of_a_tool_survives(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let mut names = odd_texts();
    names.push(String::new());
    for (n, name) in (1..).zip(&names) {
        apply(store, &[Record::CallOpened(call_of(session, n, name))]).await;
    }
    let all = calls(store).await;
    let read: Vec<_> = all
        .iter()
        .map(|call| call.invocation.tool.as_str())
        .collect();
    assert_eq!(read, names);
    for name in &names {
        let filter = InvocationFilter {
            tool: Some(ToolName::from(name.as_str())),
            ..InvocationFilter::default()
        };
        assert_eq!(store.count(&filter).await.unwrap(), 1, "{name:?}");
    }
}

/// The newest calls of a work session are returned, oldest first.
pub async fn the_newest_calls_of_a_work_session_come_oldest_first(store: &impl UsageStore) {
    let work = WorkSessionId::new(moment(1), [7; 10]);
    let session = session(run(1), 1);
    let calls = [1, 2, 3, 4].map(|n| {
        let mut call = call(session.id, n);
        call.work_session = (n != 2).then_some(work);
        call
    });
    let mut records = vec![Record::SessionOpened(session)];
    records.extend(calls.clone().map(Record::CallOpened));
    apply(store, &records).await;
    let read = store.calls_of_work(work, 2).await.unwrap();
    let read: Vec<_> = read.iter().map(|call| call.invocation.id).collect();
    assert_eq!(read, [calls[2].id, calls[3].id]);
    let other = WorkSessionId::new(moment(1), [8; 10]);
    assert_eq!(store.calls_of_work(other, 9).await.unwrap(), []);
}

/// The last call of each tool is that with its newest identifier, in one reading for all tools. Tools
/// of one name are told apart by their upstream, and tools without calls are left out.
pub async fn the_last_calls_of_tools_are_those_with_the_newest_identifier(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let [mail, files] = ["mail", "files"].map(|name| UpstreamName::parse(name).unwrap());
    // PostgreSQL has an index of the beginnings of names.
    let long = |end: &str| format!("{}{end}", "t".repeat(300));
    let (first, second) = (long("first"), long("second"));
    let made = [
        (3, &mail, "send"),
        (4, &files, "send"),
        (5, &mail, "send"),
        (6, &mail, "read"),
        (7, &files, &*first),
        (8, &files, &*second),
    ];
    let made = made.map(|(n, upstream, tool)| {
        let mut call = call_of(session, n, tool);
        call.upstream = upstream.clone();
        // The order of the starts is the opposite one.
        call.started_at = moment(9 - i64::from(n));
        Record::CallOpened(call)
    });
    apply(store, &made).await;
    let tool = |upstream: &UpstreamName, tool: &str| ToolRef {
        upstream: upstream.clone(),
        tool: ToolName::from(tool),
    };
    let asked = [
        tool(&mail, "send"),
        tool(&files, "send"),
        tool(&files, "read"),
        tool(&files, &first),
        tool(&files, &second),
    ];
    let mut last = store.last_calls(&asked).await.unwrap();
    last.sort();
    let mut expected = vec![
        (tool(&mail, "send"), moment(4)),
        (tool(&files, "send"), moment(5)),
        (tool(&files, &first), moment(2)),
        (tool(&files, &second), moment(1)),
    ];
    expected.sort();
    assert_eq!(last, expected);
    assert_eq!(store.last_calls(&[]).await.unwrap(), []);
}
