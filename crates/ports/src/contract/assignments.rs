//! The clauses of [`ExperimentRepository`](crate::analytics::ExperimentRepository) about assignments.

use super::UsageStore;
use super::scene::{assignment, moment, odd_texts};

/// A subject without an arm is assigned to the proposed arm.
pub async fn a_subject_is_assigned_to_the_proposed_arm(store: &impl UsageStore) {
    let proposed = assignment("colour", "alice", "green");
    assert_eq!(store.assign(&proposed).await.unwrap(), proposed);
    assert_eq!(store.assignments("colour").await.unwrap(), [proposed]);
}

/// A subject with an arm keeps it.
pub async fn a_subject_keeps_its_arm(store: &impl UsageStore) {
    let first = assignment("colour", "alice", "green");
    let mut second = assignment("colour", "alice", "red");
    second.assigned_at = moment(9);
    store.assign(&first).await.unwrap();
    assert_eq!(store.assign(&second).await.unwrap(), first);
    assert_eq!(store.assign(&first).await.unwrap(), first);
    assert_eq!(store.assignments("colour").await.unwrap(), [first]);
}

/// Assignments of an experiment are ordered by subject, without assignments of other experiments.
pub async fn assignments_are_ordered_by_subject(store: &impl UsageStore) {
    let mut expected: Vec<_> = (odd_texts().iter())
        .map(|subject| assignment("colour\u{0}", subject, subject))
        .collect();
    for assignment in &expected {
        store.assign(assignment).await.unwrap();
    }
    let elsewhere = assignment("colour", "alice", "red");
    store.assign(&elsewhere).await.unwrap();
    expected.sort_by(|a, b| a.subject.cmp(&b.subject));
    let read = store.assignments("colour\u{0}").await.unwrap();
    assert_eq!(read, expected);
    assert_eq!(store.assignments("colour").await.unwrap(), [elsewhere]);
    assert_eq!(store.assignments("nothing").await.unwrap(), []);
}
