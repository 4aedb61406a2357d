use jiff::SignedDuration;

use super::simulation::{SimulatedUsers, UserBehaviour};
use super::*;
use crate::catalog::tool::ToolRef;
use crate::id::{FeedbackId, RecommendationId, SessionId, UpstreamName, WorkSessionId};
use crate::privacy::principal::Principal;
use crate::recommendation::factors::{Factor, Factors};
use crate::recommendation::record::{Recommendation, RecommendedTool};
use crate::usage::feedback::{Feedback, Rating, Verdict};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Users to whom ratings matter most, and relevance a little.
const RATING_USERS: UserBehaviour = UserBehaviour {
    taste: [0.5, 0.0, 0.0, 0.0, 3.0],
    impatience: 1,
    n_tools: 8,
};

fn options(min_examples: usize) -> TuningOptions {
    TuningOptions {
        min_examples,
        seed: 7,
        judged_until: None,
    }
}

fn trial(tuning: TuningOutcome) -> CandidateWeights {
    match tuning {
        TuningOutcome::Tried(trial) => trial,
        other => panic!("no candidate: {other:?}"),
    }
}

/// Tunes repeatedly, each time on new examples with the weights of the round before. Returns the
/// final weights and the number of changes.
fn rounds(people: UserBehaviour, seed: u64) -> (FactorWeights, usize) {
    let mut world = SimulatedUsers::new(seed, people);
    let mut weights = FactorWeights::default();
    let mut all = Vec::new();
    let mut options = options(200);
    let mut n_changes = 0;
    for _ in 0..5 {
        all.extend(world.examples(300, &weights));
        if let TuningOutcome::Tried(trial) = tune(&all, &weights, &options)
            && trial.is_better()
        {
            weights = trial.candidate;
            options.judged_until = all.last().map(|example| example.shown_at);
            n_changes += 1;
        }
    }
    (weights, n_changes)
}

/// Returns the mean reciprocal rank of the most valuable tool, on recommendations that were not
/// used for tuning.
fn reciprocal_rank_of_the_best(people: UserBehaviour, weights: &FactorWeights) -> f64 {
    let mut world = SimulatedUsers::new(99, people);
    let n = 2_000_usize;
    let sum: f64 = (0..n)
        .map(|_| {
            let tools = world.ranked_tools(weights);
            let worths = tools.iter().map(|tool| world.worth(tool));
            let best = worths.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            best.map_or(0.0, |(place, _)| 1.0 / to_f64(place + 1))
        })
        .sum();
    sum / to_f64(n)
}

#[test]
fn tuning_improves_later_rankings_for_users_following_ratings() {
    for seed in 1..=2 {
        let (tuned, n_changes) = rounds(RATING_USERS, seed);
        let before = reciprocal_rank_of_the_best(RATING_USERS, &FactorWeights::default());
        let after = reciprocal_rank_of_the_best(RATING_USERS, &tuned);
        println!("seed {seed}: {before:.3} became {after:.3} in {n_changes} changes of 5 runs");
        assert!(
            after > before + 0.08,
            "seed {seed}: {before} became {after} in {n_changes} changes: {tuned:?}"
        );
        let default = FactorWeights::default().of(Factor::UserRating);
        assert!(tuned.of(Factor::UserRating) > default + 0.08, "{tuned:?}");
    }
}

/// Users who choose at random, but read from the top.
fn random_users(impatience: i32) -> UserBehaviour {
    UserBehaviour {
        taste: [0.0; Factor::N],
        impatience,
        n_tools: 5,
    }
}

/// Returns for how many of these seeds the default weights change.
fn n_changed(people: UserBehaviour, n_examples: usize, seeds: std::ops::Range<u64>) -> usize {
    let default = FactorWeights::default();
    let is_changed = |seed: &u64| {
        let examples = SimulatedUsers::new(*seed, people).examples(n_examples, &default);
        let options = TuningOptions {
            seed: *seed,
            ..options(200)
        };
        match tune(&examples, &default, &options) {
            TuningOutcome::Tried(trial) => trial.is_better(),
            TuningOutcome::Settled => false,
            TuningOutcome::TooFew(shortage) => panic!("{shortage}"),
        }
    };
    let n_seeds = seeds.end - seeds.start;
    let n_changed = seeds.filter(is_changed).count();
    println!("{people:?}: weights were changed in {n_changed} of {n_seeds} worlds");
    n_changed
}

#[test]
fn random_choices_with_position_bias_rarely_change_weights() {
    let n_changed = n_changed(random_users(1), 250, 0..100);
    assert!(n_changed <= 5, "{n_changed} of 100");
}

#[test]
fn random_choices_without_position_bias_rarely_change_weights() {
    let n_changed = n_changed(random_users(0), 250, 0..100);
    // The estimated bias is never below zero, so errors go to one side here.
    assert!(n_changed <= 8, "{n_changed} of 100");
}

#[test]
fn weights_matching_the_taste_of_users_are_rarely_changed() {
    let content = UserBehaviour {
        taste: FactorWeights::default().values().map(|weight| 5.0 * weight),
        impatience: 0,
        n_tools: 5,
    };
    let n_changed = n_changed(content, 400, 0..40);
    assert!(n_changed <= 2, "{n_changed} of 40");
}

#[test]
fn position_bias_is_estimated_from_choices() {
    let bias = |impatience| {
        let people = random_users(impatience);
        let examples = SimulatedUsers::new(6, people).examples(400, &FactorWeights::default());
        PositionBias::of(&examples).0
    };
    assert!(bias(0) < 0.3, "{}", bias(0));
    assert!((0.7..1.6).contains(&bias(1)), "{}", bias(1));
}

#[test]
fn a_run_changes_each_weight_by_at_most_one_step() {
    let examples = SimulatedUsers::new(1, RATING_USERS).examples(1_200, &FactorWeights::default());
    let trial = trial(tune(&examples, &FactorWeights::default(), &options(200)));
    assert!(trial.is_better(), "{trial:?}");
    let default = FactorWeights::default();
    let steps = default.values().iter().zip(trial.candidate.values());
    for (before, after) in steps {
        assert!((before - after).abs() <= WeightBounds::STEP + 1e-9);
    }
    assert_eq!((trial.n_training, trial.n_judging), (840, 360));
    assert!(trial.gain.low < trial.gain.difference());
    assert!(trial.gain.difference() < trial.gain.high);
}

#[test]
fn the_same_examples_and_seed_give_the_same_trial() {
    let examples = SimulatedUsers::new(2, RATING_USERS).examples(300, &FactorWeights::default());
    let run = |seed| {
        let options = TuningOptions {
            seed,
            ..options(200)
        };
        trial(tune(&examples, &FactorWeights::default(), &options))
    };
    assert_eq!(run(1), run(1));
    let (one, other) = (run(1), run(2));
    assert_eq!(one.candidate, other.candidate);
    assert_ne!(one.gain.low.to_bits(), other.gain.low.to_bits());
}

#[test]
fn a_shortage_of_examples_is_reported_with_its_numbers() {
    let mut world = SimulatedUsers::new(3, RATING_USERS);
    let examples = world.examples(300, &FactorWeights::default());
    let tune = |examples: &[Example], options: &TuningOptions| {
        super::tune(examples, &FactorWeights::default(), options)
    };
    let shortage = |tuning: TuningOutcome| match tuning {
        TuningOutcome::TooFew(shortage) => shortage.to_string(),
        other => panic!("enough: {other:?}"),
    };
    let few = shortage(tune(&examples, &options(301)));
    assert!(few.starts_with("300 ") && few.contains("301"), "{few}");
    assert!(shortage(tune(&[], &options(0))).starts_with("0 "));
    let judged = TuningOptions {
        judged_until: Some(examples[269].shown_at),
        ..options(200)
    };
    let few = shortage(tune(&examples, &judged));
    assert!(few.starts_with("30 ") && few.contains("60"), "{few}");
    let mut alike = examples.clone();
    let first = alike[0].group;
    for example in &mut alike {
        example.group = first;
    }
    let few = shortage(tune(&alike, &options(200)));
    assert!(few.contains("from 1 work sessions"), "{few}");
}

#[test]
fn examples_of_an_earlier_judgement_are_used_for_training() {
    let examples = SimulatedUsers::new(4, RATING_USERS).examples(400, &FactorWeights::default());
    let judged = TuningOptions {
        judged_until: Some(examples[319].shown_at),
        ..options(200)
    };
    let trial = trial(tune(&examples, &FactorWeights::default(), &judged));
    assert_eq!((trial.n_training, trial.n_judging), (320, 80));
}

#[test]
fn weights_are_settled_without_differences_between_tools() {
    let mut examples =
        SimulatedUsers::new(5, RATING_USERS).examples(300, &FactorWeights::default());
    for tool in examples.iter_mut().flat_map(|example| &mut example.tools) {
        tool.factors = Factors::new([0.5; Factor::N]);
    }
    let tuning = tune(&examples, &FactorWeights::default(), &options(200));
    assert_eq!(tuning, TuningOutcome::Settled);
}

fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("up").unwrap(),
        tool: name.into(),
    }
}

fn recommendation_of(n: u8, names: &[&str]) -> Recommendation {
    let tools = names.iter().map(|name| RecommendedTool {
        tool: tool(name),
        score: 0.5,
        factors: Some(Factors::new([0.5; Factor::N])),
    });
    Recommendation {
        id: RecommendationId::new(NOW, [n; 10]),
        session: None,
        work_session: None,
        principal: Principal::from_name("alice"),
        shown_at: NOW + SignedDuration::from_secs(n.into()),
        intent_hash: crate::privacy::canonical::KeyedHasher::new(&[1; 32]).hash_text("x"),
        intent: None,
        weights: None,
        experiment: None,
        tools: tools.collect(),
    }
}

fn feedback_on(n: u8, name: &str, verdict: Verdict, stars: Option<u8>) -> Feedback {
    let given_at = NOW + SignedDuration::from_mins(n.into());
    Feedback {
        id: FeedbackId::new(given_at, [n; 10]),
        principal: Principal::from_name("alice"),
        session: None,
        work_session: None,
        tool: tool(name),
        verdict,
        rating: stars.map(|stars| Rating::try_from(stars).unwrap()),
        comment: None,
        recommendation: Some(RecommendationId::new(NOW, [1; 10])),
        invocation: None,
        given_at,
    }
}

fn values(feedback: &[Feedback]) -> Vec<f64> {
    let examples = examples(&[recommendation_of(1, &["a", "b", "c"])], feedback);
    let tools = examples.iter().flat_map(|example| &example.tools);
    tools.map(|tool| tool.value).collect()
}

#[test]
fn ratings_outweigh_selections_and_bad_ones_are_negative() {
    let of = |verdict, stars| values(&[feedback_on(1, "b", verdict, stars)]);
    assert_eq!(of(Verdict::Selected, None), [0.0, 1.0, 0.0]);
    assert_eq!(of(Verdict::Selected, Some(3)), [0.0, 1.0, 0.0]);
    assert_eq!(of(Verdict::Selected, Some(5)), [0.0, 2.0, 0.0]);
    assert_eq!(of(Verdict::Selected, Some(4)), [0.0, 1.5, 0.0]);
    for stars in [1, 2] {
        assert_eq!(of(Verdict::Helpful, Some(stars)), [0.0, -1.0, 0.0]);
    }
    assert_eq!(of(Verdict::Irrelevant, None), [0.0, -1.0, 0.0]);
}

#[test]
fn the_latest_rating_of_a_tool_counts() {
    let chosen = feedback_on(1, "a", Verdict::Selected, None);
    let bad = feedback_on(2, "a", Verdict::Unhelpful, None);
    let chosen_again = feedback_on(3, "a", Verdict::Selected, None);
    let good = feedback_on(4, "a", Verdict::Helpful, None);
    let all = [good, chosen_again, bad, chosen];
    assert_eq!(values(&all[3..]), [1.0, 0.0, 0.0]);
    assert_eq!(values(&all[2..]), [-1.0, 0.0, 0.0]);
    assert_eq!(values(&all[1..]), [-1.0, 0.0, 0.0]);
    assert_eq!(values(&all), [1.5, 0.0, 0.0]);
}

#[test]
fn uninformative_feedback_gives_no_example() {
    let chosen = feedback_on(1, "a", Verdict::Selected, None);
    assert_eq!(
        values(&[feedback_on(1, "z", Verdict::Selected, None)]),
        [0.0; 0]
    );
    let mut of_none = chosen.clone();
    of_none.recommendation = None;
    assert_eq!(values(&[of_none]), [0.0; 0]);
    let alone = recommendation_of(1, &["a"]);
    assert_eq!(examples(&[alone], std::slice::from_ref(&chosen)), []);
    let mut unranked = recommendation_of(1, &["a", "b"]);
    unranked.tools[1].factors = None;
    assert_eq!(examples(&[unranked], &[chosen]), []);
}

#[test]
fn examples_come_in_the_order_of_time_with_their_work_session() {
    let mut feedback = Vec::new();
    let mut all = Vec::new();
    for n in [3, 1, 2] {
        let mut one = recommendation_of(n, &["a", "b"]);
        one.session = (n > 1).then(|| SessionId::new(NOW, [7; 10]));
        one.work_session = (n > 2).then(|| WorkSessionId::new(NOW, [8; 10]));
        let mut given = feedback_on(n, "b", Verdict::Selected, None);
        given.recommendation = Some(one.id);
        feedback.push(given);
        all.push(one);
    }
    let examples = examples(&all, &feedback);
    let groups: Vec<ExampleGroup> = examples.iter().map(|example| example.group).collect();
    let expected = [
        ExampleGroup::Alone(RecommendationId::new(NOW, [1; 10])),
        ExampleGroup::Connection(SessionId::new(NOW, [7; 10])),
        ExampleGroup::Work(WorkSessionId::new(NOW, [8; 10])),
    ];
    assert_eq!(groups, expected);
}
