use std::time::Duration;

use jiff::Timestamp;

use super::*;

fn recorder() -> PastSessionRecorder {
    PastSessionRecorder::new(KeyedHasher::new(&[7; 32]))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn session(seconds: &[i64]) -> PastSession {
    let calls = seconds
        .iter()
        .enumerate()
        .map(|(n, second)| PastSessionCall {
            identity: n as u64,
            upstream: Some(UpstreamName::parse("files").unwrap()),
            tool: ToolName::from("read"),
            started_at: at(*second),
            duration: Some(Duration::from_millis(3)),
            outcome: Outcome::Ok,
            arguments: recorder().arguments(Some(r#"{"password":"s3cret","a":1}"#)),
        });
    PastSession {
        client: "claude-code".into(),
        id: "s".into(),
        started_at: at(-5),
        calls: calls.collect(),
    }
}

fn calls(rows: &PastSessionRows) -> Vec<&Invocation> {
    let calls = rows.records.iter().filter_map(|record| match record {
        Record::CallOpened(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

#[test]
fn a_session_that_has_grown_keeps_its_identifiers() {
    let recorder = recorder().with_work_sessions(IdleGap::default());
    let first = recorder.rows(&session(&[0, 60, 7_200]));
    let grown = recorder.rows(&session(&[0, 60, 7_200, 7_210]));
    assert_eq!(recorder.rows(&session(&[0, 60, 7_200])), first);
    let n_same = first.records.len() - 1;
    assert_eq!(grown.records[..n_same], first.records[..n_same]);
    let ids = |rows: &PastSessionRows| -> Vec<WorkSessionId> {
        rows.work_sessions.iter().map(|work| work.id).collect()
    };
    assert_eq!(ids(&grown), ids(&first));
    let copy = PastSession {
        id: "fork".into(),
        ..session(&[0])
    };
    let copy = recorder.rows(&copy);
    assert_eq!(
        calls(&copy)[0].id,
        calls(&first)[0].id,
        "a copy is the same call"
    );
    assert_ne!(calls(&copy)[0].session, calls(&first)[0].session);
}

#[test]
fn a_pause_begins_another_work_session() {
    let rows = recorder()
        .with_work_sessions(IdleGap::default())
        .rows(&session(&[0, 60, 7_200, 7_210]));
    let of_calls: Vec<_> = calls(&rows).iter().map(|call| call.work_session).collect();
    let [first, second] = &*rows.work_sessions else {
        panic!("{:?}", rows.work_sessions);
    };
    let expected = [first.id, first.id, second.id, second.id].map(Some);
    assert_eq!(of_calls, expected);
    assert_eq!((first.started_at, first.last_active_at), (at(0), at(60)));
    assert_eq!(
        (second.started_at, second.last_active_at),
        (at(7_200), at(7_210))
    );
    let without = recorder().rows(&session(&[0, 7_200]));
    assert!(without.work_sessions.is_empty());
    assert!(
        calls(&without)
            .iter()
            .all(|call| call.work_session.is_none())
    );
}

#[test]
fn calls_at_one_moment_stay_in_order() {
    let rows = recorder().rows(&session(&[5; 40]));
    let ids: Vec<InvocationId> = calls(&rows).iter().map(|call| call.id).collect();
    assert!(ids.is_sorted());
    let numbers: Vec<u64> = calls(&rows).iter().map(|call| call.sequence).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<u64>>());
}

#[test]
fn old_calls_are_left_out_and_the_others_keep_their_identifiers() {
    let all = recorder().rows(&session(&[0, 10, 20]));
    let rest = recorder().since(at(10)).rows(&session(&[0, 10, 20]));
    assert_eq!(calls(&rest), calls(&all)[1..]);
    assert_eq!(rest.records[0], all.records[0]);
    let none = recorder().since(at(21)).rows(&session(&[0, 10, 20]));
    assert_eq!(none, PastSessionRows::default());
    let with_work = recorder()
        .with_work_sessions(IdleGap::default())
        .since(at(7_200));
    let work = with_work.rows(&session(&[0, 7_200])).work_sessions;
    assert_eq!(work.len(), 1);
    assert_eq!(work[0].started_at, at(7_200));
}

#[test]
fn rows_do_not_depend_on_the_servers_that_are_known() {
    let recorder = recorder().with_work_sessions(IdleGap::default());
    let all = recorder.rows(&session(&[0, 10, 10, 10]));
    for foreign in 0..4 {
        let mut fewer = session(&[0, 10, 10, 10]);
        fewer.calls[foreign].upstream = None;
        let fewer = recorder.rows(&fewer);
        let mut expected = calls(&all);
        expected.remove(foreign);
        assert_eq!(calls(&fewer), expected);
        assert_eq!(fewer.records[0], all.records[0]);
        assert_eq!(fewer.work_sessions, all.work_sessions);
    }
    let mut none = session(&[0]);
    none.calls[0].upstream = None;
    assert_eq!(recorder.rows(&none), PastSessionRows::default());
}

#[test]
fn arguments_are_hashed_and_stored_only_on_request() {
    let without = recorder().rows(&session(&[0]));
    assert_eq!(calls(&without)[0].arguments, None);
    let stored = recorder()
        .with_arguments()
        .arguments(Some(r#"{"password":"s3cret","a":1}"#));
    let text = stored.text.unwrap();
    assert!(
        text.contains("\"a\":1") && !text.contains("s3cret"),
        "{text}"
    );
    let none = recorder().arguments(None);
    assert_ne!(none.hash, stored.hash);
    assert_eq!(
        recorder()
            .arguments(Some(r#"{"a":1,"password":"s3cret"}"#))
            .hash,
        stored.hash
    );
}
