//! `riglm db` and `riglm data`: the data of a client can be exported and deleted from the disk.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::normalise::Masks;
use riglm_tests::plain_http::{self, HttpResponse};
use riglm_tests::process;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;
use tempfile::TempDir;

use crate::odd_over_stdio;

const ALICE: &str = "alice-5b1f";
const BOB: &str = "bob-5b1f";

/// A data directory, and the variables with the place of the database.
struct StoreScene {
    data_dir: TempDir,
    environment: Vec<(String, String)>,
}

impl StoreScene {
    fn sqlite() -> Self {
        Self {
            data_dir: TempDir::new().expect("a temporary folder can be made"),
            environment: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.data_dir.path()
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = process::command(binary::riglm(), arguments);
        command.arg("--data-dir").arg(self.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null());
        tokio::time::timeout(Duration::from_mins(1), command.output())
            .await
            .expect("the command ends in time")
            .expect("the command can be run")
    }

    /// Returns the output of a successful command.
    async fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "riglm {arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("results are text")
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(arguments).await;
        serde_json::from_str(&text).expect("the result is JSON")
    }

    /// Starts a proxy with two clients that call tools and stay connected.
    async fn serve_with_calls(&self) -> Riglm {
        let options = Options {
            environment: self.environment.clone(),
            // Counted sizes are added some time after the call, and would change a row between two
            // exports.
            ..Options::with_configuration("[recording]\ntokens = \"estimated\"\n")
        };
        let riglm = Riglm::serve(&odd_over_stdio(), self.path(), &options).await;
        for (name, tools) in [(ALICE, ["echo", "empty"]), (BOB, ["empty", "echo"])] {
            let client = riglm.client(Answers::full());
            let hello = initialize("0", "2025-11-25").replace("raw-client", name);
            client.initialize(&hello).await;
            client.request(&request("\"l\"", "tools/list")).await;
            for (n, tool) in tools.into_iter().enumerate() {
                client
                    .request(&call(&(n + 1).to_string(), tool, "{}"))
                    .await;
            }
        }
        riglm
    }

    /// Returns the row of the only session of a client.
    async fn session(&self, name: &str) -> Value {
        let sessions = self.json(&["sessions", "--json"]).await;
        let sessions = sessions.as_array().expect("sessions are a list");
        let mut of_client = sessions.iter().filter(|row| row["client"] == name);
        of_client.next().expect("the client has a session").clone()
    }

    async fn calls_of(&self, session: &str) -> Value {
        self.json(&["calls", "--json", "--session", session]).await
    }
}

fn text_of<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().expect("the value is text")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    entries
        .map(|entry| entry.expect("the entry can be read").path())
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Returns the files with the name of a client, its hash as text or bytes, or its session id.
fn files_with_data_of(folder: &Path, name: &str, session: &Value) -> Vec<PathBuf> {
    let bytes_of = |hexadecimal: &str| -> Vec<u8> {
        let digits: Vec<u8> = hexadecimal.bytes().filter(|byte| *byte != b'-').collect();
        let pairs = digits.chunks(2).map(|pair| String::from_utf8_lossy(pair));
        pairs
            .map(|pair| u8::from_str_radix(&pair, 16).expect("the text is hexadecimal"))
            .collect()
    };
    let (hash, id) = (text_of(session, "client_id"), text_of(session, "id"));
    let needles = [
        name.as_bytes().to_vec(),
        hash.as_bytes().to_vec(),
        bytes_of(hash),
        id.as_bytes().to_vec(),
        bytes_of(id),
    ];
    let mut found = files(folder);
    found.retain(|path| {
        let content = std::fs::read(path).unwrap_or_default();
        let has = |needle: &Vec<u8>| content.windows(needle.len()).any(|part| part == needle);
        needles.iter().any(has)
    });
    found
}

/// Exports and deletes one of two clients while the proxy runs.
async fn delete_one_client(place: &StoreScene) -> (Riglm, Value) {
    let riglm = place.serve_with_calls().await;
    let (alice, bob) = (place.session(ALICE).await, place.session(BOB).await);
    let (alice_id, bob_id) = (text_of(&alice, "id"), text_of(&bob, "id"));
    let calls_of_bob = place.calls_of(bob_id).await;
    assert_eq!(calls_of_bob.as_array().map(Vec::len), Some(2));

    let by_name = place.text(&["data", "export", "--client", ALICE]).await;
    let hash = text_of(&alice, "client_id");
    assert_eq!(
        by_name,
        place.text(&["data", "export", "--client", hash]).await
    );
    let mut kinds = BTreeSet::new();
    for line in by_name.lines() {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        kinds.insert(text_of(&line, "kind").to_owned());
        assert!(line["row"].is_object(), "{line}");
    }
    assert!(
        kinds.contains("session") && kinds.contains("call"),
        "{kinds:?}"
    );
    assert_eq!(by_name.matches(r#""kind":"call""#).count(), 2);
    assert!(
        by_name.contains(alice_id) && !by_name.contains(bob_id),
        "{by_name}"
    );

    let deleted = place
        .json(&["data", "delete", "--client", ALICE, "--yes", "--json"])
        .await;
    assert_eq!(
        (&deleted["sessions"], &deleted["calls"]),
        (&1.into(), &2.into())
    );
    assert_eq!(deleted["complete"], true);
    assert_eq!(place.text(&["data", "export", "--client", ALICE]).await, "");
    assert_eq!(place.calls_of(bob_id).await, calls_of_bob);
    assert_eq!(place.text(&["calls", "--count"]).await.trim(), "2");

    assert_eq!(place.text(&["db", "check"]).await, "ok\n");
    let rebuilt = place.json(&["db", "rebuild", "--json"]).await;
    assert_eq!(rebuilt["calls"], 2);
    assert_eq!(place.calls_of(bob_id).await, calls_of_bob);
    assert_eq!(place.text(&["db", "check"]).await, "ok\n");
    let status = place.json(&["db", "status", "--json"]).await;
    assert_eq!(
        (&status["sessions"], &status["calls"]),
        (&1.into(), &2.into())
    );
    assert_eq!(status["schema_found"], status["schema_known"]);
    (riglm, alice)
}

/// Returns the value without what differs between runs and machines.
fn masked(rows: &str) -> Value {
    let masks = Masks::of_a_run().and(r"\b[0-9a-f]{64}\b", "<hash>").and(
        r#""([a-z0-9_]*(_ms|_us|duration|wait))":\d+(\.\d+)?"#,
        r#""$1":"<n>""#,
    );
    serde_json::from_str(&masks.apply(rows)).expect("masked rows are JSON")
}

#[tokio::test]
async fn rows_have_documented_members() {
    let place = StoreScene::sqlite();
    let mut riglm = place.serve_with_calls().await;
    riglm.stop().await;
    for command in ["sessions", "calls", "tools", "lists", "upstreams"] {
        let rows = place.text(&[command, "--json"]).await;
        insta::assert_json_snapshot!(command, masked(&rows));
    }
    let lines = place.text(&["data", "export", "--client", ALICE]).await;
    let lines: Vec<Value> = lines.lines().map(masked).collect();
    insta::assert_json_snapshot!("export", lines);
}

#[tokio::test]
async fn erasure_removes_only_the_selected_client_from_disk() {
    let place = StoreScene::sqlite();
    let (mut riglm, alice) = delete_one_client(&place).await;
    assert_eq!(
        files_with_data_of(place.path(), ALICE, &alice),
        Vec::<PathBuf>::new()
    );
    riglm.stop().await;
    assert_eq!(
        files_with_data_of(place.path(), ALICE, &alice),
        Vec::<PathBuf>::new()
    );
    let bob = place.session(BOB).await;
    assert!(!files_with_data_of(place.path(), BOB, &bob).is_empty());
}

#[tokio::test]
async fn records_in_the_spool_of_a_killed_proxy_are_erased_too() {
    let place = StoreScene::sqlite();
    let riglm = place.serve_with_calls().await;
    let alice = place.session(ALICE).await;
    riglm.process.signal(rustix::process::Signal::KILL);
    drop(riglm);
    let hash = text_of(&alice, "client_id");
    place
        .text(&["data", "delete", "--client", hash, "--yes"])
        .await;
    assert_eq!(
        files_with_data_of(place.path(), ALICE, &alice),
        Vec::<PathBuf>::new()
    );
    assert_eq!(place.text(&["calls", "--count"]).await.trim(), "2");
}

#[tokio::test]
async fn exports_are_private_files_and_never_overwrite() {
    let place = StoreScene::sqlite();
    let _riglm = place.serve_with_calls().await;
    let file = place.path().join("alice.jsonl");
    let path = file.to_str().expect("the path is text");
    let export = ["data", "export", "--client", ALICE, "--output", path];
    place.text(&export).await;
    let rows = std::fs::read_to_string(&file).expect("the file is there");
    assert_eq!(rows, place.text(&export[..4]).await);
    let mode = file
        .metadata()
        .expect("the file is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.run(&export).await.status.code(), Some(1));
    assert_eq!(
        std::fs::read_to_string(&file).expect("the file is there"),
        rows
    );
}

#[tokio::test]
async fn a_store_is_made_looked_at_and_purged_by_commands() {
    let place = StoreScene::sqlite();
    let before = place.json(&["db", "status", "--json"]).await;
    assert_eq!(
        (&before["schema_found"], &before["calls"]),
        (&0.into(), &0.into())
    );
    assert_eq!(files(place.path()), Vec::<PathBuf>::new());
    let migrated = place.json(&["db", "migrate", "--json"]).await;
    assert_eq!(migrated["from"], 0);
    assert_eq!(migrated["to"], before["schema_known"]);
    let after = place.json(&["db", "status", "--json"]).await;
    assert_eq!(after["schema_found"], before["schema_known"]);
    assert_eq!(after["backend"], "sqlite");
    assert!(text_of(&after, "place").ends_with("riglm.db"));
    let _riglm = place.serve_with_calls().await;
    let purged = place
        .json(&["db", "purge", "--older-than", "1", "--json"])
        .await;
    assert_eq!(purged["calls"], 0);
    assert_eq!(place.text(&["calls", "--count"]).await.trim(), "4");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_data_of_a_client_is_erased_from_postgres() {
    let url = std::env::var("RIGLM_TEST_POSTGRES_URL").expect("RIGLM_TEST_POSTGRES_URL is set");
    let schema = format!("riglm_e2e_{}", std::process::id());
    let variables = [
        ("BACKEND", "postgres"),
        ("POSTGRES__URL", &url),
        ("POSTGRES__SCHEMA", &schema),
    ];
    let place = StoreScene {
        environment: variables
            .map(|(key, value)| (format!("RIGLM__STORAGE__{key}"), value.to_owned()))
            .into(),
        ..StoreScene::sqlite()
    };
    let (mut riglm, alice) = delete_one_client(&place).await;
    let status = place.json(&["db", "status", "--json"]).await;
    assert_eq!(status["backend"], "postgres");
    assert!(!text_of(&status, "place").contains('@'), "{status}");
    riglm.stop().await;
    assert_eq!(
        files_with_data_of(place.path(), ALICE, &alice),
        Vec::<PathBuf>::new()
    );
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        let output = command.args(arguments).arg(&url).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let dump = tool("pg_dump", &["--schema", &schema]);
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    tool("psql", &["--quiet", "--command", &drop]);
    assert!(dump.contains(BOB));
    for needle in [ALICE, text_of(&alice, "client_id"), text_of(&alice, "id")] {
        assert!(!dump.contains(needle), "{needle}");
    }
}

/// Keys of the control port: one for data, and one that may only read.
const CONTROL_KEYS: &str = "[control.keys]\n\
    keeper = { key = \"keeper-0123456789abcdef\", scopes = [\"data\"] }\n\
    reader = { key = \"reader-0123456789abcdef\", scopes = [\"read\"] }\n";

/// Sends a request about the data of a client with a key of the control port.
async fn client_data(proxy: &Proxy, method: Method, client: &str, key: &str) -> HttpResponse {
    let token = format!("Bearer {key}");
    let url = proxy.control(&format!("/clients/{client}/data"));
    let headers = [("authorization", &*token)];
    plain_http::exchange(method, &url, &headers, "")
        .await
        .unwrap()
}

#[tokio::test]
async fn data_of_a_client_are_exported_and_deleted_over_the_control_port() {
    let proxy = proxy()
        .before(server("plain").tools(3).upstream())
        .configuration(CONTROL_KEYS)
        .with_control()
        .start()
        .await;
    for name in [ALICE, BOB] {
        let client = RawClient::streamable(&proxy.riglm.at("/mcp"), Answers::default());
        client
            .initialize(&initialize("0", "2025-11-25").replace("raw-client", name))
            .await;
        for id in ["1", "2", "3"] {
            client.request(&call(id, "tool-001", "{}")).await;
        }
        assert_eq!(client.delete().await, 204);
    }
    let keeper = "keeper-0123456789abcdef";
    // Rows appear with a short delay.
    let started = std::time::Instant::now();
    let exported = loop {
        let answer = client_data(&proxy, Method::GET, ALICE, keeper).await;
        if answer.body.matches(r#""kind":"call""#).count() == 3 {
            break answer;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{}",
            answer.body
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(exported.status, 200);
    assert_eq!(
        exported.header("content-type"),
        Some("application/x-ndjson")
    );
    assert!(exported.body.lines().all(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["kind"].is_string() && row["row"].is_object()
    }));
    assert!(!exported.body.contains(BOB), "{}", exported.body);

    for (key, status) in [
        ("reader-0123456789abcdef", 403),
        ("nobody-0123456789abcdef", 401),
    ] {
        for method in [Method::GET, Method::DELETE] {
            let answer = client_data(&proxy, method, ALICE, key).await;
            assert_eq!(answer.status, status, "{}", answer.body);
        }
    }
    let unknown = client_data(&proxy, Method::DELETE, "nobody%2F5b1f", keeper).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert!(unknown.body.contains("nobody/5b1f"), "{}", unknown.body);

    let deleted = client_data(&proxy, Method::DELETE, ALICE, keeper).await;
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    let deleted: Value = serde_json::from_str(&deleted.body).unwrap();
    assert_eq!(
        (
            &deleted["sessions"],
            &deleted["calls"],
            &deleted["complete"]
        ),
        (&1.into(), &3.into(), &true.into()),
        "{deleted}"
    );
    for (client, status) in [(ALICE, 404), (BOB, 200)] {
        let answer = client_data(&proxy, Method::GET, client, keeper).await;
        assert_eq!(answer.status, status, "{client}: {}", answer.body);
    }
    let trail = proxy.operate(Method::GET, "/audit", "").await.body;
    assert!(
        trail.contains("data.export") && trail.contains("data.delete"),
        "{trail}"
    );
    assert!(
        !trail.contains(ALICE),
        "the audit trail names a deleted client: {trail}"
    );
}
