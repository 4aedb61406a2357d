//! The clauses of [`ChangeFeed`](crate::analytics::ChangeFeed).

use riglm_domain::catalog::tool_override::OverrideScope;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{
    apply, audit, exclusion, experiment_stop, list_epoch, run, session, snapshot, weights,
};
use crate::analytics::{ClientSelector, Topic};

/// The revision of a topic without changes is 0.
pub async fn topics_that_were_never_changed_have_number_zero(store: &impl UsageStore) {
    assert_eq!(store.revisions().await.unwrap(), [0; Topic::ALL.len()]);
}

/// Each change increases the revision of its topic, and of no other.
pub async fn each_change_makes_the_number_of_its_topic_higher(store: &impl UsageStore) {
    let mut before = store.revisions().await.unwrap();
    let mut expect = async |topic: Topic| {
        let after = store.revisions().await.unwrap();
        for (index, changed) in Topic::ALL.iter().copied().enumerate() {
            if changed == topic {
                assert!(after[index] > before[index], "{topic:?}");
            } else {
                assert_eq!(after[index], before[index], "{changed:?}");
            }
        }
        before = after;
    };
    let row = exclusion(1, "echo", OverrideScope::Global);
    store.set_override(&row, &audit(1)).await.unwrap();
    expect(Topic::Overrides).await;
    store.remove_override(row.id, &audit(2)).await.unwrap();
    expect(Topic::Overrides).await;
    for version in 1..=2 {
        let weights = weights("r", version);
        store.add_weights(&weights, &audit(3)).await.unwrap();
        expect(Topic::Weights).await;
    }
    store.use_weights("r", 1, &audit(4)).await.unwrap();
    expect(Topic::Weights).await;
    for epoch in 1..=2 {
        let epoch = list_epoch("scope", epoch, &["a"]);
        store.begin_epoch(&epoch).await.unwrap();
        expect(Topic::ListEpochs).await;
    }
    for version in 1..=3 {
        store.save_snapshot(&snapshot("m", version)).await.unwrap();
        expect(Topic::Snapshots).await;
    }
    let stop = experiment_stop("e", 1);
    store.stop_experiment(&stop, &audit(5)).await.unwrap();
    expect(Topic::Experiments).await;
}

/// Deleting a client changes the topic of erasures, and the topic of overrides if it had any.
pub async fn removing_a_client_with_overrides_is_a_change(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let scope = OverrideScope::Client(session.client.to_string());
    let clients = ClientSelector(session.client.to_string());
    apply(store, &[Record::SessionOpened(session)]).await;
    let row = exclusion(1, "echo", scope);
    store.set_override(&row, &audit(1)).await.unwrap();
    let before = store.revisions().await.unwrap();
    store.delete(&clients).await.unwrap();
    let after = store.revisions().await.unwrap();
    let changed = Topic::ALL.iter().zip(before.iter().zip(after));
    let changed: Vec<Topic> = changed
        .filter(|(_, (before, after))| after > before)
        .map(|(topic, _)| *topic)
        .collect();
    assert_eq!(changed, [Topic::Overrides, Topic::Erasures]);
}

/// Deleting a client without sessions changes only the topic of epochs, if it had epochs of its
/// own.
pub async fn removing_a_client_with_epochs_is_a_change(store: &impl UsageStore) {
    let client = session(run(1), 1).client;
    let epoch = ListEpoch {
        client: Some(client),
        ..list_epoch("work:a", 1, &["a"])
    };
    store.begin_epoch(&epoch).await.unwrap();
    let clients = ClientSelector(client.to_string());
    for expected in [&[Topic::ListEpochs][..], &[]] {
        let before = store.revisions().await.unwrap();
        store.delete(&clients).await.unwrap();
        let after = store.revisions().await.unwrap();
        let changed = Topic::ALL.iter().zip(before.iter().zip(after));
        let changed: Vec<Topic> = changed
            .filter(|(_, (before, after))| after > before)
            .map(|(topic, _)| *topic)
            .collect();
        assert_eq!(changed, expected);
    }
}
