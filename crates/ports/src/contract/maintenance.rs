//! The clauses of [`Maintenance`](crate::analytics::Maintenance) and of the
//! [`MaintenanceGuard`](crate::analytics::MaintenanceGuard) of a task.

use futures_util::future::join;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::OverrideScope;
use riglm_domain::id::SessionId;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::ToolSet;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;

use super::UsageStore;
use super::counting::purge_in_steps;
use super::records::{counts, everything, one_of_each};
use super::scene::{
    apply, assignment, audit, call, call_of, calls, context, end, exchange, exclusion, feedback,
    list_epoch, list_shown, moment, page, recommendation, run, search, session, session_closed,
    snapshot, tool, weights, work_session,
};
use super::server_memories::{memory, recall};
use crate::analytics::{MaintenanceTask, PurgeReport};

/// Rebuilt counts are the same as before, also in an empty store; the number of read calls is
/// returned.
pub async fn counts_are_rebuilt_from_the_rows(store: &impl UsageStore) {
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.n_calls, rebuilt.n_counts), (0, 0));
    apply(store, &one_of_each()).await;
    let before = everything(store).await;
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!(rebuilt.n_calls, 2);
    assert_ne!(rebuilt.n_counts, 0);
    assert_eq!(everything(store).await, before);
}

/// Records that arrive during a rebuild are counted once.
pub async fn records_that_arrive_during_a_rebuild_are_counted(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    for n in 1..=20 {
        apply(store, &[Record::CallOpened(call(id, n))]).await;
    }
    let arriving = async {
        for n in 21..=200 {
            apply(store, &[Record::CallOpened(call(id, n))]).await;
        }
    };
    let rebuilding = async {
        for _ in 0..5 {
            store.rebuild().await.unwrap();
        }
    };
    join(arriving, rebuilding).await;
    let frequencies = store.frequencies(None, Timestamp::MIN).await.unwrap();
    assert_eq!(frequencies.len(), 1);
    assert_eq!(frequencies[0].n_calls, 200);
}

/// A purge deletes old rows of every kind, and nothing else.
pub async fn a_purge_removes_what_is_older(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let (old, new) = (rows_at(session.id, 20), rows_at(session.id, 60));
    apply(store, &[Record::SessionOpened(session.clone())]).await;
    apply(store, &new).await;
    // The session ended too late to be purged.
    apply(store, &[session_closed(&session, 90)]).await;
    let expected = everything(store).await;
    apply(store, &old).await;
    let (first, second) = (work_session("old", 1, 20), work_session("new", 2, 60));
    for candidate in [&first, &second] {
        let gap = std::time::Duration::ZERO;
        store
            .resolve_work_session(candidate, gap.into())
            .await
            .unwrap();
    }
    let purged = store.purge(moment(60), 1_000).await.unwrap();
    assert!(purged.is_done);
    assert_eq!((purged.n_calls, purged.n_sessions), (1, 0));
    assert_ne!(purged.n_others, 0);
    assert_eq!(store.work_sessions(9).await.unwrap(), [second]);
    // The used tools of the session stay known; the purged call is in no other count.
    assert_eq!(everything(store).await, expected);
}

/// A purge deletes snapshots that were taken earlier, of every model. A model goes on with its first
/// version.
pub async fn a_purge_removes_old_snapshots(store: &impl UsageStore) {
    let taken = |model: &str, version, at| Snapshot {
        taken_at: moment(at),
        ..snapshot(model, version)
    };
    let kept = taken("b\u{0}'", 2, 60);
    for saved in [
        taken("a", 1, 20),
        taken("b\u{0}'", 1, 20),
        kept.clone(),
        taken("c", 1, 59),
    ] {
        store.save_snapshot(&saved).await.unwrap();
    }
    let purged = store.purge(moment(60), 2).await.unwrap();
    assert_eq!((purged.n_others, purged.is_done), (2, false));
    let purged = store.purge(moment(60), 2).await.unwrap();
    assert_eq!((purged.n_others, purged.is_done), (1, true));
    for model in ["a", "c"] {
        assert_eq!(store.newest_snapshot(model).await.unwrap(), None);
        store.save_snapshot(&taken(model, 1, 60)).await.unwrap();
    }
    let newest = store.newest_snapshot("b\u{0}'").await.unwrap();
    assert_eq!(newest, Some(kept));
}

/// A purge of nothing is done at once and removes nothing.
pub async fn a_purge_of_nothing_is_done_at_once(store: &impl UsageStore) {
    let nothing = PurgeReport {
        is_done: true,
        ..PurgeReport::default()
    };
    assert_eq!(store.purge(moment(60), 10).await.unwrap(), nothing);
    apply(store, &one_of_each()).await;
    let before = everything(store).await;
    assert_eq!(store.purge(moment(0), 10).await.unwrap(), nothing);
    assert_eq!(everything(store).await, before);
}

/// A purge begins with the oldest rows, deletes about as many as its limit, and reaches the end
/// step by step.
pub async fn a_purge_goes_from_the_oldest_on(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let opened: Vec<_> = [7, 3, 9, 1, 5, 8, 2, 6, 4, 10]
        .into_iter()
        .map(|n| Record::CallOpened(call(id, n)))
        .collect();
    apply(store, &opened).await;
    let mut n_left = 10;
    for _ in 0..10 {
        let purged = store.purge(moment(9), 3).await.unwrap();
        assert!((1..=3).contains(&purged.n_calls), "{purged:?}");
        n_left -= purged.n_calls;
        let sequences: Vec<_> = (calls(store).await.iter())
            .map(|call| call.invocation.sequence)
            .collect();
        assert_eq!(sequences, (11 - n_left..=10).collect::<Vec<_>>());
        if n_left == 2 {
            break;
        }
        assert!(!purged.is_done);
    }
    assert_eq!(n_left, 2);
    assert!(store.purge(moment(9), 3).await.unwrap().is_done);
    assert_eq!(calls(store).await.len(), 2);
}

/// The contributions of purged calls to the counts are deleted with them.
pub async fn what_purged_calls_contributed_goes_with_them(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    for (n, name) in [(1, "a"), (2, "b"), (3, "a"), (4, "b")] {
        let call = call_of(id, n, name);
        let end = end(&call, Outcome::Ok);
        apply(store, &[Record::CallOpened(call), Record::CallClosed(end)]).await;
    }
    purge_in_steps(store, moment(3), 1).await;
    let frequencies = store.frequencies(None, Timestamp::MIN).await.unwrap();
    let n_calls: Vec<_> = frequencies.iter().map(|row| row.n_calls).collect();
    assert_eq!(n_calls, [1, 1]);
    let transitions = store.transitions(None, None).await.unwrap();
    assert_eq!(transitions.len(), 1);
    assert_eq!(transitions[0].from.tool.as_str(), "a");
    assert_eq!(transitions[0].count, 1);
    let statistics = store.statistics(None, None, Timestamp::MIN).await.unwrap();
    for row in &statistics {
        assert_eq!((row.n_calls(), row.latency.n_calls()), (1, 1));
    }
    purge_in_steps(store, moment(9), 1).await;
    let frequencies = store.frequencies(None, Timestamp::MIN).await.unwrap();
    assert_eq!(frequencies, []);
    assert_eq!(store.transitions(None, None).await.unwrap(), []);
}

/// The used tools of a session are known as long as the session exists, even without its calls.
/// When more calls follow, the first uses stay the earlier ones.
pub async fn what_a_session_used_outlives_its_calls(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let records = [
        Record::SessionOpened(session.clone()),
        Record::CallOpened(call_of(session.id, 2, "a")),
        Record::CallOpened(call_of(session.id, 5, "b")),
        session_closed(&session, 50),
    ];
    apply(store, &records).await;
    purge_in_steps(store, moment(40), 10).await;
    assert_eq!(calls(store).await, []);
    store.rebuild().await.unwrap();
    apply(store, &[Record::CallOpened(call_of(session.id, 45, "a"))]).await;
    let pairs = store.cooccurrences(None, None).await.unwrap();
    assert_eq!(pairs.len(), 1);
    assert_eq!((pairs[0].count, pairs[0].mean_distance), (1, 3.0));
    assert_eq!(store.sessions_using(None, None).await.unwrap().len(), 2);
    purge_in_steps(store, moment(51), 10).await;
    assert_eq!(store.cooccurrences(None, None).await.unwrap(), []);
    assert_eq!(store.sessions_using(None, None).await.unwrap(), []);
}

/// The used tools of a session without a recorded beginning are deleted with the last of its calls.
pub async fn what_an_unrecorded_session_used_goes_with_its_calls(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let opened = [(2, "a"), (5, "b")].map(|(n, name)| Record::CallOpened(call_of(id, n, name)));
    apply(store, &opened).await;
    purge_in_steps(store, moment(3), 1).await;
    assert_eq!(store.cooccurrences(None, None).await.unwrap().len(), 1);
    purge_in_steps(store, moment(6), 1).await;
    assert_eq!(store.cooccurrences(None, None).await.unwrap(), []);
    assert_eq!(store.sessions_using(None, None).await.unwrap(), []);
}

/// A purge deletes sessions that ended before the moment, or never ended and started before it,
/// unless one of their calls is left.
pub async fn sessions_go_when_they_are_over(store: &impl UsageStore) {
    let [over, ended_late, never_ended, busy, started_late] =
        [1, 2, 3, 4, 60].map(|n| session(run(1), n));
    let all = [&over, &ended_late, &never_ended, &busy, &started_late];
    apply(store, &all.map(|row| Record::SessionOpened(row.clone()))).await;
    let records = [
        session_closed(&over, 49),
        session_closed(&ended_late, 50),
        Record::CallOpened(call(busy.id, 50)),
        Record::CallOpened(call(over.id, 10)),
        session_closed(&busy, 20),
    ];
    apply(store, &records).await;
    purge_in_steps(store, moment(50), 2).await;
    let left: Vec<_> = (store.sessions(9).await.unwrap().iter())
        .map(|row| row.session.id)
        .collect();
    assert_eq!(left, [ended_late.id, busy.id, started_late.id]);
}

/// All rows of a session are deleted with it, also newer ones. Tools listed to it are gone when it
/// is recorded again.
pub async fn rows_of_a_session_are_deleted_with_it(store: &impl UsageStore) {
    let (gone, kept) = (session(run(1), 5), session(run(1), 60));
    for session in [&gone, &kept] {
        apply(store, &belongings(session)).await;
    }
    let rows = store.sessions(9).await.unwrap();
    assert_eq!(rows[0].tools_available, ["a", "b"]);
    purge_in_steps(store, moment(50), 3).await;
    let others = everything(store).await;
    assert!(!others.contains(&gone.id.to_string()), "{others}");
    assert!(others.contains(&kept.id.to_string()), "{others}");
    let rows = store.sessions(9).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].tools_available, ["a", "b"]);
    apply(store, &[Record::SessionOpened(gone)]).await;
    let rows = store.sessions(9).await.unwrap();
    assert_eq!(rows[0].tools_available, [""; 0]);
}

/// A call in flight is purged like any other.
pub async fn a_call_in_flight_goes_like_any_other(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let (open, new) = (call(id, 2), call(id, 60));
    let opened = [&open, &new].map(|call| Record::CallOpened(call.clone()));
    apply(store, &opened).await;
    purge_in_steps(store, moment(50), 10).await;
    apply(store, &[Record::CallClosed(end(&open, Outcome::Ok))]).await;
    let left: Vec<_> = (calls(store).await.iter())
        .map(|call| call.invocation.id)
        .collect();
    assert_eq!(left, [new.id]);
    let statistics = store.statistics(None, None, Timestamp::MIN).await.unwrap();
    assert_eq!(statistics[0].n_calls(), 1);
}

/// Tool definitions, memories of servers, overrides, audit entries, weights and assignments stay,
/// however old.
pub async fn rows_of_no_session_stay(store: &impl UsageStore) {
    let seen = Record::ToolsSeen {
        listing: page("one", &["a", "b"]),
        seen_at: moment(1),
    };
    apply(store, &[seen]).await;
    let row = exclusion(1, "echo", OverrideScope::Global);
    store.set_override(&row, &audit(1)).await.unwrap();
    let weights = weights("r", 1);
    store.add_weights(&weights, &audit(2)).await.unwrap();
    let assigned = assignment("colour", "alice", "green");
    store.assign(&assigned).await.unwrap();
    let remembered = [memory("up", "tools", 1)];
    store.remember_servers(&remembered).await.unwrap();
    purge_in_steps(store, moment(1_000), 10).await;
    assert_eq!(store.tool_definitions(None).await.unwrap().len(), 2);
    assert_eq!(store.overrides(moment(9)).await.unwrap(), [row]);
    assert_eq!(store.entries(9).await.unwrap(), [audit(1), audit(2)]);
    assert_eq!(store.used_weights("r").await.unwrap(), Some(weights));
    assert_eq!(store.assignments("colour").await.unwrap(), [assigned]);
    assert_eq!(recall(store, &["up"]).await, remembered);
}

/// Epochs of work sessions are purged if they began before the moment; epochs of all other scopes
/// stay.
pub async fn epochs_of_work_sessions_grow_old(store: &impl UsageStore) {
    let scopes = [
        "work:old", "work:", "work:new", "shared:a", "Work:a", "workshop", " work:a",
    ];
    for scope in scopes {
        let began_at = moment(if scope == "work:new" { 60 } else { 20 });
        let epoch = ListEpoch {
            began_at,
            ..list_epoch(scope, 1, &["a"])
        };
        store.begin_epoch(&epoch).await.unwrap();
    }
    let purged = store.purge(moment(60), 1).await.unwrap();
    assert_eq!((purged.n_others, purged.is_done), (1, false));
    purge_in_steps(store, moment(60), 1).await;
    for scope in scopes {
        let is_gone = ["work:old", "work:"].contains(&scope);
        let read = store.list_epoch(scope).await.unwrap();
        assert_eq!(read.is_none(), is_gone, "{scope}");
    }
    let again = list_epoch("work:old", 1, &["b"]);
    assert_eq!(store.begin_epoch(&again).await.unwrap(), again);
}

/// A set of tools stays as long as a list or an epoch refers to it, even if other rows that
/// referred to it are purged.
pub async fn sets_of_tools_stay_as_long_as_they_are_needed(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let [one, two, three] = ["one", "two", "three"].map(|name| ToolSet::new(vec![tool(name)]));
    let shown = |n, tools: &ToolSet, pool: &ToolSet| {
        let mut list = list_shown(id, n);
        list.tools = tools.clone();
        list.selection.as_mut().unwrap().pool = pool.clone();
        list
    };
    let begun = |scope: &str, began_at, tools: &ToolSet, known: &ToolSet| ListEpoch {
        tools: tools.clone(),
        known: known.clone(),
        began_at,
        ..list_epoch(scope, 1, &[])
    };
    // Each set is used by a remaining row: as pool, as selection or as known tools.
    let kept = [shown(60, &two, &one), shown(61, &one, &two)];
    let epoch = begun("work:kept", moment(60), &two, &three);
    let old = [
        shown(10, &one, &three),
        shown(11, &three, &one),
        shown(12, &two, &two),
    ];
    for list in kept.iter().chain(&old) {
        apply(store, &[Record::ListShown(list.clone())]).await;
    }
    store.begin_epoch(&epoch).await.unwrap();
    let going = begun("work:old", moment(9), &three, &one);
    store.begin_epoch(&going).await.unwrap();
    purge_in_steps(store, moment(60), 1).await;
    assert_eq!(store.lists_shown(id, 9).await.unwrap(), kept);
    assert_eq!(store.list_epoch("work:kept").await.unwrap(), Some(epoch));
    assert_eq!(store.check().await.unwrap(), []);
}

/// The integrity check of a sound store finds nothing and changes nothing.
pub async fn a_sound_store_has_no_findings(store: &impl UsageStore) {
    assert_eq!(store.check().await.unwrap(), []);
    apply(store, &one_of_each()).await;
    let before = (everything(store).await, counts(store).await);
    assert_eq!(store.check().await.unwrap(), []);
    assert_eq!((everything(store).await, counts(store).await), before);
}

/// A task has one holder at a time; other tasks are independent.
pub async fn a_task_has_one_holder_at_a_time(store: &impl UsageStore) {
    let held = store.try_begin(MaintenanceTask::Retention).await.unwrap();
    assert!(held.is_some());
    let second = store.try_begin(MaintenanceTask::Retention).await.unwrap();
    assert!(second.is_none());
    for other in [MaintenanceTask::Learning, MaintenanceTask::WeightTuning] {
        let other = store.try_begin(other).await.unwrap();
        assert!(other.is_some());
        drop(other);
    }
    let second = store.try_begin(MaintenanceTask::Retention).await.unwrap();
    assert!(second.is_none());
}

/// A task can be locked again when its guard is dropped.
pub async fn a_task_is_free_when_its_guard_is_dropped(store: &impl UsageStore) {
    for _ in 0..3 {
        let mut held = None;
        // A database server may take a moment to release the lock.
        for _ in 0..1_000 {
            held = store.try_begin(MaintenanceTask::Retention).await.unwrap();
            if held.is_some() {
                break;
            }
        }
        assert!(held.is_some());
    }
}

/// Returns rows of each kind that is purged by age, `n` milliseconds into the scene.
fn rows_at(session: SessionId, n: u8) -> Vec<Record> {
    vec![
        Record::CallOpened(call(session, n)),
        Record::Exchanged(exchange(session, n)),
        Record::ListShown(list_shown(session, n)),
        Record::Searched(search(session, n)),
        Record::ContextGiven(context(session, n)),
        Record::Recommended(recommendation(session, n)),
        Record::FeedbackGiven(feedback(session, n, "a")),
    ]
}

/// Returns a session with rows of each kind but calls, some of them newer than any purge of the
/// scene.
fn belongings(session: &Session) -> Vec<Record> {
    let is_new = session.started_at > moment(50);
    let n = if is_new { 201 } else { 200 };
    let mut records = vec![
        Record::SessionOpened(session.clone()),
        Record::ToolsSeen {
            listing: page("one", &["b", "a"]),
            seen_at: moment(2),
        },
        Record::ToolsListed {
            session: session.id,
            listing: "one".into(),
            listed_at: moment(100),
        },
    ];
    records.extend(rows_at(session.id, n).into_iter().skip(1));
    records
}
