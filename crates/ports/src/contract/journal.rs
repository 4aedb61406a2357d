//! The clauses of [`Journal`].

use std::fmt;

use futures_util::future::join_all;
use riglm_domain::usage::record::Record;

use super::scene::{call, run, session};
use super::until;
use crate::analytics::{Journal, JournalCondition};

/// A journal over a database that a test controls.
pub trait JournalScene: Send + Sync + fmt::Debug {
    /// Returns the journal.
    fn journal(&self) -> &dyn Journal;

    /// Returns all records that became rows, in the order in which they were applied.
    fn applied(&self) -> Vec<Record>;

    /// Makes the database refuse all records, or accept them again.
    fn set_failing(&self, is_failing: bool);

    /// Returns whether the journal accepts records while the database refuses them.
    fn outlasts_failures(&self) -> bool {
        true
    }
}

/// Expands to a module with one `tokio::test` for each clause of a journal.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// [`JournalScene`](crate::contract::journal::JournalScene).
#[macro_export]
macro_rules! journal_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(journal [$(#[$attribute])*] $fresh;
                records_become_rows_in_the_order_of_the_calls,
                records_of_several_callers_all_become_rows,
                records_that_are_appended_together_keep_their_order,
                a_journal_outlasts_a_failing_database,
                the_condition_follows_the_database,
            );
        }
    };
}

fn records() -> Vec<Record> {
    let session = session(run(1), 1);
    let id = session.id;
    let calls = (2..60).map(|n| Record::CallOpened(call(id, n)));
    std::iter::once(Record::SessionOpened(session))
        .chain(calls)
        .collect()
}

async fn until_applied(scene: &impl JournalScene, n: usize) -> Vec<Record> {
    until(|| Some(scene.applied()).filter(|applied| applied.len() >= n)).await
}

/// Records become rows in the order of the calls, without another call.
pub async fn records_become_rows_in_the_order_of_the_calls(scene: &impl JournalScene) {
    let records = records();
    for record in &records {
        scene.journal().append(record).await.unwrap();
    }
    assert_eq!(until_applied(scene, records.len()).await, records);
}

/// Records that are appended together become rows in their order, each once.
pub async fn records_that_are_appended_together_keep_their_order(scene: &impl JournalScene) {
    let records = records();
    scene.journal().append_all(&records).await.unwrap();
    assert_eq!(until_applied(scene, records.len()).await, records);
}

/// Records of several callers at a time all become rows, each once.
pub async fn records_of_several_callers_all_become_rows(scene: &impl JournalScene) {
    let records = records();
    let appending = records.iter().map(|record| scene.journal().append(record));
    for appended in join_all(appending).await {
        appended.unwrap();
    }
    let applied = until_applied(scene, records.len()).await;
    assert_eq!(applied.len(), records.len());
    for record in &records {
        assert!(applied.contains(record), "{record:?} is missing");
    }
}

/// Records that are accepted while the database refuses them become rows afterwards, in order and
/// without another call.
pub async fn a_journal_outlasts_a_failing_database(scene: &impl JournalScene) {
    if !scene.outlasts_failures() {
        return;
    }
    scene.set_failing(true);
    let records = records();
    for record in &records {
        scene.journal().append(record).await.unwrap();
    }
    assert_eq!(scene.applied(), []);
    scene.set_failing(false);
    assert_eq!(until_applied(scene, records.len()).await, records);
}

/// A journal is sound while records become rows, behind while the database refuses them, and sound
/// again afterwards, without another call.
pub async fn the_condition_follows_the_database(scene: &impl JournalScene) {
    let is_sound = || scene.journal().condition() == JournalCondition::Sound;
    assert!(is_sound());
    scene.set_failing(true);
    // A journal that needs the database at once refuses the record.
    let _ = scene.journal().append(&records()[0]).await;
    until(|| (!is_sound()).then_some(())).await;
    scene.set_failing(false);
    until(|| is_sound().then_some(())).await;
}
