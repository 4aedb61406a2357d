//! The lock of maintenance tasks between several stores on one database.

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
    // A lock file of a dead process does not hold the task.
    let later = Store::sqlite(path, Durability::Process);
    assert!(begin_task(&later).await.is_some());
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_task_has_one_holder_among_stores_in_one_schema() {
    let (place, other) = (Schema::new(), Schema::new());
    let elsewhere = Store::postgres(other.config());
    let held = begin_task(&elsewhere).await;
    one_of_two_holds(
        Store::postgres(place.config()),
        Store::postgres(place.config()),
    )
    .await;
    assert!(held.is_some());
}

async fn one_of_two_holds(one: Store, other: Store) {
    let held = begin_task(&one).await;
    assert!(held.is_some());
    assert!(begin_task(&other).await.is_none());
    assert!(
        other
            .try_begin(MaintenanceTask::Learning)
            .await
            .unwrap()
            .is_some()
    );
    drop(held);
    let mut held = begin_task(&other).await;
    // The server may need a moment to notice the end of the connection.
    for _ in 0..1_000 {
        if held.is_some() {
            break;
        }
        held = begin_task(&other).await;
    }
    assert!(held.is_some());
    assert!(begin_task(&one).await.is_none());
}

async fn begin_task(store: &Store) -> Option<Box<dyn MaintenanceGuard>> {
    store.try_begin(MaintenanceTask::Retention).await.unwrap()
}
