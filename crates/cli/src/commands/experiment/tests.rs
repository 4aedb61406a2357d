use std::time::Duration;

use jiff::Timestamp;
use riglm_discovery::experiments::ExperimentState;
use riglm_domain::experiment::{
    ArmOutcome, ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan, FusionRule, compare,
};

use super::*;

fn report() -> ExperimentReport {
    let arm = |name: &str| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion: Some(FusionRule::Score),
        policy: None,
        predictors: None,
    };
    let plan = ExperimentPlan {
        name: "fusions".into(),
        is_running: true,
        unit: AssignmentUnit::WorkSession,
        metric: ExperimentMetric::Success,
        alpha: 0.05,
        window: Duration::from_hours(1),
        control: "control".into(),
        arms: vec![arm("control"), arm("a")],
    };
    let values = |value: f64| ArmOutcome {
        values: vec![value; 200],
        n_open: 3,
        n_trials: 207,
        n_succeeded: 20,
    };
    let (control, a) = (values(0.25), values(0.75));
    let compared = compare(&a.values, &control.values, 0.05, 1);
    let arm = |name: &str, settled: ArmOutcome, comparison| ArmReport {
        name: name.into(),
        share: 0.5,
        n_assigned: 204,
        settled,
        comparison,
    };
    ExperimentReport {
        plan,
        state: ExperimentState::Stopped,
        stop: Some(ExperimentStop {
            experiment: "fusions".into(),
            stopped_at: Timestamp::constant(1_800_000_000, 0),
            stopped_by: Principal::from_name("op"),
            reason: Some("\u{1b}[31menough".into()),
        }),
        is_complete: true,
        arms: vec![arm("control", control, None), arm("a", a, Some(compared))],
    }
}

#[test]
fn json_output_has_the_results_of_each_arm() {
    let json = as_json(&report());
    assert_eq!(
        (&json["experiment"], &json["state"]),
        (&json!("fusions"), &json!("stopped"))
    );
    assert_eq!(json["stop"]["stopped_by"], "op");
    assert_eq!(
        (&json["unit"], &json["metric"]),
        (&json!("work_session"), &json!("success"))
    );
    assert_eq!(json["arms"][0]["comparison"], Value::Null);
    let a = &json["arms"][1];
    assert_eq!(
        (&a["units"], &a["open_units"], &a["trials"]),
        (&json!(200), &json!(3), &json!(207))
    );
    assert_eq!(
        (&a["mean"], &a["comparison"]["difference"]),
        (&json!(0.75), &json!(0.5))
    );
    assert_eq!(a["comparison"]["verdict"], "better");
}

#[test]
fn text_output_has_a_line_per_arm_without_escapes() {
    let shown = as_text(&report());
    assert!(
        shown.starts_with("fusions: stopped at 2027-01-15 08:00:00 UTC by op: "),
        "{shown}"
    );
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let last: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(
        last[..8],
        ["a", "50.0", "204", "207", "200", "3", "75.0", "+50.0"]
    );
    assert_eq!(last.last(), Some(&"better"));
    assert!(
        shown.contains("success of a work_session within 1h, alpha 0.05"),
        "{shown}"
    );
}
