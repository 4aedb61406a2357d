//! Test data: decisions, learned state and shared state.

use std::collections::BTreeMap;

use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::experiment::{Assignment, ExperimentArm, ExperimentStop};
use riglm_domain::id::{AuditId, InvocationId, OverrideId, WorkSessionId};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::selection::{ExpectedCoverage, ExplorationShare, ListSize, SizeChoice, SizeDraw};
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::work_session::{WorkSession, WorkSessionKey};

use super::{hash, moment, tool};

/// Returns the `n`th entry of the audit trail.
pub fn audit(n: u8) -> AuditEntry {
    AuditEntry {
        id: AuditId::new(moment(n.into()), [n; 10]),
        at: moment(n.into()),
        actor: Principal::from_name("op \u{0}'"),
        action: "override.create".into(),
        target: "tool \u{241b}0".into(),
        detail: Some(r#"{"a":"\u0000"}"#.into()),
    }
}

/// Returns the `n`th override, which bans a tool without an end.
pub fn exclusion(n: u8, tool: &str, scope: OverrideScope) -> ToolOverride {
    ToolOverride {
        id: OverrideId::new(moment(n.into()), [n; 10]),
        tool: tool.into(),
        action: OverrideAction::Exclude,
        scope,
        expires_at: None,
        reason: Some("it's \u{0} noisy".into()),
        created_by: Principal::from_name("op"),
        created_at: moment(n.into()),
    }
}

/// Returns a version of the weights of a ranking.
pub fn weights(ranking: &str, version: u64) -> WeightVersion {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let weight = version as f64 / 3.0;
    WeightVersion {
        ranking: ranking.into(),
        version,
        weights: BTreeMap::from([
            ("b \u{0}'".into(), weight),
            ("a".into(), 0.1 + 0.2),
            (String::new(), -5e-324),
            ("z".into(), f64::MAX),
        ]),
        reason: "because \u{241b}0".into(),
        created_at: moment(9),
    }
}

/// Returns a snapshot of a model.
pub fn snapshot(model: &str, version: u64) -> Snapshot {
    Snapshot {
        model: model.into(),
        version,
        format: u32::MAX,
        learned_to: Some(InvocationId::new(moment(5), [5; 10])),
        taken_at: moment(6),
        bytes: (0..=255).chain([version.to_le_bytes()[0]]).collect(),
    }
}

/// Returns an assignment of a subject to an arm.
pub fn assignment(experiment: &str, subject: &str, arm: &str) -> Assignment {
    Assignment {
        arm: ExperimentArm {
            experiment: experiment.into(),
            arm: arm.into(),
        },
        subject: subject.into(),
        assigned_at: moment(3),
    }
}

/// Returns the stop of an experiment `n` milliseconds into the scene.
pub fn experiment_stop(experiment: &str, n: u8) -> ExperimentStop {
    ExperimentStop {
        experiment: experiment.into(),
        stopped_at: moment(n.into()),
        stopped_by: Principal::from_name("op \u{0}'"),
        reason: Some("it's \u{241b}0 worse".into()),
    }
}

/// Returns a size choice with numbers that a faulty store would round.
pub fn size_choice() -> SizeChoice {
    let candidates = [5, 10].map(ListSize::Tools);
    // A third of 0.1 + 0.2, which no decimal of a few digits equals.
    let share = ExplorationShare::try_from(0.1 + 0.2).unwrap();
    let draw = SizeDraw {
        coin: u32::MAX,
        place: 1 << 31,
    };
    SizeChoice::new(ListSize::All, candidates.into(), share, draw)
}

/// Returns an expected coverage that a faulty store would round.
pub fn expected_coverage() -> ExpectedCoverage {
    ExpectedCoverage::try_from(0.934_561).unwrap()
}

/// Returns the epoch of a scope with these tools in its list.
pub fn list_epoch(scope: &str, epoch: u64, tools: &[&str]) -> ListEpoch {
    ListEpoch {
        scope: scope.into(),
        epoch,
        policy: "sticky 'x' \u{0}".into(),
        tools: ToolSet::new(tools.iter().map(|name| tool(name)).collect()),
        known: ToolSet::new(["z \u{0}'", "a"].map(tool).into()),
        mode: SelectionMode::Frequency,
        reason: Some(SelectionReason::PredictorFailed),
        size_choice: Some(size_choice()),
        expected_coverage: Some(expected_coverage()),
        search_first: true,
        client: None,
        began_at: moment(7),
    }
}

/// Returns the work session that begins with a request `millis` milliseconds into the scene. `n`
/// distinguishes it from others with the same key.
pub fn work_session(key: &str, n: u8, millis: i64) -> WorkSession {
    WorkSession {
        id: WorkSessionId::new(moment(millis), [n; 10]),
        key: WorkSessionKey(hash(key)),
        principal: Principal::from_name("alice \u{0}'"),
        client: hash("alice/client/1.0"),
        started_at: moment(millis),
        last_active_at: moment(millis),
    }
}
