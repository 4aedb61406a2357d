//! Purges of large stores, and interrupted purges.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;

use jiff::Timestamp;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Maintenance as _, RecordSink as _, UsageRepository,
};
use riglm_ports::contract::scene::{moment, run, session};

use super::{calls, open};

#[tokio::test]
async fn write_ahead_log_stays_small_during_large_purges() {
    const N_CALLS: u32 = 100_000;
    /// The size of the log at which SQLite writes it back to the file, plus one step.
    const MAX_WAL_BYTES: u64 = 16 * 1024 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let wal = dir.path().join("riglm.db-wal");
    let store = open(&path).await;
    let session = session(run(1), 1);
    store
        .apply(&[Record::SessionOpened(session.clone())])
        .await
        .unwrap();
    for first in (0..N_CALLS).step_by(10_000) {
        store
            .apply(&calls(&session, first..first + 10_000))
            .await
            .unwrap();
    }
    // Closing moves the rest of the log into the file.
    store.close().await;
    let file_bytes = std::fs::metadata(&path).unwrap().len();
    let store = open(&path).await;
    let mut n_steps = 0;
    loop {
        let purged = store.purge(moment(1_000_000), 2_000).await.unwrap();
        n_steps += 1;
        let wal_bytes = std::fs::metadata(&wal).unwrap().len();
        assert!(
            wal_bytes < MAX_WAL_BYTES,
            "{wal_bytes} bytes in step {n_steps}"
        );
        if purged.is_done {
            break;
        }
    }
    assert_eq!(
        n_steps,
        N_CALLS / 2_000 + 1,
        "the session goes in the last step"
    );
    let all = InvocationFilter::default();
    assert_eq!(store.count(&all).await.unwrap(), 0);
    assert_eq!(counts(&store).await, "[][][][]");
    assert_eq!(std::fs::metadata(&wal).unwrap().len(), 0);
    // The space of purged rows is reused.
    let n = N_CALLS;
    store.apply(&calls(&session, n..n + 10_000)).await.unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= file_bytes);
    store.close().await;
}

#[tokio::test]
async fn interrupted_purges_leave_correct_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("riglm.db")).await;
    let session = session(run(1), 1);
    store.apply(&calls(&session, 1..200)).await.unwrap();
    let (mut n_cut_off, mut n_polls) = (0, 0);
    loop {
        let mut purging = pin!(store.purge(moment(150), 10));
        let mut finished = None;
        for _ in 0..=n_polls {
            let step = poll_fn(|context| Poll::Ready(purging.as_mut().poll(context))).await;
            if let Poll::Ready(purged) = step {
                finished = Some(purged.unwrap());
                break;
            }
            tokio::task::yield_now().await;
        }
        match finished {
            Some(purged) if purged.is_done => break,
            Some(_) => n_polls = 0,
            // The future is dropped at each await point in turn.
            None => {
                n_cut_off += 1;
                n_polls += 1;
            }
        }
    }
    assert!(n_cut_off > 5, "{n_cut_off} purges were cut off");
    let all = InvocationFilter::default();
    assert_eq!(store.count(&all).await.unwrap(), 50);
    let kept = counts(&store).await;
    assert_eq!(store.check().await.unwrap(), []);
    store.rebuild().await.unwrap();
    assert_eq!(counts(&store).await, kept);
}

async fn counts(store: &impl UsageRepository) -> String {
    let frequencies = store.frequencies(None, Timestamp::MIN).await.unwrap();
    let statistics = store.statistics(None, None, Timestamp::MIN).await.unwrap();
    let transitions = store.transitions(None, None).await.unwrap();
    let pairs = store.cooccurrences(None, None).await.unwrap();
    format!("{frequencies:?}{statistics:?}{transitions:?}{pairs:?}")
}
