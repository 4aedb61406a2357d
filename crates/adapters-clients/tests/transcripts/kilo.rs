//! Kilo Code: a database with the tables of opencode.

use riglm_adapters_clients::transcripts::TranscriptClient;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteJournalMode::Wal;

use crate::database::{Database, FIRST_TABLES};
use crate::scene::Scene;

/// The tables that version 7 has beside those of opencode.
const OWN_TABLES: &str = "
CREATE TABLE `session_message` (`id` text PRIMARY KEY, `session_id` text NOT NULL,
  `type` text NOT NULL, `seq` integer, `time_created` integer NOT NULL,
  `time_updated` integer NOT NULL, `data` text NOT NULL);
CREATE TABLE `kilo_board` (`id` text PRIMARY KEY);
CREATE TABLE `kilo_board_message` (`id` text PRIMARY KEY);
";

/// 2026-11-01T10:00:00Z.
const TEN: i64 = 1_793_527_200_000;

fn call(id: &str, tool: &str, second: i64, mut state: Value) -> Value {
    let start = TEN + second * 1000;
    state["time"] = json!({"start": start, "end": start + 500});
    json!({"type": "tool", "callID": id, "tool": tool, "state": state})
}

#[test]
fn calls_of_its_database_are_read() {
    let scene = Scene::empty().with_servers(&["shop"]);
    let path = scene.path(".local/share/kilo/kilo.db");
    let mut database = Database::at(&path, Wal, &[FIRST_TABLES, OWN_TABLES].concat());
    database.session("session", "ses_1", None, TEN);
    let message = |role: &str| json!({"role": role, "time": {"created": TEN}});
    database.message("ses_1", "msg_1", &message("user"));
    database.part("msg_1", "prt_1", &json!({"type": "text", "text": "Pay"}));
    database.message("ses_1", "msg_2", &message("assistant"));
    let done = json!({"status": "completed", "input": {}});
    let refused = json!({"status": "error", "input": {},
        "error": "Model tried to call unavailable tool 'shop_x'. Available tools: read."});
    let failed = json!({"status": "error", "input": {}, "error": "no"});
    for (id, tool, state) in [
        ("c1", "shop_pay", done.clone()),
        ("c2", "shop_pay", failed),
        ("c3", "shop_x", refused),
        ("c4", "background_process", done),
    ] {
        database.part("msg_2", &format!("prt_{id}"), &call(id, tool, 1, state));
    }
    database.part("msg_2", "prt_x", &json!({"type": "hologram"}));
    database.close();
    let reading = scene.read();
    assert!(reading.summary.unreadable.is_empty());
    assert_eq!(
        reading.calls(),
        [
            "ses_1 shop pay success 500",
            "ses_1 shop pay error 500",
            "ses_1 - background_process success 500",
        ]
    );
    let counts = reading.counts(TranscriptClient::Kilo);
    assert_eq!((counts.n_messages, counts.n_refused_calls), (1, 1));
    assert_eq!((counts.skipped.unknown, counts.skipped.malformed), (1, 0));
}
