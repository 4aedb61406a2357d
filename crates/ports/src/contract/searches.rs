//! The clauses of [`DiscoveryRepository`](crate::analytics::DiscoveryRepository) about searches.

use riglm_domain::retrieval::search::{Search, SearchQuality};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, moment, odd_texts, run, search, session, tool};

/// A search is read with every value that was recorded; its results keep their order and scores.
pub async fn a_search_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut all = vec![search(id, 2)];
    for (n, quality) in [(3, SearchQuality::High), (4, SearchQuality::Low)] {
        let mut bare = search(id, n);
        bare.quality = quality;
        bare.query = None;
        bare.results.clear();
        all.push(bare);
    }
    for (n, text) in (5..).zip(odd_texts()) {
        let mut odd = search(id, n);
        odd.results[0].tool = tool(&text);
        odd.query = Some(text);
        all.push(odd);
    }
    let records: Vec<_> = all.iter().cloned().map(Record::Searched).collect();
    apply(store, &records).await;
    assert_eq!(store.searches(Some(id), u32::MAX).await.unwrap(), all);
}

/// The newest searches by identifier are returned, oldest first, of the session or of all.
pub async fn the_newest_searches_come_oldest_first(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let searches = [(one, 4), (two, 6), (one, 3), (one, 5)].map(|(session, n)| Search {
        // Against the order of the identifiers.
        searched_at: moment(20 - i64::from(n)),
        ..search(session, n)
    });
    apply(store, &searches.clone().map(Record::Searched)).await;
    let [four, six, three, five] = &searches;
    for (session, limit, expected) in [
        (None, 0, vec![]),
        (None, 1, vec![six]),
        (None, 3, vec![four, five, six]),
        (None, 9, vec![three, four, five, six]),
        (Some(one), 0, vec![]),
        (Some(one), 2, vec![four, five]),
        (Some(two), 9, vec![six]),
        (Some(super::scene::session(run(1), 3).id), 9, vec![]),
    ] {
        let read = store.searches(session, limit).await.unwrap();
        let read: Vec<_> = read.iter().collect();
        assert_eq!(read, expected, "{session:?} {limit}");
    }
}

/// The first record of a search stays.
pub async fn the_first_record_of_a_search_stays(store: &impl UsageStore) {
    let first = search(session(run(1), 1).id, 2);
    let mut second = first.clone();
    second.results.pop();
    let records = [&first, &second].map(|search| Record::Searched(search.clone()));
    apply(store, &records).await;
    assert_eq!(store.searches(None, 9).await.unwrap(), [first]);
}
