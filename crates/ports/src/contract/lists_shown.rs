//! The clauses of [`ListRepository`](crate::analytics::ListRepository) about lists.

use riglm_domain::selection::ExpectedCoverage;
use riglm_domain::selection::shown::{
    ListShown, SelectionDetails, SelectionMode, SelectionReason, ToolSet,
};
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, expected_coverage, list_shown, moment, run, session, size_choice};

/// A list is read with every value that was recorded, its tools in their order.
pub async fn a_list_is_read_as_it_was_shown(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let full = list_shown(id, 2);
    let mut empty = list_shown(id, 3);
    empty.tools = ToolSet::new(Vec::new());
    (empty.epoch, empty.n_available) = (0, 0);
    let mut plain = list_shown(id, 4);
    plain.selection = None;
    let records = [&full, &empty, &plain].map(|list| Record::ListShown(list.clone()));
    apply(store, &records).await;
    let read = store.lists_shown(id, 9).await.unwrap();
    assert_eq!(read, [full, empty, plain]);
}

/// The selection details of a list are read as recorded, for every selection mode.
pub async fn how_a_list_was_chosen_is_read(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut lists = Vec::new();
    let reasons = SelectionReason::ALL.iter().copied().map(Some).chain([None]);
    for (n, (mode, reason)) in (2..).zip(SelectionMode::ALL.iter().copied().cycle().zip(reasons)) {
        let mut list = list_shown(id, n);
        list.selection = Some(SelectionDetails {
            mode,
            is_fallback: n % 2 == 0,
            reason,
            size_choice: (n % 3 == 0).then(size_choice),
            expected_coverage: (n % 2 == 0).then(expected_coverage),
            pool: ToolSet::new(Vec::new()),
            shown_tokens: n.into(),
            available_tokens: 0,
        });
        lists.push(list);
    }
    let records: Vec<_> = lists.iter().cloned().map(Record::ListShown).collect();
    apply(store, &records).await;
    assert_eq!(store.lists_shown(id, 99).await.unwrap(), lists);
}

/// The expected coverage of a list is read exactly as recorded, from 0 to 1, or as none. Activities
/// have it, too.
pub async fn the_expected_coverage_of_a_list_is_read(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let shares = [0.0, 1e-6, 0.000_123, 1.0 / 3.0, 0.3, 0.999_999, 1.0];
    let shares = shares.map(|share| Some(ExpectedCoverage::try_from(share).unwrap()));
    let expected: Vec<_> = shares.into_iter().chain([None]).collect();
    let lists: Vec<ListShown> = (2..)
        .zip(&expected)
        .map(|(n, expected)| {
            let mut list = list_shown(id, n);
            list.selection.as_mut().unwrap().expected_coverage = *expected;
            list
        })
        .collect();
    let records: Vec<_> = lists.iter().cloned().map(Record::ListShown).collect();
    apply(store, &records).await;
    assert_eq!(store.lists_shown(id, 99).await.unwrap(), lists);
    let activities = store.list_activities(&[id], 99).await.unwrap();
    let read: Vec<_> = (activities[&id].lists.iter())
        .map(|list| list.expected_coverage)
        .collect();
    assert_eq!(read, expected);
}

/// The newest lists of the session by moment are returned, oldest first, and no others.
pub async fn the_newest_lists_of_a_session_come_oldest_first(store: &impl UsageStore) {
    let (asked, other) = (session(run(1), 1).id, session(run(1), 2).id);
    let records = [(asked, 4), (other, 9), (asked, 3), (asked, 5)]
        .map(|(session, n)| Record::ListShown(list_shown(session, n)));
    apply(store, &records).await;
    for (limit, expected) in [(0, &[][..]), (1, &[5]), (2, &[4, 5]), (9, &[3, 4, 5])] {
        let moments: Vec<_> = (store.lists_shown(asked, limit).await.unwrap().iter())
            .map(|list| list.shown_at)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(moments, expected, "{limit}");
    }
    let nobody = session(run(1), 3).id;
    assert_eq!(store.lists_shown(nobody, 9).await.unwrap(), []);
}

/// If several lists of a session have the same moment, the first recorded one is kept.
pub async fn of_one_moment_the_first_list_is_kept(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let first = list_shown(one, 2);
    let mut second = first.clone();
    second.policy = "another".into();
    let other = list_shown(two, 2);
    let records = [&first, &second, &other].map(|list| Record::ListShown(list.clone()));
    apply(store, &records).await;
    assert_eq!(store.lists_shown(one, 9).await.unwrap(), [first]);
    assert_eq!(store.lists_shown(two, 9).await.unwrap(), [other]);
}
