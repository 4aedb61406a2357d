//! Choices read from a store in memory.

use riglm_domain::id::WorkSessionId;
use riglm_domain::selection::ExplorationShare;
use riglm_domain::selection::shown::{ListShown, SelectionDetails};
use riglm_domain::usage::invocation::Invocation;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, list_shown, moment, run, search, session};
use riglm_ports::fake::MemoryStore;

use super::*;

const HOUR: i64 = 3_600_000;

fn choice(unit: &str) -> SizeChoice {
    let candidates = [5, 10, 20].map(ListSize::Tools).into();
    let share = ExplorationShare::try_from(1.0).unwrap();
    SizeChoice::new(
        ListSize::Tools(10),
        candidates,
        share,
        SizeDraw::of_unit(1, unit),
    )
}

/// A list of the session, shown `n` milliseconds into the scene, with the choice of a draw.
fn list(session: SessionId, n: u8, unit: Option<&str>) -> ListShown {
    let list = list_shown(session, n);
    let selection = list.selection.as_ref().map(|selection| SelectionDetails {
        size_choice: unit.map(choice),
        ..selection.clone()
    });
    ListShown { selection, ..list }
}

/// A call of the session `n` milliseconds into the scene, in the `work`th work session.
fn call_in(session: SessionId, n: u8, work: u8) -> Record {
    Record::CallOpened(Invocation {
        source: ToolSource::Shown,
        work_session: Some(WorkSessionId::new(moment(1), [work; 10])),
        ..call(session, n)
    })
}

async fn read(records: Vec<Record>, now: i64, cluster: ClusterBy) -> StoredChoices {
    let store = MemoryStore::default();
    store.apply(&records).await.unwrap();
    let prices = ListPrices::default();
    let options = StoredOptions {
        since: moment(0),
        limit: 100,
        now: moment(now),
        prices: &prices,
        cluster,
    };
    stored_choices(&store, &BTreeMap::new(), &options)
        .await
        .unwrap()
}

/// Opens the `n`th session, with the records that follow for its identifier.
fn with_session(n: u8, more: impl FnOnce(SessionId) -> Vec<Record>) -> Vec<Record> {
    let session = session(run(1), n);
    let id = session.id;
    std::iter::once(Record::SessionOpened(session))
        .chain(more(id))
        .collect()
}

#[tokio::test]
async fn an_explored_session_has_its_cost_searches_and_coverage() {
    let records = with_session(1, |id| {
        let hidden = call(id, 6);
        vec![
            Record::ListShown(list(id, 2, Some("a"))),
            call_in(id, 3, 7),
            Record::Searched(search(id, 5)),
            Record::CallOpened(Invocation {
                work_session: Some(WorkSessionId::new(moment(1), [7; 10])),
                source: ToolSource::Found,
                ..hidden
            }),
        ]
    });
    let read = read(records, 2 * HOUR, ClusterBy::Draw).await;
    assert_eq!((read.n_connections, read.choices.len()), (1, 1));
    let session = &read.choices[0];
    assert_eq!((&session.choice, session.n_tools), (&choice("a"), 700));
    assert!((session.outcome.coverage - 0.5).abs() < 1e-12);
    assert!((session.outcome.searches - 1.0).abs() < 1e-12);
    // The list of 1,600 tokens is written once, and read by three prompts with 20,000 more. The
    // answer of the search has six definitions of 100 tokens. It counts three times.
    let prompt = 0.1 * 21_600.0;
    let expected = 1.25 * 1_600.0 + 2.0 * prompt + 3.0 * (prompt + 600.0 + 1.25 * 600.0);
    assert!(
        (session.outcome.cost - expected).abs() < 1e-6,
        "{}",
        session.outcome.cost
    );
    assert_eq!(session.features.len(), 3);
    let mut log = super::super::ChoiceLog::default();
    assert_eq!(log.push(session.clone()), Ok(()));
}

#[tokio::test]
async fn sessions_count_under_their_first_draw_whatever_they_did() {
    let lists = |unit: &'static [Option<&str>]| {
        move |id: SessionId| -> Vec<Record> {
            let lists = unit
                .iter()
                .zip(10..)
                .map(|(unit, n)| Record::ListShown(list(id, n, *unit)));
            lists.collect()
        }
    };
    let mut records = with_session(1, lists(&[None]));
    records.extend(with_session(2, lists(&[Some("idle")])));
    records.extend(with_session(3, |id| {
        let mut records = lists(&[Some("one"), Some("two")])(id);
        records.extend([call_in(id, 5, 3), call_in(id, 60, 3)]);
        records
    }));
    records.extend(with_session(4, |id| {
        let mut records = lists(&[Some("later"), None])(id);
        records.extend([call_in(id, 6, 4), call_in(id, 61, 4)]);
        records
    }));
    let known = read(records.clone(), 2 * HOUR, ClusterBy::Draw).await;
    assert_eq!((known.n_unexplored, known.n_running), (1, 0));
    assert_eq!((known.n_uncounted, known.n_parts), (0, 0));
    // Those without calls, and those that saw lists of several draws, count under their first draw.
    assert_eq!((known.n_idle, known.n_mixed), (1, 1));
    let counted = |unit: &str| {
        let mut choices = known.choices.iter();
        choices.find(|one| one.choice == choice(unit)).unwrap()
    };
    assert_eq!(known.choices.len(), 3);
    let idle = counted("idle").outcome;
    assert!(idle.cost <= 0.0 && idle.searches <= 0.0 && idle.coverage >= 1.0);
    assert!(counted("one").outcome.cost > 0.0 && counted("later").outcome.cost > 0.0);
    let running = read(records, HOUR / 2, ClusterBy::Draw).await;
    assert_eq!((running.n_running, running.choices.len()), (3, 0));
}

#[tokio::test]
async fn an_idle_connection_beside_an_active_one_is_no_session_of_its_own() {
    // A client that lists tools over one connection and calls them over another.
    let mut records = with_session(1, |id| vec![Record::ListShown(list(id, 10, Some("a")))]);
    records.extend(with_session(2, |id| vec![call_in(id, 60, 2)]));
    let read_all = read(records.clone(), 2 * HOUR, ClusterBy::Draw).await;
    assert_eq!((read_all.n_parts, read_all.choices.len()), (1, 0));
    // A client with a list in each connection, one of which has no call.
    let mut records = with_session(1, |id| vec![Record::ListShown(list(id, 10, Some("a")))]);
    records.extend(with_session(2, |id| {
        vec![
            Record::ListShown(list(id, 20, Some("a"))),
            call_in(id, 60, 2),
        ]
    }));
    records.extend(with_session(3, |id| {
        vec![Record::ListShown(list(id, 30, Some("b")))]
    }));
    let read_all = read(records, 2 * HOUR, ClusterBy::Draw).await;
    let numbers = (read_all.n_parts, read_all.n_idle, read_all.choices.len());
    assert_eq!(numbers, (1, 1, 2));
}

#[tokio::test]
async fn only_sessions_of_other_draws_are_features() {
    let mut records = Vec::new();
    for (n, unit) in [(1, "a"), (2, "a"), (3, "b")] {
        records.extend(with_session(n, |id| {
            vec![
                Record::ListShown(list(id, 10 * n, Some(unit))),
                call_in(id, 10 * n + 1, n),
                call_in(id, 10 * n + 2, n),
            ]
        }));
    }
    let by_draw = read(records.clone(), 2 * HOUR, ClusterBy::Draw).await;
    let earlier: Vec<f64> = by_draw.choices.iter().map(|one| one.features[2]).collect();
    let assumed = 11.0_f64.ln();
    let seen = (2.0 * assumed + 2.0 * 3.0_f64.ln()) / 4.0;
    for (found, expected) in earlier.iter().zip([assumed, assumed, seen]) {
        assert!((found - expected).abs() < 1e-9, "{earlier:?}");
    }
    let clusters = |read: &StoredChoices| -> Vec<String> {
        read.choices.iter().map(|one| one.cluster.clone()).collect()
    };
    let names = clusters(&by_draw);
    assert!(names[0] == names[1] && names[1] != names[2]);
    let by_principal = read(records, 2 * HOUR, ClusterBy::Principal).await;
    assert_eq!(clusters(&by_principal), ["local"; 3]);
}
