//! The clauses of [`DiscoveryRepository`](crate::analytics::DiscoveryRepository) about recommendations.

use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, moment, odd_texts, recommendation, run, session, tool};

/// A recommendation is read with every value that was recorded; its tools keep their positions.
pub async fn a_recommendation_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut bare = recommendation(id, 3);
    (bare.session, bare.work_session, bare.intent) = (None, None, None);
    (bare.weights, bare.experiment) = (None, None);
    bare.tools.clear();
    let mut all = vec![recommendation(id, 2), bare];
    for (n, text) in (4..).zip(odd_texts()) {
        let mut odd = recommendation(id, n);
        odd.tools[0].tool = tool(&text);
        odd.intent = Some(text);
        all.push(odd);
    }
    let records: Vec<_> = all.iter().cloned().map(Record::Recommended).collect();
    apply(store, &records).await;
    assert_eq!(store.recommendations(u32::MAX).await.unwrap(), all);
    for expected in all {
        let read = store.recommendation(expected.id).await.unwrap();
        assert_eq!(read, Some(expected));
    }
}

/// An unknown recommendation is `None`.
pub async fn an_unknown_recommendation_is_none(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let known = recommendation(id, 2);
    apply(store, &[Record::Recommended(known)]).await;
    let unknown = recommendation(id, 3).id;
    assert_eq!(store.recommendation(unknown).await.unwrap(), None);
}

/// The newest recommendations by identifier come back, oldest first.
pub async fn the_newest_recommendations_come_oldest_first(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let shown = [3, 1, 4, 2].map(|n| {
        let mut shown = recommendation(id, n);
        // Against the order of the identifiers.
        shown.shown_at = moment(9 - i64::from(n));
        Record::Recommended(shown)
    });
    apply(store, &shown).await;
    for (limit, expected) in [(0, &[][..]), (1, &[5]), (3, &[7, 6, 5]), (9, &[8, 7, 6, 5])] {
        let moments: Vec<_> = (store.recommendations(limit).await.unwrap().iter())
            .map(|row| row.shown_at)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(moments, expected, "{limit}");
    }
}

/// The first record of a recommendation stays.
pub async fn the_first_record_of_a_recommendation_stays(store: &impl UsageStore) {
    let first = recommendation(session(run(1), 1).id, 2);
    let mut second = first.clone();
    second.tools.pop();
    let records = [&first, &second].map(|row| Record::Recommended(row.clone()));
    apply(store, &records).await;
    assert_eq!(store.recommendations(9).await.unwrap(), [first]);
}
