use super::*;
use crate::prediction::{ExpertSet, PredictionMethod};

/// Returns an arm without settings except its share.
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

/// Returns a running experiment with the default weights in each arm.
pub(in super::super) fn plan(name: &str, arms: Vec<ArmPlan>) -> ExperimentPlan {
    let with_weights = |arm: ArmPlan| ArmPlan {
        weights: Some(FactorWeights::default()),
        ..arm
    };
    ExperimentPlan {
        name: name.into(),
        is_running: true,
        unit: AssignmentUnit::Principal,
        metric: ExperimentMetric::ClickThrough,
        alpha: 0.05,
        window: Duration::from_hours(24),
        control: "control".into(),
        arms: arms.into_iter().map(with_weights).collect(),
    }
}

fn valid_plan() -> ExperimentPlan {
    plan("e", vec![arm("control", 0.5), arm("a", 0.5)])
}

fn with_policy(name: &str) -> ExperimentPlan {
    let mut changed = plan(name, vec![arm("control", 0.5), arm("a", 0.5)]);
    for arm in &mut changed.arms {
        (arm.weights, arm.policy) = (None, Some(ListPolicyName::Epoch));
    }
    changed.metric = ExperimentMetric::CallSuccess;
    changed
}

fn with_fusion(name: &str) -> ExperimentPlan {
    let mut changed = valid_plan();
    changed.name = name.into();
    for arm in &mut changed.arms {
        (arm.weights, arm.fusion) = (None, Some(FusionRule::Score));
    }
    changed
}

fn with_predictors(name: &str) -> ExperimentPlan {
    let mut changed = with_policy(name);
    for arm in &mut changed.arms {
        let set = PredictorSet::new(PredictionMethod::Mix, ExpertSet::ALL);
        (arm.policy, arm.predictors) = (None, Some(set));
    }
    changed.metric = ExperimentMetric::Coverage;
    changed
}

fn refusal_of(change: impl FnOnce(&mut ExperimentPlan)) -> String {
    let mut changed = valid_plan();
    change(&mut changed);
    check_plans(&[changed]).unwrap_err().to_string()
}

#[test]
fn a_valid_plan_is_accepted() {
    assert_eq!(check_plans(&[valid_plan()]), Ok(()));
    assert_eq!(check_plans(&[with_policy("p")]), Ok(()));
    assert_eq!(check_plans(&[with_predictors("n")]), Ok(()));
    assert_eq!(check_plans(&[]), Ok(()));
    // Work sessions can have their own predictors.
    let mut of_work = with_predictors("n");
    (of_work.unit, of_work.metric) = (AssignmentUnit::WorkSession, ExperimentMetric::CallSuccess);
    assert_eq!(check_plans(&[of_work]), Ok(()));
}

#[test]
fn an_invalid_plan_is_refused_with_its_key() {
    let cases: [(String, &str); 14] = [
        (refusal_of(|it| it.name = "a b".into()), "a b: a name must"),
        (
            refusal_of(|it| it.name = "a__b".into()),
            "a__b: a name must",
        ),
        (
            refusal_of(|it| it.arms.truncate(1)),
            "e.arms: expected at least 2",
        ),
        (
            refusal_of(|it| it.arms[1].name = "..".into()),
            "e.arms...: a name must",
        ),
        (
            refusal_of(|it| it.arms[1].share = 0.0),
            "e.arms.a.share: expected a number",
        ),
        (
            refusal_of(|it| it.arms[1].share = f64::NAN),
            "e.arms.a.share: expected a number",
        ),
        (
            refusal_of(|it| it.arms[1].share = -0.1),
            "e.arms.a.share: expected a number",
        ),
        (
            refusal_of(|it| it.arms[1].share = 0.6),
            "e.arms: the shares of the arms sum to 1.1",
        ),
        (
            refusal_of(|it| it.control = "b".into()),
            "e.control: unknown arm \"b\"",
        ),
        (refusal_of(|it| it.alpha = f64::NAN), "e.alpha: expected"),
        (refusal_of(|it| it.alpha = 0.6), "e.alpha: expected"),
        (
            refusal_of(|it| it.window = Duration::ZERO),
            "e.window: expected",
        ),
        (
            refusal_of(|it| it.arms.iter_mut().for_each(|arm| arm.weights = None)),
            "e.arms: no arm has",
        ),
        (
            refusal_of(|it| it.arms[0].policy = Some(ListPolicyName::All)),
            "e.metric: arms with a policy",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
    let mut of_sessions = with_policy("p");
    of_sessions.unit = AssignmentUnit::WorkSession;
    let said = check_plans(&[of_sessions]).unwrap_err().to_string();
    assert!(said.starts_with("p.unit: "), "{said}");
    for metric in [ExperimentMetric::ClickThrough, ExperimentMetric::Success] {
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
fn running_experiments_with_conflicting_treatments_are_refused() {
    let mut other = valid_plan();
    other.name = "f".into();
    let error = check_plans(&[valid_plan(), other.clone()]).unwrap_err();
    assert_eq!(error.key, "f.arms");
    let expected = PlanFault::Overlap {
        other: "e".into(),
        lever: Treatment::Weights,
    };
    assert_eq!(error.fault, expected);
    // An experiment that is not running causes no conflict.
    other.is_running = false;
    assert_eq!(check_plans(&[valid_plan(), other.clone()]), Ok(()));
    assert_eq!(check_plans(&[other, valid_plan()]), Ok(()));
    let error = check_plans(&[valid_plan(), with_fusion("f")]).unwrap_err();
    assert_eq!(error.fault, PlanFault::SameAnswers("e".into()));
    assert_eq!(check_plans(&[valid_plan(), with_policy("p")]), Ok(()));
    let plans = [valid_plan(), with_policy("p"), with_predictors("n")];
    assert_eq!(check_plans(&plans), Ok(()));
    let error = check_plans(&[with_predictors("n"), with_predictors("m")]).unwrap_err();
    let expected = PlanFault::Overlap {
        other: "n".into(),
        lever: Treatment::Predictors,
    };
    assert_eq!((&*error.key, error.fault), ("m.arms", expected));
}
