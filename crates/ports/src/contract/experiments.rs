//! The clauses of [`ExperimentRepository`](crate::analytics::ExperimentRepository) about stops and outcomes.

use std::time::Duration;

use riglm_domain::experiment::{
    AssignmentUnit, CallMeasure, ExperimentArm, ExperimentStop, UnitTrial,
};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_domain::usage::invocation::{Invocation, Outcome, ToolSource};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{
    apply, assignment, audit, call, end, experiment_stop, feedback, moment, odd_texts,
    recommendation, run, session,
};

const EXPERIMENT: &str = "colour \u{0}";

/// A stop is read with every value that it was made with, by the name of its experiment.
pub async fn a_stop_is_read_as_it_was_made(store: &impl UsageStore) {
    let mut all: Vec<ExperimentStop> = (odd_texts().iter())
        .map(|text| ExperimentStop {
            stopped_by: Principal::from_name(text),
            reason: (text.len() % 2 == 0).then(|| text.clone()),
            ..experiment_stop(text, 4)
        })
        .collect();
    for (n, stop) in (1..).zip(&all) {
        assert!(store.stop_experiment(stop, &audit(n)).await.unwrap());
    }
    all.sort_by(|one, other| one.experiment.cmp(&other.experiment));
    assert_eq!(store.experiment_stops().await.unwrap(), all);
}

/// The first stop of an experiment stays.
pub async fn an_experiment_is_stopped_once(store: &impl UsageStore) {
    let first = experiment_stop("e", 1);
    assert!(store.stop_experiment(&first, &audit(1)).await.unwrap());
    let second = experiment_stop("e", 2);
    assert!(!store.stop_experiment(&second, &audit(2)).await.unwrap());
    assert_eq!(store.experiment_stops().await.unwrap(), [first]);
}

/// A stop writes an entry to the audit trail; a repeated stop writes none.
pub async fn every_stop_has_its_entry(store: &impl UsageStore) {
    let stop = experiment_stop("e", 1);
    store.stop_experiment(&stop, &audit(1)).await.unwrap();
    store.stop_experiment(&stop, &audit(2)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(1)]);
}

fn recommendation_in_arm(n: u8, experiment: &str, arm: &str) -> Recommendation {
    Recommendation {
        experiment: Some(ExperimentArm {
            experiment: experiment.into(),
            arm: arm.into(),
        }),
        ..recommendation(session(run(1), 1).id, n)
    }
}

/// Only recommendations of the experiment have outcomes, with their principals and sessions.
pub async fn outcomes_are_those_of_the_experiment(store: &impl UsageStore) {
    let one = recommendation_in_arm(2, EXPERIMENT, "gr\u{fc}n");
    let mut bare = recommendation_in_arm(3, EXPERIMENT, "b");
    (bare.session, bare.work_session) = (None, None);
    let mut outside = recommendation_in_arm(5, EXPERIMENT, "b");
    outside.experiment = None;
    let all = [
        one.clone(),
        bare.clone(),
        recommendation_in_arm(4, "colour", "b"),
        outside,
    ];
    apply(store, &all.map(Record::Recommended)).await;
    let outcomes = store.recommendation_outcomes(EXPERIMENT, 9).await.unwrap();
    assert_eq!(outcomes.len(), 2);
    for (outcome, row) in outcomes.iter().zip([one, bare]) {
        assert_eq!(
            Some(&outcome.arm),
            row.experiment.as_ref().map(|arm| &arm.arm)
        );
        assert_eq!(outcome.principal, row.principal);
        assert_eq!(outcome.session, row.session);
        assert_eq!(outcome.work_session, row.work_session);
        assert_eq!(outcome.shown_at, row.shown_at);
        assert_eq!((outcome.selected_at, outcome.succeeded_at), (None, None));
    }
}

/// A recommendation is selected at the first feedback that says so, and succeeds with the first
/// successful end of a call.
pub async fn a_selection_and_its_call_are_an_outcome(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let [selected, succeeded, other] = [2, 3, 4].map(|n| recommendation_in_arm(n, EXPERIMENT, "a"));
    let (failing, well) = (call(id, 10), call(id, 11));
    let said = |n: u8, of: &Recommendation, verdict: Verdict, call: Option<&Invocation>| {
        Record::FeedbackGiven(Feedback {
            verdict,
            recommendation: Some(of.id),
            invocation: call.map(|call| call.id),
            ..feedback(id, n, "echo")
        })
    };
    let records = [
        Record::CallOpened(failing.clone()),
        Record::CallClosed(end(&failing, Outcome::Error)),
        Record::CallOpened(well.clone()),
        Record::CallClosed(end(&well, Outcome::Ok)),
        said(30, &selected, Verdict::Selected, Some(&failing)),
        said(20, &selected, Verdict::Selected, None),
        said(25, &succeeded, Verdict::Selected, Some(&well)),
        // Only the verdict "selected" counts as a selection, whichever call the feedback names.
        said(26, &other, Verdict::Helpful, Some(&well)),
        Record::Recommended(selected),
        Record::Recommended(succeeded),
        Record::Recommended(other),
    ];
    apply(store, &records).await;
    let outcomes = store.recommendation_outcomes(EXPERIMENT, 9).await.unwrap();
    let ends: Vec<_> = (outcomes.iter())
        .map(|outcome| (outcome.selected_at, outcome.succeeded_at))
        .collect();
    let ended = moment(11) + Duration::from_micros(567 + 1_234); // The wait and the duration.
    let expected = [
        (Some(moment(20)), None),
        (Some(moment(25)), Some(ended)),
        (None, None),
    ];
    assert_eq!(ends, expected);
}

/// If there are more outcomes than the limit, the oldest are returned, oldest first.
pub async fn the_oldest_outcomes_come_first(store: &impl UsageStore) {
    let rows = [4, 2, 3].map(|n| Record::Recommended(recommendation_in_arm(n, EXPERIMENT, "a")));
    apply(store, &rows).await;
    let outcomes = store.recommendation_outcomes(EXPERIMENT, 2).await.unwrap();
    let moments: Vec<_> = outcomes.iter().map(|outcome| outcome.shown_at).collect();
    assert_eq!(moments, [moment(2), moment(3)]);
}

/// The calls of a principal within the window of its assignment are trials.
pub async fn calls_of_assigned_principals_are_trials(store: &impl UsageStore) {
    let odd = "bob \u{0}\u{241b}";
    let id = session(run(1), 1).id;
    let by_bob = |n: u8| Invocation {
        principal: Principal::from_name(odd),
        ..call(id, n)
    };
    let calls = [
        by_bob(2),
        by_bob(3),
        by_bob(4),
        by_bob(12),
        by_bob(13),
        call(id, 5),
    ];
    let mut records: Vec<Record> = calls.iter().cloned().map(Record::CallOpened).collect();
    for (at, outcome) in [(1, Outcome::Ok), (2, Outcome::Error), (5, Outcome::Ok)] {
        records.push(Record::CallClosed(end(&calls[at], outcome)));
    }
    apply(store, &records).await;
    // Assigned at the third millisecond.
    store
        .assign(&assignment(EXPERIMENT, odd, "red"))
        .await
        .unwrap();
    store
        .assign(&assignment("colour", "alice", "red"))
        .await
        .unwrap();
    let window = Duration::from_millis(10);
    let read = async |experiment: &str, limit: u32| {
        let (unit, measure) = (AssignmentUnit::Principal, CallMeasure::Success);
        let trials = store.call_trials(experiment, unit, measure, window, limit);
        trials.await.unwrap()
    };
    let trial = |n: u8, succeeded_at| UnitTrial {
        arm: "red".into(),
        unit: odd.into(),
        at: moment(n.into()),
        succeeded_at,
    };
    let ended = moment(3) + Duration::from_micros(567 + 1_234); // The wait and the duration.
    let expected = [trial(3, Some(ended)), trial(4, None), trial(12, None)];
    assert_eq!(read(EXPERIMENT, 9).await, expected);
    assert_eq!(read(EXPERIMENT, 2).await, expected[..2]);
    assert_eq!(read("nothing", 9).await, []);
}

/// The calls of a work session within the window of its assignment are trials.
pub async fn calls_of_assigned_work_sessions_are_trials(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let (one, other) = (call(id, 7), call(id, 8));
    let mut bare = call(id, 9);
    bare.work_session = None;
    let subject = one.work_session.unwrap().to_string();
    let records = [one, other, bare].map(Record::CallOpened);
    apply(store, &records).await;
    let assigned = assignment(EXPERIMENT, &subject, "red");
    store.assign(&assigned).await.unwrap();
    // A subject that is no work session.
    store
        .assign(&assignment(EXPERIMENT, "alice", "red"))
        .await
        .unwrap();
    let window = Duration::from_secs(1);
    let (unit, measure) = (AssignmentUnit::WorkSession, CallMeasure::Success);
    let trials = store.call_trials(EXPERIMENT, unit, measure, window, 9);
    let expected = UnitTrial {
        arm: "red".into(),
        unit: subject,
        at: moment(7),
        succeeded_at: None,
    };
    assert_eq!(trials.await.unwrap(), [expected]);
}

/// The first call of each tool in a session is a trial of coverage, which succeeds if the list had
/// the tool. Calls without a work session are grouped by session.
pub async fn first_calls_that_lists_had_are_covered(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let other = session(run(1), 2).id;
    let at_work = call(id, 4).work_session;
    let made = |n: u8, tool: &str, source: ToolSource| Invocation {
        tool: ToolName::from(tool),
        source,
        work_session: at_work,
        ..call(id, n)
    };
    let elsewhere = |n: u8, tool: &str| Invocation {
        work_session: None,
        session: other,
        ..made(n, tool, ToolSource::Shown)
    };
    let mut namesake = made(9, "b", ToolSource::Found);
    namesake.upstream = UpstreamName::parse("up-2").unwrap();
    let calls = [
        // Before the assignment, which is at the third millisecond.
        made(2, "a", ToolSource::Shown),
        made(4, "a", ToolSource::Hidden),
        made(5, "a", ToolSource::Shown),
        made(6, "b", ToolSource::Shown),
        elsewhere(7, "a"),
        elsewhere(8, "a"),
        namesake,
        // After the window.
        made(13, "c", ToolSource::Shown),
    ];
    apply(store, &calls.map(Record::CallOpened)).await;
    store
        .assign(&assignment(EXPERIMENT, "alice", "red"))
        .await
        .unwrap();
    let work = at_work.unwrap().to_string();
    store
        .assign(&assignment(EXPERIMENT, &work, "blue"))
        .await
        .unwrap();
    let window = Duration::from_millis(10);
    let read = async |unit: AssignmentUnit, limit: u32| {
        let trials = store.call_trials(EXPERIMENT, unit, CallMeasure::Coverage, window, limit);
        let trials = trials.await.unwrap().into_iter();
        trials
            .map(|trial| (trial.arm, trial.unit, trial.at, trial.succeeded_at))
            .collect::<Vec<_>>()
    };
    let trial = |arm: &str, unit: &str, n: u8, covered: bool| {
        let at = moment(n.into());
        (arm.to_owned(), unit.to_owned(), at, covered.then_some(at))
    };
    let of_alice = [
        trial("red", "alice", 4, false),
        trial("red", "alice", 6, true),
        trial("red", "alice", 7, true),
        trial("red", "alice", 9, false),
    ];
    assert_eq!(read(AssignmentUnit::Principal, 9).await, of_alice);
    assert_eq!(read(AssignmentUnit::Principal, 2).await, of_alice[..2]);
    let of_work = [
        trial("blue", &work, 4, false),
        trial("blue", &work, 6, true),
        trial("blue", &work, 9, false),
    ];
    assert_eq!(read(AssignmentUnit::WorkSession, 9).await, of_work);
}
