//! The databases of opencode.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use riglm_adapters_clients::transcripts::{
    CallingAgent, ClientSummary, SkippedLines, TranscriptClient, TranscriptEvent, UnreadableReason,
};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteJournalMode::{Delete, Wal};

use crate::database::{Database, FIRST_TABLES, SECOND_TABLES, database_path};
use crate::scene::{Reading, Scene};

/// 2026-08-01T12:00:00Z.
const NOON: i64 = 1_785_585_600_000;

fn message(role: &str, second: i64) -> Value {
    json!({"role": role, "time": {"created": NOON + second * 1000}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A part that is a call of two seconds.
fn call(id: &str, tool: &str, second: i64, state: Value) -> Value {
    let start = NOON + second * 1000;
    let mut state = state;
    state["time"] = json!({"start": start, "end": start + 2000});
    json!({"type": "tool", "callID": id, "tool": tool, "state": state})
}

fn done() -> Value {
    json!({"status": "completed", "input": {}, "output": "", "title": "", "metadata": {}})
}

fn failed(error: &str) -> Value {
    json!({"status": "error", "input": {}, "error": error})
}

/// A session and its subagent, as version 1.2 writes them.
fn write_first(database: &mut Database) {
    database.session("session", "ses_a", None, NOON);
    database.message("ses_a", "msg_1", &message("user", 1));
    database.part("msg_1", "prt_01", &text("Deploy the app"));
    let mut synthetic = text("Called the Read tool");
    synthetic["synthetic"] = true.into();
    database.part("msg_1", "prt_02", &synthetic);
    let mut ignored = text("Quota: 3%");
    ignored["ignored"] = true.into();
    database.part("msg_1", "prt_03", &ignored);
    database.message("ses_a", "msg_2", &message("assistant", 2));
    database.part("msg_2", "prt_04", &json!({"type": "step-start"}));
    let listed = call("call_1", "my-cloud_list_apps", 3, done());
    database.part("msg_2", "prt_05", &listed);
    let stopped = call("call_2", "bash", 5, failed("Tool execution aborted"));
    database.part("msg_2", "prt_06", &stopped);
    let refused = failed("MCP error -32001: timeout");
    let refused = call("call_3", "my-cloud_deploy", 8, refused);
    database.part("msg_2", "prt_07", &refused);
    let pending = json!({"type": "tool", "callID": "call_4", "tool": "sentry_find_error",
        "state": {"status": "pending", "input": {}, "raw": ""}});
    database.part("msg_2", "prt_08", &pending);
    database.part("msg_2", "prt_09", &json!({"type": "hologram"}));
    database.part("msg_2", "prt_10", &json!({"type": "tool", "tool": "bash"}));
    // The session of the subagent has an earlier identifier, as later sessions of opencode have.
    database.session("session", "ses_0", Some("ses_a"), NOON + 60_000);
    database.message("ses_0", "msg_3", &message("user", 61));
    database.part("msg_3", "prt_11", &text("Look for errors"));
    database.message("ses_0", "msg_4", &json!(["odd"]));
    database.message("ses_0", "msg_5", &message("assistant", 62));
    let listed = call("call_1", "my-cloud_list_apps", 62, done());
    database.part("msg_5", "prt_12", &listed);
}

fn first_calls() -> [&'static str; 5] {
    [
        "ses_a my-cloud list_apps success 2000",
        "ses_a - bash cancelled 2000",
        "ses_a my-cloud deploy error 2000",
        "ses_a sentry find_error unknown -",
        "ses_0 my-cloud list_apps success 2000",
    ]
}

fn read(write: impl FnOnce(&mut Database)) -> Reading {
    let scene = Scene::empty().with_servers(&["my-cloud"]);
    let tables = [FIRST_TABLES, SECOND_TABLES].concat();
    let mut database = Database::of(&scene, Wal, &tables);
    write(&mut database);
    database.close();
    scene.read()
}

fn reason(reading: &Reading) -> String {
    let all = &reading.summary.unreadable;
    assert_eq!(all.len(), 1, "{all:?}");
    let unreadable = &all[0];
    assert!(unreadable.path.ends_with("opencode.db"));
    unreadable.reason.to_string()
}

fn files_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn calls_messages_and_documents_are_counted() {
    let reading = read(write_first);
    assert_eq!(reading.calls(), first_calls());
    assert_eq!(reading.messages().len(), 1);
    assert_eq!(reading.messages()["ses_a"], ["Deploy the app"]);
    assert_eq!(
        reading.counts(TranscriptClient::Opencode),
        ClientSummary {
            n_files: 1,
            n_sessions: 2,
            n_mcp_calls: 4,
            n_builtin_calls: 1,
            n_messages: 1,
            // Two sessions, five messages and twelve parts.
            n_lines: 2 + 5 + 12,
            skipped: SkippedLines {
                malformed: 2,
                unknown: 1,
                ..SkippedLines::default()
            },
            first_at: Some("2026-08-01T12:00:01Z".parse().unwrap()),
            last_at: Some("2026-08-01T12:01:02Z".parse().unwrap()),
            ..ClientSummary::default()
        }
    );
    assert!(reading.summary.unreadable.is_empty());
    let deploy = reading.call("deploy");
    assert_eq!(deploy.project.as_deref(), Some("/home/dev/app"));
    assert_eq!(deploy.agent, CallingAgent::Main);
    assert_eq!(deploy.started_at.to_string(), "2026-08-01T12:00:08Z");
    let agents: Vec<CallingAgent> = (reading.events.iter())
        .filter_map(|event| match event {
            TranscriptEvent::Call(call) => Some(call.agent),
            TranscriptEvent::UserMessage(_) => None,
        })
        .collect();
    assert_eq!(agents[3..], [CallingAgent::Main, CallingAgent::Subagent]);
}

/// A call, as version 2 keeps it: two seconds, after half a second in which the model wrote it.
fn second_call(id: &str, name: &str, second: i64, state: &Value) -> Value {
    let ran = NOON + second * 1000;
    json!({"type": "tool", "id": id, "name": name, "state": state,
        "time": {"created": ran - 500, "ran": ran, "completed": ran + 2000}})
}

#[test]
fn version_two_has_its_calls_in_messages() {
    let reading = read(|database| {
        let created = |second: i64| json!({"created": NOON + second * 1000});
        database.session("session_v2", "ses_b", None, NOON);
        let asked = json!({"text": "Deploy it", "time": created(1)});
        database.entry("ses_b", "msg_1", "user", &asked);
        database.entry("ses_b", "msg_2", "idle", &json!({"time": created(1)}));
        let script = json!({"status": "completed", "input": {"code": ""}, "content": [],
        "metadata": {"toolCalls": [
            {"tool": "my-cloud.list_apps", "status": "completed", "input": {"all": true}},
            null,
            {"tool": "sentry.find_error", "status": "error"},
            {"tool": "opencode.session_move", "status": "completed"},
            {"tool": "my-cloud.deploy", "status": "running"},
        ]}});
        let rejected = json!({"status": "error", "input": {},
            "error": {"type": "permission.rejected", "message": "no"}});
        let broken = json!({"status": "error", "input": {},
            "error": {"type": "tool.execution", "message": "boom"}, "metadata": {"toolCalls": 7}});
        let content = [
            json!({"type": "reasoning", "text": "hm"}),
            second_call("call_1", "execute", 3, &script),
            second_call("call_2", "my-cloud_deploy", 6, &rejected),
            second_call("call_3", "sentry_find_error", 9, &broken),
            json!({"type": "hologram"}),
            json!({"type": "tool", "id": "call_4"}),
            json!({"type": "text", "text": "done"}),
        ];
        let answer = json!({"agent": "build", "content": content, "time": created(2)});
        database.entry("ses_b", "msg_3", "assistant", &answer);
        database.entry("ses_b", "msg_4", "telepathy", &json!({}));
        database.entry("ses_b", "msg_5", "assistant", &json!({"content": 7}));
    });
    assert_eq!(
        reading.calls(),
        [
            "ses_b - execute success 2000",
            "ses_b my-cloud list_apps success -",
            "ses_b sentry find_error error -",
            "ses_b - opencode.session_move success -",
            "ses_b my-cloud deploy unknown -",
            "ses_b my-cloud deploy cancelled 2000",
            "ses_b sentry find_error error 2000",
        ]
    );
    assert_eq!(reading.messages()["ses_b"], ["Deploy it"]);
    let counts = reading.counts(TranscriptClient::Opencode);
    assert_eq!((counts.n_mcp_calls, counts.n_builtin_calls), (5, 2));
    // A session, five messages and seven parts.
    assert_eq!(counts.n_lines, 1 + 5 + 7);
    assert_eq!((counts.skipped.unknown, counts.skipped.malformed), (2, 2));
    let listed = reading.call("list_apps");
    assert_eq!(listed.started_at.to_string(), "2026-08-01T12:00:03Z");
}

#[test]
fn copies_of_version_two_are_recognized() {
    let reading = read(|database| {
        write_first(database);
        // As the client copies them: the start of a call in `created`, calls that did not end as
        // interrupted, with the time of their message, and all texts in one.
        database.session("session_v2", "ses_a", None, NOON);
        let tool = |id: &str, name: &str, start: i64, state: &Value| {
            let start = NOON + start * 1000;
            json!({"type": "tool", "id": id, "name": name, "state": state,
                "time": {"created": start, "completed": start + 2000}})
        };
        let completed = json!({"status": "completed", "input": {}});
        let error = json!({"status": "error", "input": {}, "error": {"message": "x"}});
        let content = [
            tool("call_1", "my-cloud_list_apps", 3, &completed),
            tool("call_2", "bash", 5, &error),
            tool("call_3", "my-cloud_deploy", 8, &error),
            json!({"type": "tool", "id": "call_4", "name": "sentry_find_error",
                "state": {"status": "error", "input": {}, "error": {"type": "tool.interrupted",
                    "message": "Tool execution was interrupted before V2 migration"}},
                "time": {"created": NOON + 2000}}),
        ];
        let user = json!({"text": "Deploy the app", "time": {"created": NOON + 1000}});
        database.entry("ses_a", "msg_1", "user", &user);
        let answer = json!({"content": content, "time": {"created": NOON + 2000}});
        database.entry("ses_a", "msg_2", "assistant", &answer);
    });
    let mut expected = first_calls();
    expected[3] = "ses_a sentry find_error cancelled -";
    assert_eq!(reading.calls(), expected);
    assert_eq!(reading.messages()["ses_a"], ["Deploy the app"]);
    let counts = reading.counts(TranscriptClient::Opencode);
    assert_eq!((counts.n_sessions, counts.n_repeated), (2, 5));
}

/// Copies the fixture of the files into a database, as version 1.2 does.
fn copy_files(scene: &Scene, database: &mut Database) {
    let storage = scene.path(".local/share/opencode/storage");
    let documents = |folder: &Path| -> Vec<(String, String, Value)> {
        let mut found = Vec::new();
        for owner in fs::read_dir(folder).unwrap() {
            let owner = owner.unwrap();
            for file in fs::read_dir(owner.path()).unwrap() {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                // The client skips files that it cannot read.
                let Ok(mut data) = serde_json::from_str::<Value>(&text) else {
                    continue;
                };
                for key in ["id", "sessionID", "messageID"] {
                    data.as_object_mut().unwrap().remove(key);
                }
                let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
                found.push((owner.file_name().into_string().unwrap(), id, data));
            }
        }
        found
    };
    for (_, id, data) in documents(&storage.join("session")) {
        let created = data["time"]["created"].as_i64().unwrap();
        database.session("session", &id, data["parentID"].as_str(), created);
    }
    for (session, id, data) in documents(&storage.join("message")) {
        database.message(&session, &id, &data);
    }
    for (message, id, data) in documents(&storage.join("part")) {
        database.part(&message, &id, &data);
    }
}

#[test]
fn sessions_in_files_and_in_the_database_count_once() {
    let alone = Scene::of("opencode", ".local/share/opencode").with_servers(&["my-cloud"]);
    fs::remove_file(database_path(&alone)).unwrap();
    let expected = alone.read();
    for is_database_older in [false, true] {
        let scene = Scene::of("opencode", ".local/share/opencode").with_servers(&["my-cloud"]);
        fs::remove_file(database_path(&scene)).unwrap();
        let mut database = Database::of(&scene, Delete, FIRST_TABLES);
        copy_files(&scene, &mut database);
        database.close();
        if is_database_older {
            let file = fs::File::options().append(true).open(database_path(&scene));
            let start = std::time::SystemTime::UNIX_EPOCH;
            file.unwrap().set_modified(start).unwrap();
        }
        let both = scene.read();
        assert_eq!(both.calls(), expected.calls());
        assert_eq!(both.messages(), expected.messages());
        let counts = both.counts(TranscriptClient::Opencode);
        assert_eq!((counts.n_sessions, counts.n_repeated), (2, 5 + 1));
    }
}

#[test]
fn all_pages_are_read_once() {
    let n = 200;
    let reading = read(|database| {
        database.run("BEGIN");
        for number in 0..n {
            let other = format!("ses_{:03}", n - number);
            database.session("session", &other, None, NOON + i64::from(number));
            database.message(&other, &format!("{other}_msg"), &message("user", 1));
            database.part(
                &format!("{other}_msg"),
                &format!("{other}_prt"),
                &text(&other),
            );
        }
        database.session("session", "ses_long", None, NOON);
        for number in 0..n {
            // All at the same time, so that identifiers decide.
            database.message("ses_long", &format!("msg_{number:03}"), &message("user", 2));
        }
        for number in 0..n {
            let part = text(&number.to_string());
            database.part("msg_100", &format!("prt_{number:03}"), &part);
        }
        database.session("session_v2", "ses_two", None, NOON);
        for number in 0..n {
            let entry = json!({"text": number.to_string(), "time": {"created": NOON}});
            database.entry("ses_two", &format!("msg_two_{number}"), "user", &entry);
        }
        database.run("COMMIT");
    });
    let expected: Vec<String> = (0..n).map(|number| number.to_string()).collect();
    let messages = reading.messages();
    assert_eq!(messages["ses_long"], expected);
    assert_eq!(messages["ses_two"], expected);
    assert_eq!(messages.len(), 200 + 2);
    let counts = reading.counts(TranscriptClient::Opencode);
    assert_eq!(counts.n_lines, 3 * 200 + (1 + 200 + 200) + (1 + 200));
    assert_eq!((counts.skipped.total(), counts.n_repeated), (0, 0));
}

#[test]
fn long_texts_are_read_and_longer_ones_skipped() {
    let reading = read(|database| {
        database.session("session", "ses_a", None, NOON);
        database.message("ses_a", "msg_1", &message("user", 1));
        for (number, n_bytes) in [(1, 1 << 20), (2, 65 << 20), (3, 10)] {
            let id = format!("prt_{number}");
            database.part("msg_1", &id, &text(&"x".repeat(n_bytes)));
        }
        // What belongs to a message that is too long is read.
        let mut long = message("user", 2);
        long["summary"] = "x".repeat(17 << 20).into();
        database.message("ses_a", "msg_2", &long);
        let listed = call("call_1", "my-cloud_list_apps", 3, done());
        database.part("msg_2", "prt_4", &listed);
    });
    let counts = reading.counts(TranscriptClient::Opencode);
    assert_eq!((counts.n_lines, counts.skipped.too_long), (1 + 2 + 4, 2));
    assert_eq!((counts.n_messages, counts.n_mcp_calls), (2, 1));
}

#[test]
fn a_database_with_a_log_is_read_without_a_trace() {
    let scene = Scene::empty().with_servers(&["my-cloud"]);
    let mut database = Database::of(&scene, Wal, FIRST_TABLES);
    database.run("PRAGMA wal_checkpoint(TRUNCATE)");
    write_first(&mut database);
    let folder = scene.path(".local/share/opencode");
    let before = files_in(&folder);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["opencode.db", "opencode.db-shm", "opencode.db-wal"]);
    assert_eq!(scene.read().calls(), first_calls());
    let sizes = before[0].1.len() + before[2].1.len();
    assert_eq!(scene.find().n_bytes(), sizes as u64);
    let after = files_in(&folder);
    // The index of the log has the marks of readers.
    assert_eq!(after.len(), 3);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    // The client goes on writing.
    database.session("session", "ses_later", None, NOON);
    database.close();

    // Without a log, nothing is created.
    let before = files_in(&folder);
    assert_eq!(before.len(), 1);
    assert_eq!(scene.read().calls(), first_calls());
    assert_eq!(files_in(&folder), before);
}

#[test]
fn a_change_in_the_log_is_a_change_of_the_database() {
    let mut scene = Scene::empty().with_servers(&["my-cloud"]);
    let mut database = Database::of(&scene, Wal, FIRST_TABLES);
    write_first(&mut database);
    let file = fs::File::options().append(true).open(database_path(&scene));
    let start = std::time::SystemTime::UNIX_EPOCH;
    file.unwrap().set_modified(start).unwrap();
    scene.options.since = Some("2026-08-01T12:00:07Z".parse().unwrap());
    let reading = scene.read();
    assert_eq!(reading.calls(), [first_calls()[2], first_calls()[4]]);
    database.close();
}

#[test]
fn a_locked_database_is_named_and_others_are_read() {
    let scene = Scene::empty();
    let mut database = Database::of(&scene, Delete, FIRST_TABLES);
    write_first(&mut database);
    database.run("BEGIN EXCLUSIVE");
    let path = scene.path(".local/share/opencode/opencode-dev.db");
    let mut other = Database::at(&path, Wal, FIRST_TABLES);
    write_first(&mut other);
    other.close();
    let reading = scene.read();
    assert_eq!(reason(&reading), "database is locked");
    assert_eq!(reading.calls().len(), 5);
    database.run("COMMIT");
    assert!(scene.read().summary.unreadable.is_empty());

    let mut other = Database::at(&path, Wal, "PRAGMA locking_mode = EXCLUSIVE");
    other.session("session", "ses_later", None, NOON);
    let reading = scene.read();
    let unreadable = &reading.summary.unreadable[0];
    assert!(unreadable.path.ends_with("opencode-dev.db"));
    assert_eq!(unreadable.reason.to_string(), "database is locked");
}

#[test]
fn damaged_databases_are_named() {
    let scene = Scene::empty();
    let path = ".local/share/opencode/opencode.db";
    scene.write(
        path,
        "SQLite format 3\0 and then something else entirely".repeat(100),
    );
    assert_eq!(reason(&scene.read()), "file is not a database");
    scene.write(path, "no database");
    assert_eq!(reason(&scene.read()), "file is not a database");

    fs::remove_file(database_path(&scene)).unwrap();
    let mut database = Database::of(&scene, Delete, FIRST_TABLES);
    for number in 0..100 {
        let id = format!("ses_{number:03}");
        database.session("session", &id, None, NOON + number);
        database.message(&id, &format!("{id}_msg"), &message("user", number));
        let part = text(&"x".repeat(2000));
        database.part(&format!("{id}_msg"), &format!("{id}_prt"), &part);
    }
    database.close();
    let mut bytes = fs::read(database_path(&scene)).unwrap();
    let last_pages = bytes.len() - 2 * 4096;
    bytes[last_pages..].fill(0xaa);
    scene.write(path, &bytes);
    let reading = scene.read();
    assert_eq!(reason(&reading), "database disk image is malformed");
    // What was read before counts.
    let counts = reading.counts(TranscriptClient::Opencode);
    assert!((1..100).contains(&counts.n_messages), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn garbled_databases_are_refused_or_read(
        places in prop::collection::vec((any::<Index>(), any::<u8>()), 1..20),
        length in any::<Index>(),
        is_cut: bool,
    ) {
        let mut bytes = SAMPLE.clone();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len()));
        }
        let scene = Scene::empty();
        scene.write(".local/share/opencode/opencode.db", &bytes);
        let reading = scene.read();
        prop_assert!(reading.counts(TranscriptClient::Opencode).n_lines <= 100);
        prop_assert!(reading.summary.unreadable.len() <= 1);
        prop_assert_eq!(files_in(&scene.path(".local/share/opencode")).len(), 1);
    }
}

/// The bytes of a small database.
static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let scene = Scene::empty();
    let mut database = Database::of(&scene, Wal, FIRST_TABLES);
    write_first(&mut database);
    database.close();
    fs::read(database_path(&scene)).unwrap()
});

#[test]
fn databases_of_other_programs_are_refused() {
    for tables in [
        "",
        "CREATE TABLE notes (id text PRIMARY KEY, data text)",
        // Only a table for sessions.
        "CREATE TABLE session (id text PRIMARY KEY)",
        // Names that mean something else.
        "CREATE TABLE session (id integer PRIMARY KEY, user text);
         CREATE TABLE message (id integer PRIMARY KEY, body text)",
        "CREATE VIEW session AS SELECT 'a' AS id;
         CREATE VIEW message AS SELECT 'a' AS id, 'a' AS session_id, '{}' AS data",
    ] {
        let scene = Scene::empty();
        Database::of(&scene, Delete, tables).close();
        let reading = scene.read();
        assert_eq!(reason(&reading), "it is not a transcript", "{tables}");
        let reason = &reading.summary.unreadable[0].reason;
        assert!(matches!(reason, UnreadableReason::NotTranscript));
    }
}

#[test]
fn columns_that_are_not_needed_may_be_missing() {
    let scene = Scene::empty();
    let database = Database::of(
        &scene,
        Wal,
        "CREATE TABLE session (id text);
         CREATE TABLE message (id text, session_id text, data text);
         CREATE TABLE part (id text, message_id text, data blob);
         CREATE TABLE session_message (id text, session_id text, type text, data text);
         INSERT INTO session VALUES ('ses_a'), (NULL), (7), (x'ff');
         INSERT INTO message VALUES ('msg_1', 'ses_a', '{\"role\": \"user\"}');
         INSERT INTO message VALUES ('msg_0', 'ses_a', NULL);
         INSERT INTO part VALUES ('prt_1', 'msg_1', x'7b2274797065223a2274657874222c2274657874223a22ff227d');
         INSERT INTO session_message VALUES ('msg_2', 'ses_a', NULL, '{}');
         INSERT INTO session_message VALUES ('msg_3', 'ses_a', 'user', '{\"text\": \"two\"}')",
    );
    database.close();
    let reading = scene.read();
    assert!(reading.summary.unreadable.is_empty());
    assert_eq!(reading.messages()["ses_a"], ["\u{fffd}", "two"]);
    let counts = reading.counts(TranscriptClient::Opencode);
    assert_eq!((counts.skipped.malformed, counts.skipped.unknown), (1, 1));
    assert_eq!(counts.n_sessions, 1);
}

#[test]
fn databases_are_read_inside_a_runtime() {
    let scene = Scene::empty().with_servers(&["my-cloud"]);
    let mut database = Database::of(&scene, Wal, FIRST_TABLES);
    write_first(&mut database);
    database.close();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let reading = runtime.block_on(async { scene.read() });
    assert_eq!(reading.calls(), first_calls());
}
