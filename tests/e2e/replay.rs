//! `riglm replay`: evaluation of predictors and list policies on recorded calls.

use std::process::Output;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::riglm::{Options, Riglm};
use riglm_tests::{binary, process};
use serde_json::Value;
use tempfile::TempDir;

use crate::odd_over_stdio;

const CATALOG: &str = r#"{"catalog":"made up","tools":[
{"name":"notes_read","description":"Reads a note","server":"notes"},
{"name":"notes_write","description":"Writes a note","server":"notes"},
{"name":"mail_send","description":"","server":"mail"},
{"name":"sky","description":"Weather","server":"sky","unknown":1}]}"#;
const SESSIONS: &str = r#"{"session_id":"1","client":"c","task_id":"a","query":"mail it","calls":[{"tool":"notes_read","ok":true},{"tool":"mail_send","ok":true}]}
{"session_id":"2","client":"c","task_id":"b","started_at":"2026-01-02T03:04:05","query":"","turns":["read","mail"],"calls":[{"tool":"notes_read","ok":false,"turn":0,"t":"2026-01-02T03:04:05Z"},{"tool":"notes_read","ok":true,"turn":1}]}
{"session_id":"3","client":"d","task_id":"c","query":"x","calls":[{"tool":"notes_read","ok":true}],"unknown":{}}
"#;

struct ReplayFiles(TempDir);

impl ReplayFiles {
    fn new(catalog: &str, sessions: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("made.catalog.json"), catalog).unwrap();
        std::fs::write(folder.path().join("made.jsonl"), sessions).unwrap();
        Self(folder)
    }

    /// Returns the options with the paths of both files.
    fn files(&self) -> Vec<String> {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        let (catalog, sessions) = (at("made.catalog.json"), at("made.jsonl"));
        vec!["--catalog".into(), catalog, "--sessions".into(), sessions]
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = process::command(binary::riglm(), &["replay"]);
        command.arg("--data-dir").arg(self.0.path().join("data"));
        command.args(arguments);
        let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
        ended.await.unwrap().unwrap()
    }

    async fn replay_files(&self, arguments: &[&str]) -> Output {
        let files = self.files();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.run(&[&files, arguments].concat()).await
    }

    async fn replay(&self, arguments: &[&str]) -> Value {
        let output = self.replay_files(&[arguments, &["--json"]].concat()).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the exit code and the error message of a run that fails.
    async fn failed_run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.replay_files(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let members = value.as_object().unwrap();
    members.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn predictors_and_policies_are_measured() {
    let place = ReplayFiles::new(CATALOG, SESSIONS);
    let measured = place.replay(&["--predictor", "frequency"]).await;
    let expected = [
        "dataset",
        "calls",
        "first_uses",
        "catalog",
        "predictors",
        "policies",
        "best_fixed",
        "regret",
        "seconds",
    ];
    assert_eq!(keys(&measured), expected);
    assert_eq!(measured["dataset"], "made");
    let counts = ["calls", "first_uses", "catalog"].map(|key| measured[key].as_u64());
    assert_eq!(counts, [Some(5), Some(4), Some(4)]);
    let expected = [
        "hit@1",
        "hit@5",
        "hit@10",
        "hit@20",
        "first_use@1",
        "first_use@5",
        "first_use@10",
        "first_use@20",
        "cov@50%",
        "cov@25%",
        "cov@10%",
        "first_use_cov@50%",
        "first_use_cov@25%",
        "first_use_cov@10%",
        "mrr",
        "bits",
        "cold_starts",
        "first_call_cold_starts",
    ];
    let frequency = &measured["predictors"]["frequency"];
    assert_eq!(keys(frequency), expected);
    // The tool of the second of five calls is ranked third, all others first.
    assert_eq!(
        (&frequency["hit@1"], &frequency["hit@5"]),
        (&0.8.into(), &1.0.into())
    );
    assert_eq!(frequency["first_use@1"], 0.75);
    assert_eq!(frequency["cov@50%"], 0.8);
    assert_eq!(frequency["mrr"], 0.8667);
    // No session has enough earlier sessions.
    assert_eq!(frequency["cold_starts"], Value::Null);
    let expected = [
        "live",
        "static",
        "static+inline",
        "rerank",
        "sticky",
        "conformal-80",
        "conformal-90",
        "conformal-95",
        "conformal-98",
    ];
    assert_eq!(keys(&measured["policies"]), expected);
    let expected = [
        "coverage",
        "first_use_coverage",
        "mean_size",
        "reduction",
        "searches_per_session",
        "searches_by_fifth",
        "changes_per_session",
        "cost_vs_all",
        "weighed_cost",
        "dearer_sessions",
        "dearest_session",
    ];
    for policy in measured["policies"].as_object().unwrap().values() {
        assert_eq!(keys(policy), expected);
    }
    // All four tools are the best list, and also the list of the proxy.
    assert_eq!(
        measured["best_fixed"],
        serde_json::json!({"max_tools": 4, "weighed_cost": 1.0})
    );
    assert_eq!(measured["regret"], 0.0);
    assert_eq!(measured["policies"]["live"]["weighed_cost"], 1.0);
    // A list of twenty has room for all four tools.
    let whole = &measured["policies"]["static"];
    assert_eq!(
        (&whole["coverage"], &whole["cost_vs_all"]),
        (&1.0.into(), &1.0.into())
    );
}

#[tokio::test]
async fn texts_are_compared_by_the_vectors_of_an_encoder() {
    let session = r#"{"session_id":"1","client":"c","task_id":"a","query":"will it rain today?","calls":[{"tool":"sky","ok":true}]}"#;
    let place = ReplayFiles::new(CATALOG, session);
    let bits = async |options: &[&str]| {
        let measured = place.replay(options).await;
        measured["predictors"]["mix"]["bits"].as_f64().unwrap()
    };
    // The words of the query have nothing in common with the tools.
    let of_words = bits(&[]).await;
    let with_none = bits(&["--encoder", "none"]).await;
    assert!(
        (with_none - of_words).abs() < 1e-9,
        "{with_none} {of_words}"
    );
    let of_vectors = bits(&["--encoder", "embedded"]).await;
    assert!(of_vectors < of_words, "{of_vectors} {of_words}");
    let (code, said) = place.failed_run(&["--encoder", "unheard-of"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no model unheard-of"), "{said}");
    let (code, said) = place
        .failed_run(&["--encoder", "embedded", "--no-query"])
        .await;
    assert_eq!(code, Some(2), "{said}");
}

#[tokio::test]
async fn predictors_and_policies_can_be_selected() {
    let place = ReplayFiles::new(CATALOG, SESSIONS);
    let chosen = [
        "--policy",
        "static",
        "--policy",
        "conformal-77",
        "--policy",
        "static",
        "--max-tools",
        "1",
        "--inline",
        "0",
        "--no-query",
    ];
    let measured = place.replay(&chosen).await;
    assert_eq!(keys(&measured["policies"]), ["static", "conformal-77"]);
    let listed = &measured["policies"]["static"];
    assert_eq!(
        (&listed["coverage"], &listed["mean_size"]),
        (&0.8.into(), &1.0.into())
    );
    assert_eq!(listed["searches_per_session"], 0.3333);
    let unseen = place.replay(&["--unseen-tasks"]).await;
    assert_eq!(
        (&unseen["calls"], &unseen["first_uses"]),
        (&5.into(), &4.into())
    );
    let table = place.replay_files(&[]).await;
    let shown = String::from_utf8(table.stdout).unwrap();
    assert!(
        shown.starts_with("made: 5 calls, 4 first uses, 3 sessions, 4 tools"),
        "{shown}"
    );
    for heading in [
        "PREDICTOR",
        "HIT@1",
        "COV@50%",
        "COLD STARTS",
        "POLICY",
        "conformal-98",
    ] {
        assert!(shown.contains(heading), "{shown}");
    }
}

#[tokio::test]
async fn invalid_input_is_named_with_file_and_line() {
    let unknown = "{\"calls\":[{\"tool\":\"sky\"},{\"tool\":\"gone\"}]}\n";
    let place = ReplayFiles::new(CATALOG, &format!("{SESSIONS}{unknown}"));
    let (code, said) = place.failed_run(&[]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("made.jsonl: line 4: call 2: tool \"gone\""),
        "{said}"
    );
    assert!(said.contains("made.catalog.json"), "{said}");
    let place = ReplayFiles::new(CATALOG, &format!("{SESSIONS}\nno json\n"));
    let (code, said) = place.failed_run(&[]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("made.jsonl: line 5"), "{said}");
    for (catalog, reason) in [
        ("{\"tools\":[]}", "there are no tools"),
        (r#"{"tools":[{"name":"a"},{"name":"a"}]}"#, "duplicate name"),
        ("{\"tools\":[\n7]}", "line 2"),
    ] {
        let (code, said) = ReplayFiles::new(catalog, SESSIONS).failed_run(&[]).await;
        assert_eq!(code, Some(1));
        assert!(
            said.contains("made.catalog.json") && said.contains(reason),
            "{said}"
        );
    }
    let place = ReplayFiles::new(CATALOG, "");
    assert!(place.failed_run(&[]).await.1.contains("there are no calls"));
    for wrong in [
        ["--policy", "conformal-100"],
        ["--predictor", "magic"],
        ["--max-tools", "0"],
    ] {
        assert_eq!(place.failed_run(&wrong).await.0, Some(2), "{wrong:?}");
    }
    assert_eq!(place.run(&["--json"]).await.status.code(), Some(2));
    assert_eq!(place.failed_run(&["--from-store"]).await.0, Some(2));
}

#[tokio::test]
async fn skipped_input_is_counted() {
    let twice = CATALOG.replace(r#","unknown":1}]"#, r#"},{"name":"sky"}]"#);
    let more = concat!(
        "no json\n",
        "{\"calls\":[]}\n",
        "{\"calls\":[{\"tool\":\"gone\"},{\"tool\":\"sky\"},{\"tool\":\"gone\"}]}\n",
    );
    let place = ReplayFiles::new(&twice, &format!("{SESSIONS}{more}"));
    for mode in [
        &["--lenient", "--json"][..],
        &["--lenient", "--json", "--unseen-tasks"],
    ] {
        let output = place.replay_files(mode).await;
        assert!(output.status.success(), "{output:?}");
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&measured["calls"], &measured["catalog"]),
            (&6.into(), &4.into())
        );
        let said = String::from_utf8_lossy(&output.stderr);
        for counted in [
            "skipped 1 duplicate tools in the catalog",
            "skipped 1 lines that are not a session",
            "skipped 2 calls that cannot be replayed",
            "skipped 1 sessions without calls",
        ] {
            assert!(said.contains(counted), "{said}");
        }
    }
    // Sessions without calls are not an error.
    let place = ReplayFiles::new(CATALOG, &format!("{SESSIONS}{{\"calls\":[]}}\n"));
    let output = place.replay_files(&["--json"]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("skipped 1 sessions without calls"));
}

#[tokio::test]
async fn recorded_calls_are_replayed_from_the_store() {
    let place = ReplayFiles::new(CATALOG, SESSIONS);
    let data_dir = place.0.path().join("data");
    std::fs::create_dir(&data_dir).unwrap();
    let empty = place.run(&["--from-store"]).await;
    assert_eq!(empty.status.code(), Some(0));
    let said = String::from_utf8_lossy(&empty.stdout).into_owned();
    assert!(said.contains("nothing is recorded yet"), "{said}");
    let mut riglm = Riglm::serve(&odd_over_stdio(), &data_dir, &Options::default()).await;
    for tools in [&["echo", "empty", "echo"][..], &["echo"]] {
        let client = riglm.client(Answers::full());
        client.initialize(&initialize("0", "2025-11-25")).await;
        client.request(&request("\"l\"", "tools/list")).await;
        for (n, tool) in tools.iter().enumerate() {
            client
                .request(&call(&(n + 1).to_string(), tool, "{}"))
                .await;
        }
    }
    // While the proxy runs, and after its end.
    for is_running in [true, false] {
        let output = place.run(&["--from-store", "--json"]).await;
        assert!(output.status.success(), "{output:?}");
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(measured["dataset"], "store");
        assert_eq!(
            (&measured["calls"], &measured["first_uses"]),
            (&4.into(), &3.into())
        );
        assert!(measured["catalog"].as_u64() > Some(2), "{measured}");
        if is_running {
            riglm.stop().await;
        }
    }
}
