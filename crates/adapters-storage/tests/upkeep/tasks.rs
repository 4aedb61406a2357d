//! Tasks among several stores in one place.

use riglm_adapters_storage::{Durability, Store};
use riglm_ports::analytics::{Maintenance as _, MaintenanceGuard, MaintenanceTask};

use super::open;
use super::schema::Schema;

#[tokio::test]
async fn a_task_has_one_holder_among_stores_in_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    one_of_two_holds(open(&path).await, open(&path).await).await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let lock = std::fs::metadata(dir.path().join("riglm.db.retention.lock")).unwrap();
        assert_eq!(lock.permissions().mode() & 0o777, 0o600);
    }
    // A file that a dead process left is no holder.
    let later = Store::sqlite(path, Durability::Process);
    assert!(begun(&later).await.is_some());
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_task_has_one_holder_among_stores_in_one_schema() {
    let (place, other) = (Schema::new(), Schema::new());
    let elsewhere = Store::postgres(other.config());
    let held = begun(&elsewhere).await;
    one_of_two_holds(
        Store::postgres(place.config()),
        Store::postgres(place.config()),
    )
    .await;
    assert!(held.is_some());
}

async fn one_of_two_holds(one: Store, other: Store) {
    let held = begun(&one).await;
    assert!(held.is_some());
    assert!(begun(&other).await.is_none());
    assert!(
        other
            .try_begin(MaintenanceTask::Learning)
            .await
            .unwrap()
            .is_some()
    );
    drop(held);
    let mut held = begun(&other).await;
    // A server may take a moment to hear of it.
    for _ in 0..1_000 {
        if held.is_some() {
            break;
        }
        held = begun(&other).await;
    }
    assert!(held.is_some());
    assert!(begun(&one).await.is_none());
}

async fn begun(store: &Store) -> Option<Box<dyn MaintenanceGuard>> {
    store.try_begin(MaintenanceTask::Retention).await.unwrap()
}
