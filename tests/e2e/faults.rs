//! Calls continue during failures of the database or the disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::raw_at;
use riglm_tests::messages::{call, initialize};
use riglm_tests::plain_http;
use riglm_tests::process::eventually;
use riglm_tests::riglm::{Options, Riglm, read_store};
use serde_json::Value;
use tempfile::TempDir;

use crate::odd_over_stdio;
use crate::postgres::as_texts;

const DEADLINE: Duration = Duration::from_secs(30);

/// A file system of a few megabytes in memory. It is unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(megabytes: u32) -> Self {
        let disk = Self(TempDir::new().unwrap());
        let size = format!("size={megabytes}m,mode=700");
        disk.run("mount", &["-t", "tmpfs", "-o", &size, "riglm-test"]);
        disk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk and returns the file that takes the space.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;

        let path = self.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [1 << 16, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }

    fn make_read_only(&self, is_read_only: bool) {
        let option = if is_read_only {
            "remount,ro"
        } else {
            "remount,rw"
        };
        self.run("mount", &["-o", option]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .arg(self.path())
            .status()
            .unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because a process may still be about to end.
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

/// Returns a port that is free at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts a proxy with a control port.
async fn serve(data_dir: &Path, options: Options) -> (Riglm, u16) {
    let port = free_port();
    let mut options = options;
    let control = ["--control".into(), format!("127.0.0.1:{port}")];
    options.arguments.extend(control);
    (
        Riglm::serve(&odd_over_stdio(), data_dir, &options).await,
        port,
    )
}

async fn health(port: u16) -> Value {
    let url = format!("http://127.0.0.1:{port}/health").parse().unwrap();
    let answer = plain_http::exchange(http::Method::GET, &url, &[], "").await;
    let text = answer.unwrap().body;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Waits until the store has this status.
async fn until_store_is(port: u16, status: &str) -> Value {
    let start = std::time::Instant::now();
    loop {
        let health = health(port).await;
        if health["store"]["status"] == status {
            return health;
        }
        assert!(start.elapsed() < DEADLINE, "{health}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn connect(riglm: &Riglm) -> RawClient {
    let client = riglm.client(Answers::full());
    client.initialize(&initialize("\"i\"", "2025-11-25")).await;
    client
}

/// Makes calls and returns the number of successful ones.
async fn n_successful_calls(client: &RawClient, n: usize) -> usize {
    let mut n_answered = 0;
    for id in 0..n {
        let answer = client.request(&call(&id.to_string(), "empty", "{}")).await;
        n_answered += usize::from(raw_at(&answer.text, &["result"]).is_some());
    }
    n_answered
}

#[tokio::test]
#[ignore = "needs root"]
async fn calls_continue_on_a_full_disk_with_counted_losses() {
    let disk = SmallDisk::new(8);
    // Without counted sizes, each call has exactly two records.
    let options = Options::with_configuration("[recording]\ntokens = \"estimated\"\n");
    let (mut riglm, port) = serve(disk.path(), options).await;
    let client = connect(&riglm).await;
    assert_eq!(n_successful_calls(&client, 50).await, 50);
    let filler = disk.fill();
    assert_eq!(n_successful_calls(&client, 300).await, 300);
    let full = until_store_is(port, "degraded").await;
    assert_eq!(full["status"], "degraded");
    std::fs::remove_file(filler).unwrap();
    assert_eq!(n_successful_calls(&client, 50).await, 50);
    let mended = until_store_is(port, "ok").await;
    let n_dropped = mended["store"]["dropped_records"].as_u64().unwrap();
    assert!(n_dropped > 0, "{mended}");
    drop(client);
    assert_eq!(riglm.stop().await, Some(0));
    let listed = riglm_tests::riglm::rows(disk.path(), &["calls", "--json"]).await;
    let n_open = listed.iter().filter(|row| row["outcome"].is_null()).count();
    assert_eq!(n_open, 0, "calls whose end was lost become unknown");
    let n_unknown = listed
        .iter()
        .filter(|row| row["outcome"] == "unknown")
        .count();
    // A call without its first record has no row. Its second record was lost too, or was ignored.
    let n_missing = 400 - listed.len();
    let n_lost_ends = u64::try_from(n_unknown).unwrap();
    let n_lost_beginnings = u64::try_from(n_missing).unwrap();
    assert!(n_lost_ends + n_lost_beginnings <= n_dropped);
    assert!(
        n_lost_ends + 2 * n_lost_beginnings >= n_dropped,
        "{mended} {n_unknown} {n_missing}"
    );
    let check = read_store(disk.path(), &["db", "check"]).await;
    assert!(check.trim_end().ends_with("ok"), "{check}");
}

#[tokio::test]
#[ignore = "needs root"]
async fn records_reach_a_read_only_database_once_writable() {
    let (disk, data_dir) = (SmallDisk::new(8), TempDir::new().unwrap());
    disk.make_read_only(true);
    let path = disk.path().join("riglm.db");
    let toml = format!("[storage.sqlite]\npath = \"{}\"\n", path.display());
    let options = Options::with_configuration(&toml);
    let (mut riglm, port) = serve(data_dir.path(), options.clone()).await;
    let client = connect(&riglm).await;
    assert_eq!(n_successful_calls(&client, 100).await, 100);
    let health = until_store_is(port, "degraded").await;
    assert!(health["store"]["waiting_bytes"].as_u64().unwrap() > 0);
    disk.make_read_only(false);
    let health = until_store_is(port, "ok").await;
    assert_eq!(health["store"]["dropped_records"], 0);
    drop(client);
    riglm.stop().await;
    let mut arguments = vec!["calls".into(), "--count".into()];
    arguments.extend(options.read_arguments(data_dir.path()));
    let count = read_store(data_dir.path(), &as_texts(&arguments)).await;
    assert_eq!(count.trim(), "100");
}

#[tokio::test]
#[ignore = "needs root"]
async fn required_recording_refuses_calls_until_the_database_recovers() {
    let (disk, data_dir) = (SmallDisk::new(8), TempDir::new().unwrap());
    disk.make_read_only(true);
    let path = disk.path().join("riglm.db");
    let toml = format!(
        "[recording]\nmode = \"required\"\n[storage.sqlite]\npath = \"{}\"\n",
        path.display()
    );
    let (riglm, port) = serve(data_dir.path(), Options::with_configuration(&toml)).await;
    let client = connect(&riglm).await;
    until_store_is(port, "degraded").await;
    assert_eq!(n_successful_calls(&client, 3).await, 0);
    disk.make_read_only(false);
    until_store_is(port, "ok").await;
    assert_eq!(n_successful_calls(&client, 3).await, 3);
    assert!(
        eventually(DEADLINE, || path.exists().then_some(()))
            .await
            .is_some()
    );
}
