//! Clauses for concurrent writers.

use std::time::Duration;

use futures_util::future::{join, join_all};
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::OverrideScope;
use riglm_domain::usage::invocation::{Invocation, Outcome};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::counting::purge_in_steps;
use super::records::{everything, one_of_each};
use super::scene::{
    apply, assignment, audit, call, call_of, calls, end, exclusion, hash, list_epoch, moment, run,
    session, snapshot, weights, work_session,
};
use super::server_memories::{memory, recall};
use super::weights::conflict;
use crate::analytics::{ClientSelector, MaintenanceTask, ServerMemory, StoreError};
use crate::fake::MemoryStore;

const N_WRITERS: u8 = 8;

/// Records of concurrent writers are all applied, and counted as if one had applied them: calls of
/// one session by different writers, with calls that they all apply.
pub async fn records_of_several_writers_are_all_applied(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    let session = session(run(1), 1);
    let mut batches = vec![Vec::new(); N_WRITERS.into()];
    for n in 2..=201_u8 {
        let call = call_of(session.id, n, ["a", "b", "c"][usize::from(n % 3)]);
        let end = end(&call, Outcome::ALL[usize::from(n) % Outcome::ALL.len()]);
        let records = [Record::CallOpened(call), Record::CallClosed(end)];
        for (index, batch) in batches.iter_mut().enumerate() {
            if n % 10 == 0 || usize::from(n % N_WRITERS) == index {
                batch.extend_from_slice(&records);
            }
        }
    }
    let opened = [Record::SessionOpened(session)];
    let writers = batches.iter().map(|batch| async {
        apply(store, &opened).await;
        for records in batch.chunks(7) {
            apply(store, records).await;
        }
    });
    join_all(writers).await;
    apply(&scratch, &opened).await;
    apply(&scratch, &batches.concat()).await;
    assert_eq!(everything(store).await, everything(&scratch).await);
    assert_eq!(store.check().await.unwrap(), []);
}

/// The same records applied by several writers at once are stored once.
pub async fn the_same_records_applied_at_once_are_there_once(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    let records = one_of_each();
    apply(&scratch, &records).await;
    join_all((0..N_WRITERS).map(|_| apply(store, &records))).await;
    assert_eq!(everything(store).await, everything(&scratch).await);
}

/// Of several concurrent ends of a call one stays.
pub async fn one_of_several_ends_at_once_stays(store: &impl UsageStore) {
    let call = call(session(run(1), 1).id, 2);
    apply(store, &[Record::CallOpened(call.clone())]).await;
    let ends: Vec<[Record; 1]> = (Outcome::ALL.iter())
        .map(|outcome| [Record::CallClosed(end(&call, *outcome))])
        .collect();
    join_all(ends.iter().map(|end| apply(store, end))).await;
    let outcome = calls(store).await[0].end.as_ref().unwrap().outcome;
    assert_ne!(outcome, Outcome::Unknown);
    let statistics = store.statistics(None, None, Timestamp::MIN).await.unwrap();
    let outcomes: Vec<_> = statistics[0].outcomes.clone().into_iter().collect();
    assert_eq!(outcomes, [(outcome, 1)]);
    assert_eq!(statistics[0].n_open, 0);
}

/// Concurrent beginnings of the same epoch all return the same epoch.
pub async fn all_agree_on_an_epoch_begun_at_once(store: &impl UsageStore) {
    for epoch in 1..=3 {
        let names: Vec<_> = (0..N_WRITERS).map(|n| n.to_string()).collect();
        let begun: Vec<_> = (names.iter())
            .map(|name| list_epoch("scope", epoch, &[name]))
            .collect();
        let held = join_all(begun.iter().map(|epoch| store.begin_epoch(epoch))).await;
        let held: Vec<_> = held.into_iter().map(Result::unwrap).collect();
        let holding = store.list_epoch("scope").await.unwrap().unwrap();
        assert!(begun.contains(&holding), "{holding:?}");
        assert!(held.iter().all(|epoch| *epoch == holding), "{held:?}");
    }
}

/// Concurrent assignments of a subject all return the same arm.
pub async fn all_agree_on_an_assignment_at_once(store: &impl UsageStore) {
    for subject in ["alice", "bob"] {
        let proposed: Vec<_> = (0..N_WRITERS)
            .map(|n| assignment("colour", subject, &n.to_string()))
            .collect();
        let held = join_all(proposed.iter().map(|proposed| store.assign(proposed))).await;
        let held: Vec<_> = held.into_iter().map(Result::unwrap).collect();
        assert!(proposed.contains(&held[0]));
        assert!(held.iter().all(|row| *row == held[0]), "{held:?}");
        let rows = store.assignments("colour").await.unwrap();
        assert!(rows.contains(&held[0]));
    }
    assert_eq!(store.assignments("colour").await.unwrap().len(), 2);
}

/// Concurrent requests with one key all get the same work session.
pub async fn all_agree_on_a_work_session_at_once(store: &impl UsageStore) {
    for (millis, n_work_sessions) in [(0, 1), (50, 1), (1_000, 2)] {
        let candidates: Vec<_> = (1..=N_WRITERS)
            .map(|n| work_session("key", n, millis))
            .collect();
        let gap = Duration::from_millis(100);
        let resolving = candidates
            .iter()
            .map(|candidate| store.resolve_work_session(candidate, gap.into()));
        let resolved = join_all(resolving).await.into_iter();
        let resolved: Vec<_> = resolved.map(Result::unwrap).collect();
        assert!(
            resolved.iter().all(|row| *row == resolved[0]),
            "{resolved:?}"
        );
        assert_eq!(resolved[0].last_active_at, moment(millis));
        let all = store.work_sessions(9).await.unwrap();
        assert_eq!(all.len(), n_work_sessions);
    }
}

/// Of several writers that add the same version of weights, one succeeds and the others get a
/// conflict.
pub async fn one_adds_a_version_of_weights_at_once(store: &impl UsageStore) {
    for version in 1..=2 {
        let added: Vec<_> = (0..N_WRITERS)
            .map(|n| {
                let mut added = weights("r", version);
                added.reason = n.to_string();
                added
            })
            .collect();
        let adding = (added.iter().zip(10_u8..)).map(|(added, n)| async move {
            let entry = audit(n * u8::try_from(version).unwrap());
            store.add_weights(added, &entry).await
        });
        let winner = only_winner(join_all(adding).await, version);
        let used = store.used_weights("r").await.unwrap();
        assert_eq!(used.as_ref(), Some(&added[winner]));
    }
    assert_eq!(store.weight_versions("r", 99).await.unwrap().len(), 2);
    assert_eq!(store.entries(99).await.unwrap().len(), 2);
}

/// Of several writers that save the same version of a snapshot, one succeeds and the others get a
/// conflict.
pub async fn one_saves_a_version_of_a_snapshot_at_once(store: &impl UsageStore) {
    for version in 1..=3 {
        let saved: Vec<_> = (0..N_WRITERS)
            .map(|n| {
                let mut saved = snapshot("m", version);
                saved.bytes = vec![n; 1_000];
                saved
            })
            .collect();
        let saving = saved.iter().map(|saved| store.save_snapshot(saved));
        let winner = only_winner(join_all(saving).await, version);
        let newest = store.newest_snapshot("m").await.unwrap();
        assert_eq!(newest.as_ref(), Some(&saved[winner]));
    }
}

/// Of several concurrent overrides for the same tool and scope one is left, and each has its audit
/// entry.
pub async fn one_of_several_overrides_at_once_is_left(store: &impl UsageStore) {
    let rows: Vec<_> = (1..=N_WRITERS)
        .map(|n| exclusion(n, "echo", OverrideScope::Global))
        .collect();
    let setting = (rows.iter().zip(1_u8..))
        .map(|(row, n)| async move { store.set_override(row, &audit(n)).await.unwrap() });
    join_all(setting).await;
    let left = store.overrides(moment(9)).await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(rows.contains(&left[0]));
    let entries = store.entries(99).await.unwrap();
    assert_eq!(entries, (1..=N_WRITERS).map(audit).collect::<Vec<_>>());
    let n_changes = store.revisions().await.unwrap()[0];
    assert!(n_changes > 0);
}

/// Of several concurrent memories of one part one stays whole, and none is refused.
pub async fn one_of_several_memories_at_once_stays(store: &impl UsageStore) {
    let memories: Vec<_> = (1..=N_WRITERS)
        .map(|n| ServerMemory {
            content: n.to_string(),
            ..memory("up", "tools", n.into())
        })
        .collect();
    let remembering = (memories.iter()).map(|memory| async move {
        let memories = std::slice::from_ref(memory);
        store.remember_servers(memories).await.unwrap();
    });
    join_all(remembering).await;
    let left = recall(store, &["up"]).await;
    assert_eq!(left.len(), 1);
    assert!(memories.contains(&left[0]));
}

/// Of several processes that try to lock a task at once one succeeds.
pub async fn one_of_several_gets_a_task(store: &impl UsageStore) {
    let wanting = (0..N_WRITERS).map(|_| store.try_begin(MaintenanceTask::Learning));
    let held = join_all(wanting).await.into_iter().map(Result::unwrap);
    assert_eq!(held.flatten().count(), 1);
}

/// Records that are applied during a purge and the deletion of a client are all stored.
pub async fn records_applied_during_a_purge_are_all_stored(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    let gone = session(run(1), 1);
    let mut old = vec![Record::SessionOpened(gone.clone())];
    old.extend((2..=60).map(|n| Record::CallOpened(call(gone.id, n))));
    apply(store, &old).await;
    let mut kept = session(run(2), 100);
    kept.client = hash("kept");
    kept.client_info.name = "kept".into();
    let new: Vec<_> = (101..=200)
        .flat_map(|n| {
            let call = Invocation {
                sequence: n.into(),
                ..call_of(kept.id, n, ["a", "b"][usize::from(n % 2)])
            };
            let end = end(&call, Outcome::Ok);
            [Record::CallOpened(call), Record::CallClosed(end)]
        })
        .chain([Record::SessionOpened(kept.clone())])
        .collect();
    let applying = async {
        for records in new.chunks(5) {
            apply(store, records).await;
        }
    };
    let removing = async {
        purge_in_steps(store, moment(30), 4).await;
        let clients = ClientSelector(gone.client.to_string());
        store.delete(&clients).await.unwrap();
    };
    join(applying, removing).await;
    apply(&scratch, &new).await;
    assert_eq!(everything(store).await, everything(&scratch).await);
    assert_eq!(store.check().await.unwrap(), []);
}

/// Returns the index of the only writer of a version that succeeded, and asserts that the others
/// got a conflict.
fn only_winner(outcomes: Vec<Result<(), StoreError>>, version: u64) -> usize {
    let mut winners = Vec::new();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(()) => winners.push(index),
            Err(error) => assert_eq!(conflict(&error), (version - 1, version)),
        }
    }
    assert_eq!(winners.len(), 1);
    winners[0]
}
