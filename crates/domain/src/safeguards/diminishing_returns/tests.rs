use super::*;

/// Rules that are out of reach, so that each sign can be tested alone.
fn rules() -> DiminishingReturnsRules {
    DiminishingReturnsRules {
        overlap: 1.0,
        falling: 100,
        without_call: 100,
    }
}

fn search(query: &str, results: &[&str], top_score: Option<f64>) -> SearchSummary {
    SearchSummary {
        query: normalize_query(query),
        words: query.into(),
        results: ResultSet::of(results),
        top_score,
    }
}

fn names(n: std::ops::Range<usize>) -> Vec<String> {
    n.map(|n| format!("tool_{n}")).collect()
}

fn search_with_results(query: &str, results: std::ops::Range<usize>) -> SearchSummary {
    SearchSummary {
        query: normalize_query(query),
        words: query.into(),
        results: ResultSet::of(names(results)),
        top_score: None,
    }
}

#[test]
fn a_repeated_query_is_a_sign() {
    let mut trail = SearchHistory::default();
    assert_eq!(
        trail.record_search(&search("read a file", &[], None), &rules()),
        None
    );
    assert_eq!(
        trail.record_search(&search("read a book", &[], None), &rules()),
        None
    );
    let again = trail
        .record_search(&search("Read a  FILE?", &[], None), &rules())
        .unwrap();
    assert_eq!(again.signs, [DiminishingSign::SameQuery]);
    assert_eq!(
        again.line(),
        "Searching in circles: you searched for the same before. Tried: \"read a file\", \"read a \
         book\", \"Read a FILE?\". Use what was found, or search for something different."
    );
}

#[test]
fn mostly_known_results_are_a_sign() {
    let rules = DiminishingReturnsRules {
        overlap: 0.8,
        ..rules()
    };
    let sign = |earlier, now| {
        let mut trail = SearchHistory::default();
        assert_eq!(
            trail.record_search(&search_with_results("first", earlier), &rules),
            None
        );
        let circling = trail.record_search(&search_with_results("second", now), &rules);
        circling.map(|circling| circling.signs)
    };
    assert_eq!(sign(0..10, 2..12), None, "8 of 10 are not more than 80 %");
    assert_eq!(
        sign(0..10, 1..11),
        Some(vec![DiminishingSign::SameResults(0.9)])
    );
    assert_eq!(
        sign(0..10, 0..2),
        Some(vec![DiminishingSign::SameResults(1.0)])
    );
    assert_eq!(sign(0..2, 0..10), None, "8 of 10 are new");
    assert_eq!(sign(0..0, 0..0), None, "nothing is not the same as nothing");
}

#[test]
fn results_are_compared_with_each_earlier_search_of_the_row() {
    let rules = DiminishingReturnsRules {
        overlap: 0.8,
        ..rules()
    };
    let mut trail = SearchHistory::default();
    for (query, results) in [("a", 0..5), ("b", 5..10)] {
        assert_eq!(
            trail.record_search(&search_with_results(query, results), &rules),
            None
        );
    }
    // Each earlier search had half of the results.
    assert_eq!(
        trail.record_search(&search_with_results("c", 2..8), &rules),
        None
    );
    assert!(
        trail
            .record_search(&search_with_results("d", 0..5), &rules)
            .is_some()
    );
}

#[test]
fn three_falling_scores_in_a_row_are_a_sign() {
    let rules = DiminishingReturnsRules {
        falling: 3,
        ..rules()
    };
    let signs = |scores: &[Option<f64>]| {
        let mut trail = SearchHistory::default();
        let circling = scores.iter().enumerate().map(|(n, score)| {
            let seen = search(&n.to_string(), &[], *score);
            trail.record_search(&seen, &rules).map(|it| it.signs)
        });
        circling.last().flatten()
    };
    let three = Some(vec![DiminishingSign::FallingScores(3)]);
    assert_eq!(signs(&[Some(0.9), Some(0.8)]), None);
    assert_eq!(signs(&[Some(0.9), Some(0.8), Some(0.7)]), three);
    assert_eq!(
        signs(&[Some(0.9), Some(0.8), Some(0.8)]),
        None,
        "not falling"
    );
    assert_eq!(signs(&[Some(0.9), Some(0.8), Some(0.85)]), None);
    assert_eq!(signs(&[Some(0.9), None, Some(0.7)]), None, "not known");
    assert_eq!(signs(&[Some(0.9), Some(f64::NAN), Some(0.7)]), None);
    assert_eq!(signs(&[Some(0.1), Some(0.9), Some(0.8), Some(0.7)]), three);
    let four = signs(&[Some(0.9), Some(0.8), Some(0.7), Some(0.6)]);
    assert_eq!(four, Some(vec![DiminishingSign::FallingScores(4)]));
}

#[test]
fn three_searches_without_a_call_are_a_sign() {
    let rules = DiminishingReturnsRules {
        without_call: 3,
        ..rules()
    };
    let mut trail = SearchHistory::default();
    let mut said = |query: &str| {
        let circling = trail.record_search(&search(query, &[], None), &rules);
        circling.map(|circling| (circling.advice, circling.signs))
    };
    assert_eq!((said("a"), said("b")), (None, None));
    let third = (
        DiminishingAdvice::Warning,
        vec![DiminishingSign::WithoutCall(3)],
    );
    assert_eq!(said("c"), Some(third));
    let fourth = (
        DiminishingAdvice::AskUser,
        vec![DiminishingSign::WithoutCall(4)],
    );
    assert_eq!(said("d"), Some(fourth));
    assert!(trail.is_warned());
    assert_eq!(trail.record_call(), 4);
    assert_eq!((trail.n_in_row(), trail.is_warned()), (0, false));
    let mut said = |query: &str| {
        let circling = trail.record_search(&search(query, &[], None), &rules);
        circling.map(|circling| circling.advice)
    };
    assert_eq!(
        (said("a"), said("b")),
        (None, None),
        "words of an earlier row may come again"
    );
    assert_eq!(said("c"), Some(DiminishingAdvice::Warning));
}

#[test]
fn the_third_search_warns_and_the_fourth_advises_to_ask() {
    let mut trail = SearchHistory::default();
    let rules = DiminishingReturnsRules::default();
    let advice: Vec<_> = ([
        "send mail",
        "mail a letter",
        "write to someone",
        "contact a person",
    ]
    .iter())
    .enumerate()
    .map(|(n, query)| trail.record_search(&search_with_results(query, n * 10..n * 10 + 10), &rules))
    .collect();
    let advice: Vec<_> = advice
        .iter()
        .map(|it| it.as_ref().map(|it| it.advice))
        .collect();
    let (warning, ask) = (
        Some(DiminishingAdvice::Warning),
        Some(DiminishingAdvice::AskUser),
    );
    assert_eq!(advice, [None, None, warning, ask]);
}

#[test]
fn searches_with_calls_between_them_give_no_warning() {
    let mut trail = SearchHistory::default();
    for n in 0..50 {
        let mut seen = search_with_results(&format!("query {n}"), n * 10..n * 10 + 10);
        // Each search fits worse, which is no sign after a call.
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let score = 1.0 - n as f64 / 100.0;
        seen.top_score = Some(score);
        assert_eq!(
            trail.record_search(&seen, &DiminishingReturnsRules::default()),
            None
        );
        assert_eq!(trail.record_call(), 1);
    }
}

#[test]
fn the_last_queries_are_quoted_and_the_row_is_bounded() {
    let mut trail = SearchHistory::default();
    let mut last = None;
    for n in 1..=1_000 {
        last = trail.record_search(
            &search(&format!("q{n}"), &[], None),
            &DiminishingReturnsRules::default(),
        );
    }
    let last = last.unwrap();
    assert_eq!(last.signs, [DiminishingSign::WithoutCall(1_000)]);
    assert_eq!(trail.row.len(), MAX_REMEMBERED);
    let line = last.line();
    assert!(
        line.contains(r#"Tried: "q996", "q997", "q998", "q999", "q1000"."#),
        "{line}"
    );
    assert!(line.ends_with("ask the user: say what was tried and what is missing."));
}

#[test]
fn each_sign_has_its_name() {
    let all = [
        DiminishingSign::SameQuery,
        DiminishingSign::SameResults(0.9),
        DiminishingSign::FallingScores(3),
        DiminishingSign::WithoutCall(3),
    ];
    assert_eq!(all.map(DiminishingSign::name), DiminishingSign::NAMES);
}
