use proptest::prelude::*;

use super::*;

fn tokens(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).unwrap()
}

fn result_use(results: u64) -> TokenUse {
    TokenUse {
        results,
        ..TokenUse::default()
    }
}

#[test]
fn each_state_begins_exactly_at_its_threshold() {
    let thresholds = BudgetThresholds::default();
    for (n, state) in [
        (0, BudgetState::Ok),
        (499, BudgetState::Ok),
        (500, BudgetState::Status),
        (699, BudgetState::Status),
        (700, BudgetState::Suggest),
        (899, BudgetState::Suggest),
        (900, BudgetState::Stop),
        (5_000, BudgetState::Stop),
    ] {
        assert_eq!(thresholds.state(n, tokens(1_000)), state, "{n}");
    }
    let others = BudgetThresholds::new(0.1, 0.2, 1.0).unwrap();
    assert_eq!(others.state(999, tokens(1_000)), BudgetState::Suggest);
    assert_eq!(others.state(1_000, tokens(1_000)), BudgetState::Stop);
    assert_eq!(thresholds.state(u64::MAX, tokens(1)), BudgetState::Stop);
}

#[test]
fn thresholds_are_rising_shares() {
    assert!(BudgetThresholds::new(f64::MIN_POSITIVE, 0.5, 1.0).is_ok());
    for (shares, name) in [
        ((0.0, 0.7, 0.9), "status"),
        ((-0.5, 0.7, 0.9), "status"),
        ((0.5, f64::NAN, 0.9), "suggest"),
        ((0.5, 0.7, 1.000_001), "stop"),
        ((0.5, 0.7, f64::INFINITY), "stop"),
    ] {
        let error = BudgetThresholds::new(shares.0, shares.1, shares.2).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
    let equal = BudgetThresholds::new(0.5, 0.5, 0.9).unwrap_err();
    assert_eq!(
        equal.to_string(),
        "suggest (0.5) must be greater than status (0.5)"
    );
    let falling = BudgetThresholds::new(0.5, 0.7, 0.6).unwrap_err();
    assert_eq!(
        falling.to_string(),
        "stop (0.6) must be greater than suggest (0.7)"
    );
}

#[test]
fn a_notice_states_the_token_use_and_advice() {
    let used = TokenUse {
        definitions: 1_200,
        arguments: 0,
        results: 4_000,
    };
    let at = |budget, state| notice(&used, tokens(budget), state);
    assert_eq!(
        at(10_000, BudgetState::Status),
        "Token budget: 52 % used, 5200 of 10000 tokens (results 4000, tool definitions 1200)."
    );
    assert!(at(7_000, BudgetState::Suggest).ends_with(
        "74 % used, 5200 of 7000 tokens (results 4000, tool definitions 1200). Little is left: \
         answer with what you have, or ask the user how to continue."
    ));
    let stop = at(5_000, BudgetState::Stop);
    assert!(
        stop.contains("104 % used")
            && stop.ends_with("Stop calling tools: answer with what you have.")
    );
    assert!(!stop.contains('\n'));
    // The share is rounded down: 699 of 1,000 are not 70 %.
    assert!(
        notice(
            &super::tests::result_use(699),
            tokens(1_000),
            BudgetState::Status
        )
        .contains("69 %")
    );
}

#[test]
fn new_states_and_further_twentieths_have_a_notice() {
    let thresholds = BudgetThresholds::default();
    let mut watch = BudgetTracker::default();
    let mut said = |n| {
        let look = watch.check(&result_use(n), tokens(1_000), &thresholds);
        (look.state, look.is_new, look.line.is_some())
    };
    assert_eq!(said(499), (BudgetState::Ok, false, false));
    assert_eq!(said(510), (BudgetState::Status, true, true));
    assert_eq!(said(559), (BudgetState::Status, false, false));
    assert_eq!(said(560), (BudgetState::Status, false, true));
    assert_eq!(said(609), (BudgetState::Status, false, false));
    assert_eq!(said(699), (BudgetState::Status, false, true));
    // Another state gets a notice at once.
    assert_eq!(said(700), (BudgetState::Suggest, true, true));
    assert_eq!(said(749), (BudgetState::Suggest, false, false));
    assert_eq!(said(750), (BudgetState::Suggest, false, true));
    assert_eq!(said(900), (BudgetState::Stop, true, true));
    assert_eq!(said(949), (BudgetState::Stop, false, false));
    assert_eq!(said(2_000), (BudgetState::Stop, false, true));
    assert_eq!(said(2_049), (BudgetState::Stop, false, false));
}

#[test]
fn a_state_entered_early_by_an_estimate_has_one_notice() {
    let thresholds = BudgetThresholds::default();
    let mut watch = BudgetTracker::default();
    let mut look = |used: &TokenUse| watch.check(used, tokens(1_000), &thresholds);
    let mut use_so_far = result_use(505);
    assert!(look(&use_so_far).line.is_some());
    use_so_far.correct(TokenUseKind::Results, 100, 80);
    assert_eq!(use_so_far.total(), 485);
    let back = look(&use_so_far);
    assert_eq!(
        (back.state, back.is_new, back.line),
        (BudgetState::Ok, true, None)
    );
    use_so_far.add(TokenUseKind::Arguments, 20);
    let again = look(&use_so_far);
    assert_eq!((again.state, again.line), (BudgetState::Status, None));
}

#[test]
fn a_changed_budget_has_a_new_notice() {
    let thresholds = BudgetThresholds::default();
    let mut watch = BudgetTracker::default();
    let mut look = |n, budget| watch.check(&result_use(n), tokens(budget), &thresholds);
    assert!(look(920, 1_000).line.is_some());
    // More room: the state is left, and gets a notice when it is entered in the new budget.
    assert_eq!(look(930, 10_000).line, None);
    assert!(look(5_000, 10_000).line.is_some());
    assert!(
        look(5_001, 5_500)
            .line
            .is_some_and(|line| line.contains("Stop"))
    );
}

#[test]
fn a_client_lowers_a_budget_and_raises_it_if_allowed() {
    let some = |n| Some(tokens(n));
    for (configured, said, may_raise, expected) in [
        (None, None, true, None),
        (some(10), None, false, some(10)),
        (None, some(20), false, some(20)),
        (some(10), some(9), false, some(9)),
        (some(10), some(10), false, some(10)),
        (some(10), some(11), false, some(10)),
        (some(10), some(11), true, some(11)),
        (some(10), some(9), true, some(9)),
    ] {
        assert_eq!(effective_budget(configured, said, may_raise), expected);
    }
}

proptest! {
    #[test]
    fn any_token_use_and_budget_are_accepted(
        parts in [any::<u64>(), any::<u64>(), any::<u64>()],
        budget in 1..u64::MAX,
    ) {
        let mut all = TokenUse::default();
        for (&part, n) in TokenUseKind::ALL.iter().zip(parts) {
            all.add(part, n);
            all.correct(part, n / 2, n);
        }
        let mut watch = BudgetTracker::default();
        let look = watch.check(&all, tokens(budget), &BudgetThresholds::default());
        prop_assert_eq!(look.state > BudgetState::Ok, look.line.is_some());
    }

    #[test]
    fn notices_of_one_state_are_a_twentieth_apart(
        steps in proptest::collection::vec(0..200_u64, 1..60),
    ) {
        let (budget, mut watch, mut n, mut last) = (2_000, BudgetTracker::default(), 0, None);
        for step in steps {
            n += step;
            let look = watch.check(&result_use(n), tokens(budget), &BudgetThresholds::default());
            if look.line.is_some() {
                if let Some((state, at)) = last {
                    prop_assert!(state != look.state || n - at >= budget / 20);
                }
                last = Some((look.state, n));
            }
        }
    }
}
