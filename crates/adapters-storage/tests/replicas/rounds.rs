//! The actions of each process in each round.

use std::collections::BTreeMap;
use std::time::Duration;

use riglm_adapters_storage::Store;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::experiment::{Assignment, ExperimentArm};
use riglm_domain::id::{AuditId, OverrideId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{SelectionMode, ToolSet};
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::work_session::{WorkSession, WorkSessionKey};
use riglm_ports::analytics::{
    ChangeFeed as _, ExperimentRepository as _, ListEpochRepository as _, OverrideRepository as _,
    SnapshotRepository as _, StoreError, Topic, WeightRepository as _, WorkSessionRepository as _,
};
use riglm_ports::contract::scene::moment;

use crate::replica::{MARK, ORDER};
use crate::{ReplicaOrder, ReplicaReport};

/// The number of rounds. Each round has one version of everything.
pub(crate) const N_ROUNDS: u8 = 50;
pub(crate) const MODEL: &str = "model";
pub(crate) const RANKING: &str = "ranking";
pub(crate) const SCOPE: &str = "scope";
const IDLE_GAP: Duration = Duration::from_mins(1);

#[tokio::test]
#[ignore = "needs the test that starts it"]
async fn replica_process_runs_its_rounds() {
    let Ok(order) = std::fs::read_to_string(ORDER) else {
        return;
    };
    let ReplicaOrder { place, n } = serde_json::from_str(&order).unwrap();
    let store = place.open().await;
    let mut report = ReplicaReport::default();
    let mut seen = store.revisions().await.unwrap();
    for round in 1..=N_ROUNDS {
        wait_for_the_other();
        agree_in_round(&store, round, n, &mut report).await;
        write_in_round(&store, round, n, &mut report).await;
        let now = store.revisions().await.unwrap();
        // No client is removed and no experiment is stopped.
        let changed = Topic::ALL.iter().zip(seen.iter().zip(now));
        let stays = [Topic::Erasures, Topic::Experiments];
        let mut changed = changed.filter(|(topic, _)| !stays.contains(topic));
        assert!(changed.all(|(_, (before, now))| *before < now));
        seen = now;
    }
    wait_for_the_other();
    let revisions = store.revisions().await.unwrap();
    let names = Topic::ALL.iter().map(|topic| topic.as_str().to_owned());
    report.revisions = names.zip(revisions).collect();
    store.close().await;
    println!("{MARK}{}", serde_json::to_string(&report).unwrap());
}

/// Reports that this process is ready, and waits until both are.
#[expect(
    clippy::print_stdout,
    reason = "the process that started this one reads it"
)]
fn wait_for_the_other() {
    println!("{MARK}ready");
    let mut line = String::new();
    assert_eq!(std::io::stdin().read_line(&mut line).unwrap(), 1);
}

/// Makes decisions that have the same result in all processes.
async fn agree_in_round(store: &Store, round: u8, n: u8, report: &mut ReplicaReport) {
    let hasher = KeyedHasher::new(&[1; 32]);
    let at = moment(10 * i64::from(round) + i64::from(n));
    let candidate = WorkSession {
        id: WorkSessionId::new(at, [n; 10]),
        key: WorkSessionKey(hasher.hash_text(&format!("key {round}"))),
        principal: Principal::local(),
        client: hasher.hash_text("client"),
        started_at: at,
        last_active_at: at,
    };
    let resolved = store
        .resolve_work_session(&candidate, IDLE_GAP.into())
        .await;
    report.work_sessions.push(resolved.unwrap());

    let epoch = ListEpoch {
        scope: SCOPE.into(),
        epoch: round.into(),
        policy: format!("policy {n}"),
        tools: ToolSet::new(vec![ToolRef {
            upstream: UpstreamName::parse("up").unwrap(),
            tool: ToolName::from(format!("tool {n}").as_str()),
        }]),
        known: ToolSet::new(Vec::new()),
        mode: SelectionMode::Prediction,
        reason: None,
        size_choice: None,
        expected_coverage: None,
        search_first: n == 1,
        client: None,
        began_at: at,
    };
    let begun = store.begin_epoch(&epoch).await.unwrap();
    let revisions = store.revisions().await.unwrap();
    assert!(Topic::ListEpochs.revision(&revisions) >= begun.epoch);
    report.epochs.push(begun);

    let assignment = Assignment {
        arm: ExperimentArm {
            experiment: "experiment".into(),
            arm: format!("arm {n}"),
        },
        subject: format!("subject {round}"),
        assigned_at: at,
    };
    let assigned = store.assign(&assignment).await.unwrap();
    report.assignments.push(assigned);
}

/// Writes versions that only one process can write, and rows where the last write counts.
async fn write_in_round(store: &Store, round: u8, n: u8, report: &mut ReplicaReport) {
    let version = u64::from(round);
    let snapshot = Snapshot {
        model: MODEL.into(),
        version,
        format: 1,
        learned_to: None,
        taken_at: moment(0),
        bytes: vec![n],
    };
    match store.save_snapshot(&snapshot).await {
        Ok(()) => report.snapshots.push(version),
        Err(error) => {
            assert_conflict(&error, version);
            report.n_snapshot_conflicts += 1;
        }
    }
    // The revision changes together with the row, whoever wrote it.
    let revisions = store.revisions().await.unwrap();
    assert!(Topic::Snapshots.revision(&revisions) >= version);

    let weights = WeightVersion {
        ranking: RANKING.into(),
        version,
        weights: BTreeMap::from([("factor".into(), f64::from(n))]),
        reason: format!("of {n}"),
        created_at: moment(0),
    };
    match store.add_weights(&weights, &entry(round, n, 1)).await {
        Ok(()) => report.weights.push(version),
        Err(error) => {
            assert_conflict(&error, version);
            report.n_weight_conflicts += 1;
        }
    }
    let revisions = store.revisions().await.unwrap();
    assert!(Topic::Weights.revision(&revisions) >= version);

    let tool_override = ToolOverride {
        id: OverrideId::new(moment(round.into()), [n; 10]),
        tool: "tool".into(),
        action: OverrideAction::Pin,
        scope: OverrideScope::Global,
        expires_at: None,
        reason: None,
        created_by: Principal::local(),
        created_at: moment(0),
    };
    let audit = entry(round, n, 2);
    store.set_override(&tool_override, &audit).await.unwrap();
}

fn assert_conflict(error: &StoreError, version: u64) {
    let StoreError::Conflict {
        expected, found, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*expected, *found), (version - 1, version));
}

fn entry(round: u8, n: u8, number: u8) -> AuditEntry {
    let mut entropy = [number; 10];
    entropy[8..].copy_from_slice(&[round, n]);
    AuditEntry {
        id: AuditId::new(moment(0), entropy),
        at: moment(0),
        actor: Principal::local(),
        action: "test".into(),
        target: "target".into(),
        detail: None,
    }
}
