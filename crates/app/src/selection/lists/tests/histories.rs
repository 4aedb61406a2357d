//! Property test: lists keep their guarantees under any sequence of events.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Catalog(Vec<usize>),
    Wait(i64),
    List,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..N).prop_map(Step::Call),
        2 => proptest::sample::subsequence((0..N + 10).collect::<Vec<_>>(), 40..N + 10)
            .prop_shuffle()
            .prop_map(Step::Catalog),
        1 => (1..4_000_i64).prop_map(Step::Wait),
        4 => Just(Step::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn listed_tools_stay_after_their_use(
        steps in proptest::collection::vec(step(), 1..30),
        policy in proptest::sample::select(vec![
            ListPolicyName::Epoch, ListPolicyName::Append, ListPolicyName::Conformal,
        ]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = FilteringConfig { policy: Some(policy), ..FilteringConfig::default() };
            let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
            let local = Principal::local();
            let mut request = request(&local, 1);
            let mut catalog = catalog_of(0..N);
            let mut listed: HashSet<usize> = (0..N).collect();
            let mut stays: HashSet<usize> = HashSet::new();
            for step in steps.into_iter().chain([Step::List]) {
                match step {
                    Step::Call(n) => {
                        let called = lists.record_call(&request, &tool(n));
                        if called.is_some_and(|called| called.shown.shows(&tool(n))) {
                            stays.insert(n);
                        }
                        lists.has_changed(&request, |_| false).await;
                    }
                    Step::Catalog(tools) => {
                        catalog = catalog_of(tools.iter().copied());
                        listed = tools.into_iter().collect();
                    }
                    Step::Wait(seconds) => {
                        request.now += SignedDuration::from_secs(seconds);
                    }
                    Step::List => {
                        let shown = lists.list(&request, &catalog).await;
                        for n in stays.iter().filter(|n| listed.contains(n)) {
                            prop_assert!(shown.shows(&tool(*n)), "{n} of {:?}", numbers(&shown));
                        }
                        let most = ListBounds::default().max_tools.max(stays.len());
                        let is_bounded = policy == ListPolicyName::Conformal;
                        prop_assert!(!is_bounded || shown.positions().len() <= most);
                    }
                }
            }
            Ok(())
        })?;
    }
}
