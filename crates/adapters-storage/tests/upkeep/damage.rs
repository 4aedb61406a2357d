//! Damage that a check finds.

use riglm_ports::analytics::{Maintenance as _, RecordSink as _};
use riglm_ports::contract::scene::{run, session};
use sqlx::{AssertSqlSafe, Connection as _};

use super::schema::{self, Schema};
use super::{calls, connect, open};
use riglm_adapters_storage::Store;

#[tokio::test]
async fn counts_inconsistent_with_rows_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    store
        .apply(&calls(&session(run(1), 1), 1..50))
        .await
        .unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    let mut connection = connect(&path).await;
    for damage in [
        "UPDATE call_counts SET n = n + 1 WHERE tool = (SELECT min(key) FROM tools)",
        "DELETE FROM latency_counts",
        "INSERT INTO transition_counts VALUES ('nobody', 1, 2, 3)",
        "UPDATE pair_counts SET last_at = last_at - 1",
    ] {
        sqlx::query(damage).execute(&mut connection).await.unwrap();
        let findings = store.check().await.unwrap();
        let table = damage
            .split_whitespace()
            .find(|word| word.ends_with("_counts"));
        let subjects: Vec<_> = findings.iter().map(|finding| &*finding.subject).collect();
        assert!(!subjects.is_empty(), "{damage}");
        assert!(
            subjects.iter().all(|subject| Some(*subject) == table),
            "{findings:?}"
        );
        store.rebuild().await.unwrap();
        assert_eq!(store.check().await.unwrap(), []);
    }
}

#[tokio::test]
async fn check_reports_twenty_differences_and_the_remaining_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    let mut connection = connect(&path).await;
    sqlx::query(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 25)
        INSERT INTO transition_counts SELECT 'nobody', n, n, 1 FROM numbers",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let findings = store.check().await.unwrap();
    assert_eq!(findings.len(), 21);
    assert_eq!(findings[20].problem, "5 more rows are wrong");
}

#[tokio::test]
async fn dangling_references_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    let mut connection = connect(&path).await;
    for damage in [
        "INSERT INTO tool_sets VALUES ('there', '[]')",
        "INSERT INTO lists_shown VALUES
            (x'01', 1, 'p', 1, 'x', 'missing', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
            (x'02', 1, 'p', 1, 'x', 'there', 1, 'pool', 0, NULL, 'missing', 1, 1, NULL, NULL),
            (x'03', 1, 'p', 1, 'x', 'there', 1, NULL, 0, NULL, 'there', 1, 1, NULL, NULL)",
        "INSERT INTO list_epochs VALUES
            ('one', 1, 'x', 'missing', 1, 'there', 'all', NULL, 0, NULL, NULL, NULL),
            ('two', 1, 'x', 'there', 1, 'missing', 'all', NULL, 0, NULL, NULL, NULL)",
    ] {
        sqlx::query(damage).execute(&mut connection).await.unwrap();
    }
    let findings = store.check().await.unwrap();
    let found: Vec<_> = (findings.iter())
        .map(|finding| (&*finding.subject, &finding.problem[..6]))
        .collect();
    let expected = [
        ("lists_shown", "1 rows"),
        ("lists_shown", "2 rows"),
        ("list_epochs", "1 rows"),
        ("list_epochs", "1 rows"),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn truncated_files_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    store
        .apply(&calls(&session(run(1), 1), 1..2_000))
        .await
        .unwrap();
    store.close().await;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes / 2).unwrap();
    let store = Store::sqlite(path, riglm_adapters_storage::Durability::Process);
    let findings = store.check().await.unwrap();
    assert_ne!(findings, []);
}

#[tokio::test]
async fn overwritten_pages_are_detected() {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    store
        .apply(&calls(&session(run(1), 1), 1..2_000))
        .await
        .unwrap();
    store.close().await;
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let page = 4096 * (file.metadata().unwrap().len() / 4096 - 20);
    file.seek(SeekFrom::Start(page)).unwrap();
    file.write_all(&[0xff; 4096]).unwrap();
    drop(file);
    let store = open(&path).await;
    let findings = store.check().await.unwrap();
    assert_ne!(findings, []);
    assert!(
        findings.iter().any(|finding| finding.subject == "database"),
        "{findings:?}"
    );
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn damage_in_postgres_is_found() {
    let place = Schema::new();
    let store = Store::postgres(place.config());
    store
        .apply(&calls(&session(run(1), 1), 1..50))
        .await
        .unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    let mut connection = sqlx::PgConnection::connect(&schema::url()).await.unwrap();
    let damage = format!("UPDATE {}.call_counts SET n = n + 1", place.config().schema);
    sqlx::query(AssertSqlSafe(damage))
        .execute(&mut connection)
        .await
        .unwrap();
    let findings = store.check().await.unwrap();
    assert_eq!(findings.len(), 3);
    assert!(
        findings
            .iter()
            .all(|finding| finding.subject == "call_counts")
    );
    store.close().await;
}
