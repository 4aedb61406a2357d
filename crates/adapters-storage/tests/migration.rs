//! Migrations of databases of older versions, also after crashes.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

#[path = "place/schema.rs"]
mod schema;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use riglm_adapters_storage::{Durability, Store};
use riglm_domain::id::SessionId;
use riglm_domain::selection::shown::SelectionMode;
use riglm_ports::analytics::{
    DiscoveryRepository as _, InvocationFilter, InvocationRepository as _,
    ListEpochRepository as _, ListRepository as _, Maintenance as _, ServerMemoryRepository as _,
    SessionRepository as _, StoreError, UsageRepository as _,
};
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::schema::Schema;

const N_CALLS: u64 = 30_000;
const N_SESSIONS: u64 = 50;

/// The name of the database in the working directory of the child process.
const FILE: &str = "riglm.db";

/// Returns the migrations of version 1.
async fn version_1(dialect: &str) -> Migrator {
    migrations(dialect, &["0001_usage.sql"]).await
}

/// Returns the migrations up to version 3.
async fn version_3(dialect: &str) -> Migrator {
    let names = ["0001_usage.sql", "0002_store.sql", "0003_memory.sql"];
    migrations(dialect, &names).await
}

/// Returns the migrations up to version 5.
async fn version_5(dialect: &str) -> Migrator {
    let names = [
        "0001_usage.sql",
        "0002_store.sql",
        "0003_memory.sql",
        "0004_selection.sql",
        "0005_approvals.sql",
    ];
    migrations(dialect, &names).await
}

async fn migrations(dialect: &str, names: &[&str]) -> Migrator {
    let dir = tempfile::tempdir().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    for name in names {
        std::fs::copy(all.join(dialect).join(name), dir.path().join(name)).unwrap();
    }
    Migrator::new(dir.path()).await.unwrap()
}

/// Creates a database of version 1.
async fn make_sqlite(path: &Path) {
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    version_1("sqlite")
        .await
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let rows = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {N_SESSIONS})
        INSERT INTO sessions SELECT unhex(printf('%032x', n)), zeroblob(16), 'alice', zeroblob(16),
            'client', '1', '2025-11-25', 'stdio', n, n + 1 FROM n;
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {N_CALLS})
        INSERT INTO invocations SELECT unhex(printf('%032x', n)),
            unhex(printf('%032x', n % {N_SESSIONS} + 1)), 'alice', 'up', 'tool ' || (n % 7),
            zeroblob(16), NULL, n * 1000000, n / {N_SESSIONS} + 1, 'shown', 10, 'ok', n, 20, NULL
        FROM n"
    );
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
}

async fn make_postgres(schema: &Schema) {
    let mut connection = sqlx::PgConnection::connect(&schema::url()).await.unwrap();
    let name = schema.config().schema;
    let create = format!("CREATE SCHEMA {name}; SET search_path = {name}");
    connection.execute(AssertSqlSafe(create)).await.unwrap();
    version_1("postgres")
        .await
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let rows = format!(
        "INSERT INTO sessions SELECT lpad(to_hex(n), 32, '0')::uuid,
            '00000000-0000-0000-0000-000000000000', 'alice', decode(repeat('00', 16), 'hex'),
            'client', '1', '2025-11-25', 'stdio', n, n + 1 FROM generate_series(1, {N_SESSIONS}) n;
        INSERT INTO invocations SELECT lpad(to_hex(n), 32, '0')::uuid,
            lpad(to_hex(n % {N_SESSIONS} + 1), 32, '0')::uuid, 'alice', 'up', 'tool ' || (n % 7),
            decode(repeat('00', 16), 'hex'), NULL, n * 1000000::bigint, n / {N_SESSIONS} + 1,
            'shown', 10, 'ok', n, 20, NULL FROM generate_series(1, {N_CALLS}) n"
    );
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
}

/// Asserts that all rows exist and are counted.
async fn assert_up_to_date(store: &Store) {
    store.open().await.unwrap();
    let all = InvocationFilter::default();
    assert_eq!(store.count(&all).await.unwrap(), N_CALLS);
    assert_eq!(
        store.sessions(u32::MAX).await.unwrap().len() as u64,
        N_SESSIONS
    );
    let counted = store
        .frequencies(None, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    assert_eq!(
        counted.iter().map(|tool| tool.n_calls).sum::<u64>(),
        N_CALLS
    );
    assert_eq!(counted.len(), 7);
    let pairs = store.cooccurrences(None, None).await.unwrap();
    assert_eq!(pairs.len(), 7 * 6 / 2);
    assert!(pairs.iter().all(|pair| pair.count == N_SESSIONS));
    let calls = store.invocations(&all, 1).await.unwrap();
    let end = calls[0].end.as_ref().unwrap();
    assert!(end.duration_us > 0 && end.wait_us == 0, "{end:?}");
    let up = [calls[0].invocation.upstream.clone()];
    assert_eq!(store.recall_servers(&up).await.unwrap(), []);
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn calls_of_an_older_version_are_kept_and_counted_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    make_sqlite(&path).await;
    let store = Store::sqlite(path.clone(), Durability::Process);
    assert_up_to_date(&store).await;
    store.close().await;
    let copy = dir.path().join("riglm.db.v1.backup");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&copy);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let (version, n_calls): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT max(version) FROM _sqlx_migrations), (SELECT count(*) FROM invocations)",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!((version, n_calls.unsigned_abs()), (1, N_CALLS));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn calls_of_an_older_version_are_kept_and_counted_in_postgres() {
    let schema = Schema::new();
    make_postgres(&schema).await;
    assert_up_to_date(&Store::postgres(schema.config())).await;
}

/// A list and an epoch of version 3.
const LISTS_OF_VERSION_3: &str = "
    INSERT INTO tool_sets VALUES ('one', '[[\"up\",\"a\"]]');
    INSERT INTO lists_shown VALUES (
        ID, 1000000, 'alice', 2, 'sticky', 'one', 7);
    INSERT INTO list_epochs VALUES ('shared', 2, 'sticky', 'one', 1000000)";

/// Asserts that the lists of version 3 are kept, and that new columns have their defaults.
async fn assert_lists_are_kept(store: &Store) {
    store.open().await.unwrap();
    let session: SessionId = "019b7ca9-8c88-7909-8909-090909090909".parse().unwrap();
    let lists = store.lists_shown(session, 9).await.unwrap();
    assert_eq!(lists.len(), 1);
    assert_eq!((lists[0].n_available, &lists[0].selection), (7, &None));
    assert_eq!(lists[0].tools.tools().len(), 1);
    let epoch = store.list_epoch("shared").await.unwrap().unwrap();
    assert_eq!((epoch.epoch, epoch.policy.as_str()), (2, "sticky"));
    assert_eq!(epoch.known, epoch.tools);
    assert_eq!((epoch.mode, epoch.reason), (SelectionMode::All, None));
    assert_eq!((epoch.search_first, epoch.client), (false, None));
    assert_eq!((epoch.size_choice, epoch.expected_coverage), (None, None));
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn lists_of_an_older_version_are_kept_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let migrator = version_3("sqlite").await;
    migrator
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let id = "x'019b7ca98c8879098909090909090909'";
    let rows = LISTS_OF_VERSION_3.replace("ID", id);
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
    assert_lists_are_kept(&Store::sqlite(path, Durability::Process)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn lists_of_an_older_version_are_kept_in_postgres() {
    let schema = Schema::new();
    let mut connection = sqlx::PgConnection::connect(&schema::url()).await.unwrap();
    let name = schema.config().schema;
    let create = format!("CREATE SCHEMA {name}; SET search_path = {name}");
    connection.execute(AssertSqlSafe(create)).await.unwrap();
    let migrator = version_3("postgres").await;
    migrator
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let id = "'019b7ca9-8c88-7909-8909-090909090909'";
    let rows = LISTS_OF_VERSION_3.replace("ID", id);
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
    assert_lists_are_kept(&Store::postgres(schema.config())).await;
}

/// A recommendation and feedback of version 5.
const SAYINGS_OF_VERSION_5: &str = "
    INSERT INTO recommendations VALUES (
        ID, NULL, 'alice', 1000000, HASH, NULL, 4, NULL, NULL, '[[\"up\",\"a\",0.5]]');
    INSERT INTO feedback VALUES (
        ID, 'alice', NULL, 'up', 'a', 7, 'helpful', 5, ID, NULL, 1000000)";

/// Asserts that the recommendations of version 5 are kept, and that new columns have their
/// defaults.
async fn assert_sayings_are_kept(store: &Store) {
    store.open().await.unwrap();
    let shown = store.recommendations(9).await.unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].weights, shown[0].work_session), (Some(4), None));
    assert_eq!(shown[0].tools.len(), 1);
    assert_eq!(shown[0].tools[0].score.to_bits(), 0.5_f64.to_bits());
    assert_eq!(shown[0].tools[0].factors, None);
    let said = store.feedback(None, None, 9).await.unwrap();
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].recommendation, Some(shown[0].id));
    assert_eq!((&said[0].comment, said[0].work_session), (&None, None));
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn recommendations_of_an_older_version_are_kept_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let migrator = version_5("sqlite").await;
    migrator
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let rows = SAYINGS_OF_VERSION_5
        .replace("ID", "x'019b7ca98c8879098909090909090909'")
        .replace("HASH", "zeroblob(16)");
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
    assert_sayings_are_kept(&Store::sqlite(path, Durability::Process)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn recommendations_of_an_older_version_are_kept_in_postgres() {
    let schema = Schema::new();
    let mut connection = sqlx::PgConnection::connect(&schema::url()).await.unwrap();
    let name = schema.config().schema;
    let create = format!("CREATE SCHEMA {name}; SET search_path = {name}");
    connection.execute(AssertSqlSafe(create)).await.unwrap();
    let migrator = version_5("postgres").await;
    migrator
        .run_direct(None, &mut connection, false)
        .await
        .unwrap();
    let rows = SAYINGS_OF_VERSION_5
        .replace("ID", "'019b7ca9-8c88-7909-8909-090909090909'")
        .replace("HASH", "decode(repeat('00', 16), 'hex')");
    connection.execute(AssertSqlSafe(rows)).await.unwrap();
    connection.close().await.unwrap();
    assert_sayings_are_kept(&Store::postgres(schema.config())).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_newer_schema_is_refused_in_postgres() {
    let schema = Schema::new();
    let store = Store::postgres(schema.config());
    store.open().await.unwrap();
    store.close().await;
    let mut connection = sqlx::PgConnection::connect(&schema::url()).await.unwrap();
    let name = schema.config().schema;
    let insert = format!(
        "INSERT INTO {name}._sqlx_migrations
            (version, description, success, checksum, execution_time)
        VALUES (9999, 'later', true, '', 0)"
    );
    connection.execute(AssertSqlSafe(insert)).await.unwrap();
    let error = Store::postgres(schema.config()).open().await.unwrap_err();
    assert!(
        matches!(error, StoreError::NewerSchema { found: 9999, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn repeatedly_killed_migrations_complete_eventually() {
    let dir = tempfile::tempdir().unwrap();
    make_sqlite(&dir.path().join(FILE)).await;
    let mut n_killed = 0;
    // From before the start of the migration to its end, on a machine of any speed.
    for round in 0..40_u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_migrates_until_killed", "--exact"])
            .args(["--include-ignored", "--nocapture"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20) * (round + 1));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        if said.contains("migrated") {
            break;
        }
        n_killed += 1;
    }
    assert!(n_killed > 0, "no migration was killed");
    let store = Store::sqlite(dir.path().join(FILE), Durability::Process);
    assert_up_to_date(&store).await;
}

#[tokio::test]
#[ignore = "needs the test that kills it"]
async fn child_migrates_until_killed() {
    if !Path::new(FILE).exists() {
        return;
    }
    let store = Store::sqlite(FILE.into(), Durability::Process);
    store.open().await.unwrap();
    println!("migrated");
}
