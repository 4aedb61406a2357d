//! The clauses of [`DiscoveryRepository`](crate::analytics::DiscoveryRepository) about feedback.

use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::feedback::{Feedback, Rating, Verdict};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, feedback, moment, odd_texts, run, session, tool};

/// Feedback is read with every value that was recorded, of each verdict and rating.
pub async fn feedback_is_read_as_it_was_given(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut all = Vec::new();
    for (n, &verdict) in (2..).zip(Verdict::ALL) {
        let mut bare = feedback(id, n, "a");
        bare.verdict = verdict;
        (bare.session, bare.work_session) = (None, None);
        (bare.rating, bare.comment) = (None, None);
        (bare.recommendation, bare.invocation) = (None, None);
        all.push(bare);
    }
    for stars in 1..=5 {
        let mut rated = feedback(id, 10 + stars, "a");
        rated.rating = Some(Rating::try_from(stars).unwrap());
        all.push(rated);
    }
    give(store, &all).await;
    assert_eq!(store.feedback(None, None, u32::MAX).await.unwrap(), all);
}

/// The newest pieces of feedback by identifier come back, oldest first.
pub async fn the_newest_feedback_comes_oldest_first(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let given = [3, 1, 4, 2].map(|n| Feedback {
        // Against the order of the identifiers.
        given_at: moment(9 - i64::from(n)),
        ..feedback(id, n, "a")
    });
    give(store, &given).await;
    let tool = tool("a");
    for (limit, expected) in [(0, &[][..]), (1, &[5]), (3, &[7, 6, 5]), (9, &[8, 7, 6, 5])] {
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        for tool in [None, Some(&tool)] {
            let rows = store.feedback(None, tool, limit).await.unwrap();
            let moments: Vec<_> = rows.iter().map(|row| row.given_at).collect();
            assert_eq!(moments, expected, "{limit}");
        }
    }
}

/// Only feedback on the requested tool is read, by upstream and any name.
pub async fn only_feedback_on_the_tool_is_read(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut all: Vec<_> = (2..)
        .zip(odd_texts())
        .map(|(n, name)| feedback(id, n, &name))
        .collect();
    let mut elsewhere = feedback(id, 100, "a");
    elsewhere.tool.upstream = UpstreamName::parse("UP-1.X").unwrap();
    all.push(elsewhere);
    give(store, &all).await;
    for expected in all {
        let rows = store.feedback(None, Some(&expected.tool), 9).await.unwrap();
        assert_eq!(rows, [expected]);
    }
    let nobody = store.feedback(None, Some(&tool("nobody's")), 9).await;
    assert_eq!(nobody.unwrap(), []);
}

/// Only feedback of the requested principal is read, on all tools or on one.
pub async fn only_feedback_of_the_principal_is_read(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    // PostgreSQL has an index of the beginnings of names.
    let long = |end: &str| Principal::from_name(&format!("{}{end}", "p".repeat(300)));
    let (one, two) = (long("one"), long("two"));
    let given = [
        (2, &one, "a"),
        (3, &two, "a"),
        (4, &one, "b"),
        (5, &one, "a"),
    ];
    let given = given.map(|(n, principal, name)| Feedback {
        principal: principal.clone(),
        ..feedback(id, n, name)
    });
    give(store, &given).await;
    let [first, _, other_tool, last] = given;
    let of_one = store.feedback(Some(&one), None, 9).await.unwrap();
    assert_eq!(of_one, [first.clone(), other_tool, last.clone()]);
    let tool = tool("a");
    let on_tool = store.feedback(Some(&one), Some(&tool), 9).await.unwrap();
    assert_eq!(on_tool, [first, last.clone()]);
    assert_eq!(store.feedback(Some(&one), None, 1).await.unwrap(), [last]);
    let nobody = Principal::from_name("nobody");
    assert_eq!(store.feedback(Some(&nobody), None, 9).await.unwrap(), []);
}

/// The first record of a piece of feedback stays.
pub async fn the_first_record_of_feedback_stays(store: &impl UsageStore) {
    let first = feedback(session(run(1), 1).id, 2, "a");
    let mut second = first.clone();
    second.verdict = Verdict::Helpful;
    give(store, &[first.clone(), second]).await;
    assert_eq!(store.feedback(None, None, 9).await.unwrap(), [first]);
}

async fn give(store: &impl UsageStore, all: &[Feedback]) {
    let records: Vec<_> = all.iter().cloned().map(Record::FeedbackGiven).collect();
    apply(store, &records).await;
}
