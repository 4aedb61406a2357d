use super::*;
use crate::prediction::{ExpertSet, Method};

/// Returns an arm that says nothing but its share.
pub(in super::super) fn arm(name: &str, share: f64) -> ArmPlan {
    ArmPlan {
        name: name.into(),
        share,
        weights: None,
        fusion: None,
        policy: None,
        predictors: None,
    }
}

/// Returns a running experiment of which each arm has the default weights.
pub(in super::super) fn plan(name: &str, arms: Vec<ArmPlan>) -> ExperimentPlan {
    let with_weights = |arm: ArmPlan| ArmPlan {
        weights: Some(FactorWeights::default()),
        ..arm
    };
    ExperimentPlan {
        name: name.into(),
        is_running: true,
        unit: Unit::Principal,
        metric: Metric::ClickThrough,
        alpha: 0.05,
        window: Duration::from_hours(24),
        control: "control".into(),
        arms: arms.into_iter().map(with_weights).collect(),
    }
}

fn sound() -> ExperimentPlan {
    plan("e", vec![arm("control", 0.5), arm("a", 0.5)])
}

fn with_policy(name: &str) -> ExperimentPlan {
    let mut changed = plan(name, vec![arm("control", 0.5), arm("a", 0.5)]);
    for arm in &mut changed.arms {
        (arm.weights, arm.policy) = (None, Some(ListPolicyName::Epoch));
    }
    changed.metric = Metric::CallSuccess;
    changed
}

fn with_fusion(name: &str) -> ExperimentPlan {
    let mut changed = sound();
    changed.name = name.into();
    for arm in &mut changed.arms {
        (arm.weights, arm.fusion) = (None, Some(FusionRule::Score));
    }
    changed
}

fn with_predictors(name: &str) -> ExperimentPlan {
    let mut changed = with_policy(name);
    for arm in &mut changed.arms {
        let set = PredictorSet::new(Method::Mix, ExpertSet::ALL);
        (arm.policy, arm.predictors) = (None, Some(set));
    }
    changed.metric = Metric::Coverage;
    changed
}

fn refused(change: impl FnOnce(&mut ExperimentPlan)) -> String {
    let mut changed = sound();
    change(&mut changed);
    check_plans(&[changed]).unwrap_err().to_string()
}

#[test]
fn a_sound_experiment_passes() {
    assert_eq!(check_plans(&[sound()]), Ok(()));
    assert_eq!(check_plans(&[with_policy("p")]), Ok(()));
    assert_eq!(check_plans(&[with_predictors("n")]), Ok(()));
    assert_eq!(check_plans(&[]), Ok(()));
    // Work sessions have predictors of their own.
    let mut of_work = with_predictors("n");
    (of_work.unit, of_work.metric) = (Unit::WorkSession, Metric::CallSuccess);
    assert_eq!(check_plans(&[of_work]), Ok(()));
}

#[test]
fn what_cannot_be_is_refused_with_its_key() {
    let cases: [(String, &str); 14] = [
        (refused(|it| it.name = "a b".into()), "a b: a name must"),
        (refused(|it| it.name = "a__b".into()), "a__b: a name must"),
        (
            refused(|it| it.arms.truncate(1)),
            "e.arms: expected at least 2",
        ),
        (
            refused(|it| it.arms[1].name = "..".into()),
            "e.arms...: a name must",
        ),
        (
            refused(|it| it.arms[1].share = 0.0),
            "e.arms.a.share: expected a number",
        ),
        (
            refused(|it| it.arms[1].share = f64::NAN),
            "e.arms.a.share: expected a number",
        ),
        (
            refused(|it| it.arms[1].share = -0.1),
            "e.arms.a.share: expected a number",
        ),
        (
            refused(|it| it.arms[1].share = 0.6),
            "e.arms: the shares of the arms sum to 1.1",
        ),
        (
            refused(|it| it.control = "b".into()),
            "e.control: there is no arm \"b\"",
        ),
        (refused(|it| it.alpha = f64::NAN), "e.alpha: expected"),
        (refused(|it| it.alpha = 0.6), "e.alpha: expected"),
        (
            refused(|it| it.window = Duration::ZERO),
            "e.window: expected",
        ),
        (
            refused(|it| it.arms.iter_mut().for_each(|arm| arm.weights = None)),
            "e.arms: no arm has",
        ),
        (
            refused(|it| it.arms[0].policy = Some(ListPolicyName::All)),
            "e.metric: arms with a policy",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
    let mut of_sessions = with_policy("p");
    of_sessions.unit = Unit::WorkSession;
    let said = check_plans(&[of_sessions]).unwrap_err().to_string();
    assert!(said.starts_with("p.unit: "), "{said}");
    for metric in [Metric::ClickThrough, Metric::Success] {
        let of_recommendations = ExperimentPlan {
            metric,
            ..with_predictors("n")
        };
        let error = check_plans(&[of_recommendations]).unwrap_err();
        assert_eq!(
            (&*error.key, error.fault),
            ("n.metric", PlanFault::PredictorsMetric)
        );
    }
}

#[test]
fn two_that_run_may_not_decide_the_same() {
    let mut other = sound();
    other.name = "f".into();
    let error = check_plans(&[sound(), other.clone()]).unwrap_err();
    assert_eq!(error.key, "f.arms");
    let expected = PlanFault::Overlap {
        other: "e".into(),
        lever: Lever::Weights,
    };
    assert_eq!(error.fault, expected);
    // One that does not run decides nothing.
    other.is_running = false;
    assert_eq!(check_plans(&[sound(), other.clone()]), Ok(()));
    assert_eq!(check_plans(&[other, sound()]), Ok(()));
    let error = check_plans(&[sound(), with_fusion("f")]).unwrap_err();
    assert_eq!(error.fault, PlanFault::SameAnswers("e".into()));
    assert_eq!(check_plans(&[sound(), with_policy("p")]), Ok(()));
    let plans = [sound(), with_policy("p"), with_predictors("n")];
    assert_eq!(check_plans(&plans), Ok(()));
    let error = check_plans(&[with_predictors("n"), with_predictors("m")]).unwrap_err();
    let expected = PlanFault::Overlap {
        other: "n".into(),
        lever: Lever::Predictors,
    };
    assert_eq!((&*error.key, error.fault), ("m.arms", expected));
}
