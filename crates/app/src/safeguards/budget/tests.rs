use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::id::ToolName;
use riglm_ports::fake::WordCounter;

use super::*;
use crate::safeguards::OwnKind;
use crate::safeguards::testing::{Scene, session};

/// Counts the words of a text times a hundred, so that a count differs from the estimate.
#[derive(Debug)]
struct Hundredfold;

impl TokenCounter for Hundredfold {
    fn count(&self, text: &str) -> u64 {
        WordCounter.count(text) * 100
    }
}

#[derive(Debug, Default)]
struct ObservedEvents(Mutex<Vec<BudgetEvent>>);

impl Observer for ObservedEvents {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Budget(event) = event {
            self.0.lock().push(*event);
        }
    }
}

struct Stage {
    scene: Scene,
    budgets: Budgets,
    seen: Arc<ObservedEvents>,
    tool: ToolName,
}

/// Returns a text with so many estimated tokens that is too long to be counted.
fn long(n_tokens: usize) -> String {
    let text = "x".repeat(n_tokens * 4);
    assert!(text.len() > 16 << 10);
    text
}

impl Stage {
    fn new(options: BudgetPlans) -> Self {
        let seen = Arc::new(ObservedEvents::default());
        Self {
            scene: Scene::new(&[("read", "{}")]),
            budgets: Budgets::new(options, Arc::new(Hundredfold), seen.clone()),
            seen,
            tool: "read".into(),
        }
    }

    fn call(&self) -> GuardedCall<'_> {
        self.scene.call(&self.tool, "")
    }

    fn token_use(&self) -> TokenUse {
        let call = self.call();
        self.budgets
            .ledger
            .accounts()
            .of(call.session_key, call.at)
            .used
    }

    fn notice_text(&self, call: &GuardedCall<'_>, result: &str) -> Option<String> {
        self.budgets
            .record_result(call, result)
            .map(|notice| notice.text)
    }

    fn events(&self) -> Vec<BudgetEvent> {
        self.seen.0.lock().clone()
    }
}

fn plan(tokens: u64) -> BudgetPlan {
    BudgetPlan {
        tokens: NonZeroU64::new(tokens),
        ..BudgetPlan::default()
    }
}

fn options(plan: BudgetPlan) -> BudgetPlans {
    BudgetPlans {
        plan,
        profiles: HashMap::new(),
    }
}

#[test]
fn each_state_is_reported_and_observed_once() {
    let stage = Stage::new(options(plan(100_000)));
    let call = stage.call();
    assert_eq!(stage.notice_text(&call, &long(49_999)), None);
    let status = stage.notice_text(&call, "1234").unwrap();
    assert!(status.starts_with("Token budget: 50 % used, 50000 of 100000"));
    assert_eq!(stage.notice_text(&call, "1234"), None);
    assert!(
        stage
            .notice_text(&call, &long(20_000))
            .unwrap()
            .contains("ask the user")
    );
    assert!(
        stage
            .notice_text(&call, &long(20_000))
            .unwrap()
            .contains("Stop calling")
    );
    assert_eq!(stage.budgets.admit(&call), Ok(()), "it is only said");
    let entered = [BudgetState::Status, BudgetState::Suggest, BudgetState::Stop];
    assert_eq!(
        stage.events(),
        entered.map(|state| BudgetEvent::Entered { state })
    );
}

#[test]
fn calls_over_an_exhausted_budget_are_refused_if_configured() {
    let refusing = BudgetPlan {
        on_exhausted: OnExhausted::Refuse,
        ..plan(100_000)
    };
    let stage = Stage::new(options(refusing));
    let call = stage.call();
    stage.notice_text(&call, &long(89_999));
    assert_eq!(stage.budgets.admit(&call), Ok(()));
    stage.notice_text(&call, "1234");
    let refusal = stage.budgets.admit(&call).unwrap_err();
    assert!(
        (refusal.text).starts_with("This call was not made. Token budget: 90 % used"),
        "{}",
        refusal.text
    );
    // A refused call uses nothing, and another work session has its own budget.
    assert_eq!(stage.token_use().total(), 90_000);
    let other = GuardedCall {
        session_key: session(2),
        ..call
    };
    assert_eq!(stage.budgets.admit(&other), Ok(()));
    assert_eq!(stage.events().last(), Some(&BudgetEvent::Refused));
}

#[test]
fn definitions_arguments_and_results_count() {
    let stage = Stage::new(options(plan(1_000_000)));
    let arguments = long(5_000);
    let call = stage.scene.call(&stage.tool, &arguments);
    for n in [7_000, 7_000, 8_000] {
        let list = format!(r#"{{"ttlMs":{n},"tools":["{}"]}}"#, long(n));
        // The first list is shown again, and counts once.
        stage.budgets.record_list(
            call.session_key,
            None,
            None,
            ListText::of_result(&list),
            call.at,
        );
    }
    stage.budgets.admit(&call).unwrap();
    stage.notice_text(&call, &long(6_000));
    let used = TokenUse {
        definitions: 15_002,
        arguments: 5_000,
        results: 6_000,
    };
    assert_eq!(stage.token_use(), used);
}

#[test]
fn of_a_view_only_the_text_for_the_model_counts() {
    let stage = Stage::new(options(plan(1_000_000)));
    let call = GuardedCall {
        own: Some(OwnKind::View),
        ..stage.call()
    };
    let (text, data) = (long(5_000), long(7_000));
    let result = format!(r#"{{"content":["{text}"],"structuredContent":{{"x":"{data}"}}}}"#);
    assert_eq!(stage.notice_text(&call, &result), None);
    assert_eq!(stage.token_use().results, 5_001);
}

#[test]
fn counted_tokens_replace_the_estimate() {
    let stage = Stage::new(options(plan(10_000)));
    let call = stage.scene.call(&stage.tool, "three words here");
    stage.budgets.admit(&call).unwrap();
    stage.notice_text(&call, "two words");
    let deadline = Instant::now() + Duration::from_secs(10);
    while stage.token_use().total() != 500 {
        assert!(Instant::now() < deadline, "{:?}", stage.token_use());
        std::thread::yield_now();
    }
    assert_eq!(
        (stage.token_use().arguments, stage.token_use().results),
        (300, 200)
    );
}

#[test]
fn clients_can_declare_a_budget_without_a_configured_one() {
    let stage = Stage::new(BudgetPlans::default());
    let call = stage.call();
    assert_eq!(stage.notice_text(&call, &long(60_000)), None);
    let hinted = GuardedCall {
        token_budget: Some(100_000),
        ..call
    };
    stage.budgets.admit(&hinted).unwrap();
    // Earlier use counts, and the next request need not repeat the budget.
    let said = stage.notice_text(&call, "").unwrap();
    assert!(said.contains("60000 of 100000"), "{said}");
}

#[test]
fn clients_lower_the_budget_and_raise_it_if_permitted() {
    for (may_raise, budget) in [(false, 50_000), (true, 500_000)] {
        let stage = Stage::new(options(BudgetPlan {
            client_may_raise: may_raise,
            ..plan(50_000)
        }));
        let call = GuardedCall {
            token_budget: Some(500_000),
            ..stage.call()
        };
        stage.budgets.admit(&call).unwrap();
        let said = stage.notice_text(&call, &long(300_000)).unwrap();
        assert!(said.contains(&format!("of {budget} tokens")), "{said}");
    }
    let stage = Stage::new(options(plan(500_000)));
    let session_key = stage.call().session_key;
    let list = format!(r#"{{"tools":["{}"]}}"#, long(5_999));
    let at = stage.call().at;
    (stage.budgets).record_list(
        session_key,
        None,
        Some(10_000),
        ListText::of_result(&list),
        at,
    );
    assert!(
        stage
            .notice_text(&stage.call(), "")
            .unwrap()
            .contains("6000 of 10000")
    );
}

#[test]
fn a_profile_has_a_budget_of_its_own() {
    let off = BudgetPlan {
        is_enabled: false,
        ..plan(10)
    };
    let profiles = [("small", plan(10_000)), ("off", off)];
    let stage = Stage::new(BudgetPlans {
        plan: plan(1_000_000),
        profiles: profiles.map(|(name, plan)| (name.into(), plan)).into(),
    });
    let under = |n, profile| GuardedCall {
        session_key: session(n),
        profile,
        ..stage.call()
    };
    let result = long(6_000);
    assert_eq!(stage.notice_text(&under(1, None), &result), None);
    assert_eq!(stage.notice_text(&under(2, Some("other")), &result), None);
    assert_eq!(stage.notice_text(&under(3, Some("off")), &result), None);
    assert!(
        stage
            .notice_text(&under(4, Some("small")), &result)
            .is_some()
    );
}
