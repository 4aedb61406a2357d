//! Estimates on simulated logs whose true policy values are known.

use proptest::prelude::*;
use riglm_domain::num::to_f64;
use riglm_domain::selection::{ExplorationShare, ListSize, SizeChoice, SizeDraw};
use riglm_ports::contract::scene::RandomNumbers;

use super::*;

/// Number of simulated logs, and of independent draws in each of them.
const N_LOGS: u64 = 200;
const N_DRAWS: usize = 1_000;

const POLICIES: [SizePolicy; 5] = [
    SizePolicy::Greedy,
    SizePolicy::Fixed(ListSize::Tools(5)),
    SizePolicy::Fixed(ListSize::Tools(10)),
    SizePolicy::Fixed(ListSize::Tools(20)),
    SizePolicy::Fixed(ListSize::Tools(40)),
];

/// A simulated stream of sessions. A need x, uniform from 0 to 1, is known before each session. The
/// greedy rule shows more tools for a higher need. A list of `a` tools costs
/// `20 + a / 5 + 10 x share(a)`, with the share of the needed tools that it lacks, and noise.
struct Stream {
    numbers: RandomNumbers,
    share: ExplorationShare,
}

impl Stream {
    fn new(seed: u64, share: f64) -> Self {
        Self {
            numbers: RandomNumbers::new(seed),
            share: ExplorationShare::try_from(share).unwrap(),
        }
    }

    fn uniform(&mut self) -> f64 {
        to_f64(self.numbers.below(1 << 30)) / to_f64(1_usize << 30)
    }

    /// Returns a nearly normal number with mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        let sum: f64 = (0..6).map(|_| self.uniform()).sum();
        (sum - 3.0) * 2.0_f64.sqrt()
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.numbers.below(1 << 32)).unwrap()
    }

    fn greedy(need: f64) -> usize {
        match need {
            need if need < 0.4 => 5,
            need if need < 0.75 => 10,
            _ => 20,
        }
    }

    fn cost(need: f64, n: usize) -> f64 {
        let lacked = match n {
            5 => 1.0,
            10 => 0.6,
            20 => 0.25,
            _ => 0.1,
        };
        20.0 + to_f64(n) / 5.0 + 10.0 * need * lacked
    }

    /// Returns the expected cost of a session under a policy.
    fn truth(policy: SizePolicy) -> f64 {
        let SizePolicy::Fixed(size) = policy else {
            // The integrals of the cost over the three intervals of the greedy rule.
            return (0.4 * 21.0 + 10.0 * 0.08)
                + (0.35 * 22.0 + 6.0 * 0.201_25)
                + (0.25 * 24.0 + 2.5 * 0.218_75);
        };
        let ListSize::Tools(n) = size else {
            panic!("all tools are no candidate");
        };
        Self::cost(0.5, n)
    }

    /// Returns a log of sessions. Every second draw decides the lists of two sessions, which have a
    /// random effect in common.
    fn log(&mut self, n_draws: usize) -> ChoiceLog {
        let mut log = ChoiceLog::default();
        for n in 0..n_draws {
            let draw = SizeDraw {
                coin: self.word(),
                place: self.word(),
            };
            let effect = self.normal();
            for _ in 0..=n % 2 {
                let need = self.uniform();
                let greedy = ListSize::Tools(Self::greedy(need));
                let candidates = [5, 10, 20, 40].map(ListSize::Tools).into();
                let choice = SizeChoice::new(greedy, candidates, self.share, draw);
                let ListSize::Tools(shown) = choice.size else {
                    panic!("all tools are no candidate");
                };
                let noise = effect + 2.0 * self.normal();
                let session = LoggedChoice {
                    cluster: n.to_string(),
                    n_tools: 300,
                    // The second number has nothing to do with the cost.
                    features: vec![need, self.uniform()],
                    outcome: SessionOutcome {
                        cost: (Self::cost(need, shown) + noise).max(0.0),
                        searches: 0.0,
                        coverage: 1.0,
                    },
                    choice,
                };
                log.push(session).unwrap();
            }
        }
        log
    }
}

/// Estimates of one policy over all logs.
#[derive(Default)]
struct Errors {
    values: Vec<f64>,
    n_covered: usize,
}

impl Errors {
    fn add(&mut self, estimate: &Estimate, truth: f64) {
        self.values.push(estimate.value);
        let is_covered = estimate.low() <= truth && truth <= estimate.high();
        self.n_covered += usize::from(is_covered);
    }

    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / to_f64(self.values.len())
    }

    fn variance(&self) -> f64 {
        let mean = self.mean();
        let squares = self.values.iter().map(|value| (value - mean).powi(2));
        squares.sum::<f64>() / to_f64(self.values.len() - 1)
    }

    fn coverage(&self) -> f64 {
        to_f64(self.n_covered) / to_f64(self.values.len())
    }
}

/// The means of the estimates are those of the truth, their intervals cover it in 95 % of the logs,
/// and the plain mean of the sessions with a size is biased. `--nocapture` prints the figures.
#[test]
fn estimates_of_simulated_logs_are_true() {
    let options = EstimateOptions::default();
    let mut errors: Vec<[Errors; 3]> = POLICIES.iter().map(|_| <[Errors; 3]>::default()).collect();
    let mut plain = vec![0.0; POLICIES.len()];
    for seed in 0..N_LOGS {
        let log = Stream::new(seed << 32, 0.6).log(N_DRAWS);
        let report = estimate_policies(&log, OutcomeMeasure::Cost, &POLICIES, &options).unwrap();
        for (at, policy) in report.policies.iter().enumerate() {
            let truth = Stream::truth(policy.policy);
            let estimates = policy.estimates.as_ref().unwrap();
            let kinds = [estimates.ips, estimates.snips, estimates.doubly_robust];
            for (errors, estimate) in errors[at].iter_mut().zip(&kinds) {
                errors.add(estimate, truth);
            }
            plain[at] += policy.plain.unwrap().value / to_f64(usize::try_from(N_LOGS).unwrap());
        }
    }
    println!("policy     estimate   mean  truth  error %  coverage %  variance");
    for ((policy, errors), plain) in POLICIES.iter().zip(&errors).zip(&plain) {
        let truth = Stream::truth(*policy);
        for (name, of) in ["ips", "snips", "dr"].into_iter().zip(errors) {
            let error = of.mean() / truth - 1.0;
            println!(
                "{policy:<10} {name:<6} {:9.3} {truth:6.2} {:8.3} {:11.1} {:9.4}",
                of.mean(),
                100.0 * error,
                100.0 * of.coverage(),
                of.variance()
            );
        }
        println!(
            "{policy:<10} plain  {plain:9.3} {truth:6.2} {:8.3}",
            100.0 * (plain / truth - 1.0)
        );
    }
    for ((policy, errors), plain) in POLICIES.iter().zip(&errors).zip(&plain) {
        let truth = Stream::truth(*policy);
        let [ips, snips, robust] = errors;
        for (estimate, tolerance) in [(ips, 0.01), (snips, 0.003), (robust, 0.003)] {
            let error = (estimate.mean() / truth - 1.0).abs();
            assert!(error < tolerance, "{policy}: {error}");
            // The normal range of 99.9 % of a binomial share of 200 with 0.95: 3.3 standard errors.
            let coverage = estimate.coverage();
            assert!(
                (0.95 - 0.051..=0.95 + 0.049).contains(&coverage),
                "{policy}: {coverage}"
            );
        }
        let ratio = robust.variance() / ips.variance();
        assert!(ratio < 0.85, "{policy}: variance {ratio} of IPS");
        let bias = (plain / truth - 1.0).abs();
        let is_confounded = !matches!(
            policy,
            SizePolicy::Greedy | SizePolicy::Fixed(ListSize::Tools(40))
        );
        assert!(!is_confounded || bias > 0.005, "{policy}: {bias}");
    }
}

fn report(log: &ChoiceLog, policy: SizePolicy) -> PolicyReport {
    let options = EstimateOptions::default();
    let report = estimate_policies(log, OutcomeMeasure::Cost, &[policy], &options).unwrap();
    report.policies[0].clone()
}

fn refusal(log: &ChoiceLog, policy: SizePolicy) -> String {
    report(log, policy).estimates.unwrap_err().to_string()
}

#[test]
fn unsupported_estimates_are_refused_with_the_reason() {
    let log = Stream::new(1, 0.6).log(200);
    assert!(report(&log, SizePolicy::Greedy).estimates.is_ok());
    let all = SizePolicy::Fixed(ListSize::All);
    assert_eq!(
        refusal(&log, all),
        "no overlap: in 300 of 300 sessions, the policy gives a size whose logged probability is 0"
    );
    let eighty = SizePolicy::Fixed(ListSize::Tools(80));
    assert_eq!(report(&log, eighty).plain, None);
    assert!(refusal(&log, eighty).starts_with("no overlap"));
    let few = Stream::new(1, 0.6).log(20);
    assert_eq!(
        refusal(&few, SizePolicy::Greedy),
        format!(
            "too few sessions with a random size: {} of at least 30",
            few.n_explored()
        )
    );
    let rare = Stream::new(1, 0.12).log(300);
    let forty = SizePolicy::Fixed(ListSize::Tools(40));
    assert!(
        refusal(&rare, forty).starts_with("effective sample size "),
        "{}",
        refusal(&rare, forty)
    );
    let mut of_one = ChoiceLog::default();
    for session in log.choices() {
        let cluster = "one".into();
        of_one
            .push(LoggedChoice {
                cluster,
                ..session.clone()
            })
            .unwrap();
    }
    assert_eq!(
        refusal(&of_one, SizePolicy::Greedy),
        "too few independent draws: 1 of at least 20"
    );
    assert!(refusal(&ChoiceLog::default(), SizePolicy::Greedy).contains("0 of at least 30"));
    let mut large = ChoiceLog::default();
    for session in log.choices() {
        let mut session = session.clone();
        session.outcome.cost = f64::MAX;
        large.push(session).unwrap();
    }
    assert!(refusal(&large, SizePolicy::Greedy).contains("not finite"));
}

#[test]
fn few_clusters_have_no_interval() {
    let log = Stream::new(3, 0.9).log(19);
    let options = EstimateOptions {
        least_explored: 5,
        ..EstimateOptions::default()
    };
    let policies = [SizePolicy::Greedy];
    let report = estimate_policies(&log, OutcomeMeasure::Cost, &policies, &options).unwrap();
    assert_eq!((report.n_clusters, report.logged), (19, None));
    let refusal = report.policies[0].estimates.as_ref().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "too few independent draws: 19 of at least 20"
    );
}

#[test]
fn sizes_with_the_same_list_have_one_estimate() {
    let mut log = ChoiceLog::default();
    for session in Stream::new(7, 0.6).log(300).choices() {
        let mut session = session.clone();
        // No more than some 30 tools fit.
        session.choice.same_as_largest = vec![ListSize::Tools(80)];
        log.push(session).unwrap();
    }
    let [forty, eighty] = [40, 80].map(|n| report(&log, SizePolicy::Fixed(ListSize::Tools(n))));
    assert!(forty.estimates.is_ok());
    assert_eq!(
        (forty.estimates, forty.plain),
        (eighty.estimates, eighty.plain)
    );
}

#[test]
fn options_out_of_range_are_refused_with_their_name() {
    let estimate = |change: fn(&mut EstimateOptions)| {
        let mut options = EstimateOptions::default();
        change(&mut options);
        let log = ChoiceLog::default();
        let done = estimate_policies(&log, OutcomeMeasure::Cost, &[], &options);
        done.map_or_else(|refusal| refusal.to_string(), |_| String::new())
    };
    assert_eq!(
        estimate(|it| it.clip = Some(0.0)),
        "clip must be a finite number above 0"
    );
    assert_eq!(
        estimate(|it| it.clip = Some(f64::NAN)),
        "clip must be a finite number above 0"
    );
    assert_eq!(
        estimate(|it| it.n_folds = 1),
        "n_folds must be a number from 2 to 100"
    );
    assert_eq!(
        estimate(|it| it.least_clusters = 9),
        "least_clusters must be a number of at least 10"
    );
    assert!(estimate(|it| it.least_sample = 1.0).starts_with("least_sample must be"));
    assert_eq!(estimate(|_| {}), "");
}

#[test]
fn sessions_that_contradict_themselves_are_refused() {
    let log = Stream::new(1, 0.5).log(1);
    let sound = &log.choices()[0];
    let push = |change: fn(&mut LoggedChoice)| {
        let mut log = log.clone();
        let mut session = sound.clone();
        change(&mut session);
        log.push(session)
            .map_or_else(|error| error.to_string(), |()| String::new())
    };
    assert_eq!(push(|_| {}), "");
    assert!(push(|it| it.features = vec![1.0]).contains("expected 2 features"));
    assert!(push(|it| it.features = vec![1.0; 65]).contains("at most 64 features"));
    assert!(push(|it| it.features[0] = f64::NAN).contains("a feature must be a finite"));
    assert!(push(|it| it.outcome.cost = f64::INFINITY).contains("cost must be"));
    assert!(push(|it| it.outcome.searches = -1.0).contains("searches must be"));
    assert!(push(|it| it.outcome.coverage = 1.5).contains("coverage must be a number from 0 to 1"));
    assert!(push(|it| it.choice.greedy = ListSize::All).contains("size all is not one of"));
}

#[test]
fn clipping_at_a_high_limit_changes_nothing() {
    let log = Stream::new(5, 0.6).log(200);
    let estimate = |clip| {
        let options = EstimateOptions {
            clip,
            ..EstimateOptions::default()
        };
        let policies = [SizePolicy::Fixed(ListSize::Tools(40))];
        let report = estimate_policies(&log, OutcomeMeasure::Cost, &policies, &options).unwrap();
        report.policies[0].estimates.clone().unwrap()
    };
    let (high, low) = (estimate(Some(1e9)), estimate(Some(1.0)));
    assert_eq!(high.clipped, high.ips);
    assert!(low.clipped.value < 0.5 * high.ips.value);
    assert!(low.clipped.std_error < high.ips.std_error);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn estimates_follow_a_change_of_the_unit_and_the_origin(
        seed: u64, factor in 0.1..100.0_f64, shift in 0.0..100.0_f64,
    ) {
        let log = Stream::new(seed, 0.7).log(150);
        let mut other = ChoiceLog::default();
        for session in log.choices().iter().rev() {
            let mut session = session.clone();
            session.outcome.cost = session.outcome.cost * factor + shift;
            other.push(session).unwrap();
        }
        for policy in POLICIES {
            let (one, other) = (report(&log, policy), report(&other, policy));
            prop_assert!(one.effective_sample <= 150.0 + 1e-6);
            prop_assert!((one.effective_sample - other.effective_sample).abs() < 1e-6);
            let (Ok(one), Ok(other)) = (one.estimates, other.estimates) else {
                continue;
            };
            let expected = one.snips.value * factor + shift;
            prop_assert!((other.snips.value - expected).abs() < 1e-6 * expected);
            let error = one.snips.std_error * factor;
            prop_assert!((other.snips.std_error - error).abs() < 1e-6 * error.max(1e-3));
            let costs = log.choices().iter().map(|session| session.outcome.cost);
            let (low, high) = costs.fold((f64::MAX, 0.0_f64), |(low, high), cost| {
                (low.min(cost), high.max(cost))
            });
            prop_assert!(one.snips.value >= low - 1e-9 && one.snips.value <= high + 1e-9);
        }
    }

    #[test]
    fn certain_sizes_have_the_mean_of_their_outcomes(seed: u64) {
        // With a share of 0, every session has the greedy size with probability 1.
        let log = Stream::new(seed, 0.0).log(60);
        let options = EstimateOptions { least_explored: 0, ..EstimateOptions::default() };
        let policies = [SizePolicy::Greedy];
        let report = estimate_policies(&log, OutcomeMeasure::Cost, &policies, &options).unwrap();
        let greedy = report.policies[0].clone();
        let mean = greedy.plain.unwrap().value;
        let estimates = greedy.estimates.unwrap();
        for value in [estimates.ips.value, estimates.snips.value, estimates.doubly_robust.value] {
            prop_assert!((value - mean).abs() < 1e-9 * mean);
        }
        prop_assert_eq!(report.logged, Some(estimates.ips));
    }
}
