use std::time::Duration;

use jiff::SignedDuration;
use riglm_domain::experiment::{
    ArmPlan, Assignment, AssignmentUnit, ComparisonVerdict, ExperimentArm, ExperimentMetric,
    FusionRule,
};
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{AuditTrail as _, RecordSink as _};
use riglm_ports::contract::scene::{feedback, moment, recommendation, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore};

use super::*;

fn plan(metric: ExperimentMetric) -> ExperimentPlan {
    let arm = |name: &str| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion: Some(FusionRule::Score),
        policy: None,
        predictors: None,
    };
    ExperimentPlan {
        name: "e".into(),
        is_running: true,
        unit: AssignmentUnit::Principal,
        metric,
        alpha: 0.05,
        window: Duration::from_mins(1),
        control: "control".into(),
        arms: vec![arm("control"), arm("a")],
    }
}

fn desk(store: &Arc<MemoryStore>, metric: ExperimentMetric, now: Timestamp) -> ExperimentService {
    let clock = Arc::new(ManualClock::at(now));
    ExperimentService::new(vec![plan(metric)], store.clone(), clock)
}

/// Records one recommendation for each of `n` principals of an arm. Every `each`th principal
/// selects a tool.
async fn record_recommendations(store: &MemoryStore, arm: &str, n: u8, each: u8) {
    let id = session(run(1), 1).id;
    for of in 0..n {
        let principal = Principal::from_name(&format!("{arm} {of}"));
        let shown = Recommendation {
            experiment: Some(ExperimentArm {
                experiment: "e".into(),
                arm: arm.into(),
            }),
            principal: principal.clone(),
            id: riglm_domain::id::RecommendationId::new(
                moment(of.into()),
                [arm.len().try_into().unwrap(); 10],
            ),
            ..recommendation(id, of)
        };
        let selected = Feedback {
            id: riglm_domain::id::FeedbackId::new(
                moment(of.into()),
                [arm.len().try_into().unwrap(); 10],
            ),
            verdict: Verdict::Selected,
            recommendation: Some(shown.id),
            principal,
            ..feedback(id, of, "echo")
        };
        let mut records = vec![Record::Recommended(shown)];
        if of % each == 0 {
            records.push(Record::FeedbackGiven(selected));
        }
        store.apply(&records).await.unwrap();
    }
}

fn later(seconds: i64) -> Timestamp {
    moment(0) + SignedDuration::from_secs(seconds)
}

#[tokio::test]
async fn a_report_has_the_outcomes_of_each_arm() {
    let store = Arc::new(MemoryStore::default());
    record_recommendations(&store, "control", 200, 10).await;
    record_recommendations(&store, "a", 200, 1).await;
    let assigned = Assignment {
        arm: ExperimentArm {
            experiment: "e".into(),
            arm: "a".into(),
        },
        subject: "a 1".into(),
        assigned_at: moment(1),
    };
    store.assign(&assigned).await.unwrap();
    let early = desk(&store, ExperimentMetric::ClickThrough, later(30));
    let report = early.report("e").await.unwrap().unwrap();
    assert_eq!(report.arms[1].settled.n_open, 200);
    let nothing = report.arms[1].comparison.unwrap();
    assert_eq!(
        (nothing.n_pairs, nothing.verdict),
        (0, ComparisonVerdict::Undecided)
    );
    let late = desk(&store, ExperimentMetric::ClickThrough, later(90));
    let report = late.report("e").await.unwrap().unwrap();
    assert_eq!(
        (report.state, report.is_complete),
        (ExperimentState::Running, true)
    );
    let [control, a] = &report.arms[..] else {
        panic!("{report:?}");
    };
    assert_eq!(control.comparison, None);
    assert!(
        (control.settled.mean().unwrap() - 0.1).abs() < 1e-9,
        "{control:?}"
    );
    assert_eq!(
        (a.n_assigned, a.settled.n_trials, a.settled.n_succeeded),
        (1, 200, 200)
    );
    let compared = a.comparison.unwrap();
    assert_eq!(
        (compared.n_pairs, compared.verdict),
        (200, ComparisonVerdict::Better)
    );
    // No calls are recorded for the selections.
    let success = desk(&store, ExperimentMetric::Success, later(90));
    let report = success.report("e").await.unwrap().unwrap();
    assert_eq!(report.arms[1].settled.n_succeeded, 0);
    assert_eq!(
        report.arms[1].comparison.unwrap().verdict,
        ComparisonVerdict::Undecided
    );
}

#[tokio::test]
async fn trials_after_the_stop_do_not_count() {
    let store = Arc::new(MemoryStore::default());
    record_recommendations(&store, "a", 100, 1).await;
    // Fifty milliseconds after the start of the scene.
    let desk_then = desk(&store, ExperimentMetric::ClickThrough, moment(50));
    let operator = Principal::from_name("op");
    let stop = desk_then.stop("e", Some("enough".into()), &operator).await;
    assert_eq!(stop.unwrap().unwrap().stopped_at, moment(50));
    let desk = desk(&store, ExperimentMetric::ClickThrough, later(90));
    let report = desk.report("e").await.unwrap().unwrap();
    assert_eq!(report.state, ExperimentState::Stopped);
    assert_eq!(
        (
            report.arms[1].settled.n_trials,
            report.arms[1].settled.n_open
        ),
        (51, 51)
    );
}

#[tokio::test]
async fn an_experiment_is_stopped_once_with_an_audit_entry() {
    let store = Arc::new(MemoryStore::default());
    let operator = Principal::from_name("op");
    let first = desk(&store, ExperimentMetric::ClickThrough, moment(1));
    let stop = first
        .stop("e", Some("worse".into()), &operator)
        .await
        .unwrap();
    let second = desk(&store, ExperimentMetric::ClickThrough, moment(2));
    assert_eq!(second.stop("e", None, &operator).await.unwrap(), stop);
    assert_eq!(second.stop("f", None, &operator).await.unwrap(), None);
    let all = second.all().await.unwrap();
    assert_eq!((all[0].1, &all[0].2), (ExperimentState::Stopped, &stop));
    let trail = store.entries(9).await.unwrap();
    assert_eq!(trail.len(), 1);
    assert_eq!(
        (&*trail[0].action, &*trail[0].target),
        ("experiment.stop", "e")
    );
    assert!(second.report("f").await.unwrap().is_none());
}

#[tokio::test]
async fn units_with_windows_beyond_the_counted_trials_stay_open() {
    let store = Arc::new(MemoryStore::default());
    // One per millisecond. Only the first 100 are counted.
    record_recommendations(&store, "control", 200, 1).await;
    let mut desk = desk(&store, ExperimentMetric::ClickThrough, later(1));
    desk.plans[0].window = Duration::from_millis(50);
    let report = desk.report("e").await.unwrap().unwrap();
    assert!(report.is_complete);
    assert_eq!(report.arms[0].settled.values.len(), 200);
    desk.max_trials = 200;
    assert!(desk.report("e").await.unwrap().unwrap().is_complete);
    desk.max_trials = 100;
    let report = desk.report("e").await.unwrap().unwrap();
    let control = &report.arms[0].settled;
    assert!(!report.is_complete);
    // The data end before the 101st, 100 ms after the first.
    assert_eq!((control.values.len(), control.n_open), (50, 50));
}
