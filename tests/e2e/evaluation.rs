//! `riglm eval search`: evaluation of the search on the user's own tools and queries.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use riglm_tests::{binary, process};
use serde_json::Value;
use tempfile::TempDir;

const CATALOG: &str = r#"{"id":"read","server":"files","name":"read_file","description":"Reads a file","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}}
{"id":"mail","server":"mail","name":"send_mail","description":"Sends a letter to somebody"}
{"id":"sky","server":"weather","name":"forecast","description":"Says what the weather will be like tomorrow"}
"#;
const QUERIES: &str = r#"{"qid":"1","query":"read the file /etc/hosts","gold":["read"]}
{"qid":"2","query":"will it rain","gold":["sky"],"gold_any":[["sky","mail"]],"session":"s"}
{"qid":"3","query":"write to my aunt","gold":["mail"],"unknown":1}
"#;

struct EvaluationFiles(TempDir);

impl EvaluationFiles {
    fn new(catalog: &str, queries: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("catalog.jsonl"), catalog).unwrap();
        std::fs::write(folder.path().join("queries.jsonl"), queries).unwrap();
        Self(folder)
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let at = |name: &str| self.0.path().join(name);
        let mut command = process::command(binary::riglm(), &["eval", "search"]);
        command.arg("--catalog").arg(at("catalog.jsonl"));
        command.arg("--queries").arg(at("queries.jsonl"));
        command.arg("--data-dir").arg(at("data")).args(arguments);
        let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
        ended.await.unwrap().unwrap()
    }

    async fn evaluate(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat()).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the exit code and the error message of a run that fails.
    async fn failed_run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

#[tokio::test]
async fn a_search_is_measured_with_and_without_an_encoder() {
    let place = EvaluationFiles::new(CATALOG, QUERIES);
    let none = place.evaluate(&["--encoder", "none"]).await;
    let expected = [
        "dataset",
        "tools",
        "queries",
        "hit@1",
        "r@1",
        "r@3",
        "r@5",
        "r@10",
        "r@15",
        "r@20",
        "mrr",
        "ndcg@10",
        "all@15",
        "false_no_match",
        "rank_ms_p50",
        "rank_ms_p95",
        "encode_ms_p50",
        "encode_ms_p95",
    ];
    let keys: Vec<&String> = none.as_object().unwrap().keys().collect();
    assert_eq!(keys, expected);
    assert_eq!((&none["tools"], &none["queries"]), (&3.into(), &3.into()));
    assert_eq!(none["encode_ms_p50"], 0.0);
    let embedded = place.evaluate(&["--encoder", "embedded"]).await;
    assert!(embedded["encode_ms_p95"].as_f64() > Some(0.0));
    assert!(
        embedded["mrr"].as_f64() > none["mrr"].as_f64(),
        "{embedded} {none}"
    );
    assert_eq!(embedded["r@3"], 1.0);
    let few = place.evaluate(&[
        "--limit",
        "1",
        "--fusion",
        "rrf",
        "--history",
        "leave-one-out",
    ]);
    assert_eq!(few.await["queries"], 1);
    let partly = r#"{"query":"read it","gold":["read","gone"]}"#;
    let place = EvaluationFiles::new(CATALOG, partly);
    let measured = place.evaluate(&["--encoder", "none", "--history", "leave-one-out"]);
    assert_eq!(measured.await["r@20"], 0.5);
}

const MEMORY: &str = r#"{"id":"create","server":"memory","name":"create_entities","description":"Create multiple new entities in the knowledge graph"}
{"id":"observe","server":"memory","name":"add_observations","description":"Add new observations to existing entities in the knowledge graph"}
{"id":"status","server":"git","name":"git_status","description":"Shows the working tree status"}
"#;

#[tokio::test]
async fn encoder_avoids_false_no_match_answers() {
    let remember =
        r#"{"query":"remember that Bob likes coffee","gold_any":[["create","observe"]]}"#;
    let place = EvaluationFiles::new(MEMORY, remember);
    let foreign = place.0.path().join("foreign.jsonl");
    std::fs::write(
        &foreign,
        "{\"query\":\"zzz qqq\"}\n{\"query\":\"git status\"}\n",
    )
    .unwrap();
    let foreign = foreign.display().to_string();
    let none = ["--encoder", "none", "--foreign", &foreign];
    let words = place.evaluate(&none).await;
    assert_eq!(words["false_no_match"], 1.0, "no word speaks for a tool");
    assert_eq!(words["missed_no_match"], 0.5);
    let meaning = place.evaluate(&["--encoder", "embedded"]).await;
    assert_eq!(meaning["false_no_match"], 0.0);
    assert_eq!(meaning["hit@1"], 1.0);
    assert_eq!(meaning["missed_no_match"], Value::Null);
    std::fs::write(&foreign, "\n").unwrap();
    let (code, said) = place.failed_run(&none).await;
    assert!(
        code != Some(0) && said.contains("there are no queries"),
        "{said}"
    );
}

#[tokio::test]
async fn invalid_evaluation_input_is_named() {
    let place = EvaluationFiles::new(
        CATALOG,
        "{\"query\":\"x\",\"gold\":[\"read\"]}\n{\"gold\":[]}\n",
    );
    let (code, said) = place.failed_run(&[]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("queries.jsonl: line 2"), "{said}");
    let (code, said) = EvaluationFiles::new(CATALOG, "").failed_run(&[]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("queries.jsonl: there are no queries"),
        "{said}"
    );
    let place = EvaluationFiles::new(CATALOG, QUERIES);
    let (code, said) = place.failed_run(&["--encoder", "no-such-model"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("riglm model pull no-such-model"), "{said}");
    let (code, _) = place.failed_run(&["--fusion", "magic"]).await;
    assert_eq!(code, Some(2));
}

#[tokio::test]
async fn a_model_with_a_truncated_file_is_refused_by_name() {
    let place = EvaluationFiles::new(CATALOG, QUERIES);
    let model = place.0.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let write =
        |name: &str, text: &str| std::fs::write(Path::new(&model).join(name), text).unwrap();
    write("config.json", "{}");
    write("tokenizer.json", "{}");
    write("model.safetensors", "short");
    let digest = "0".repeat(64);
    let file = |name: &str, bytes: u64| {
        format!(r#"{{"name":"{name}","bytes":{bytes},"sha256":"{digest}"}}"#)
    };
    let files = [
        file("config.json", 2),
        file("tokenizer.json", 2),
        file("model.safetensors", 99),
    ];
    write(
        "manifest.json",
        &format!(
            r#"{{"name":"mine","form":"bert","dimension":384,"max_tokens":256,"licence":"MIT","files":[{}]}}"#,
            files.join(",")
        ),
    );
    let (code, said) = place
        .failed_run(&["--encoder", model.to_str().unwrap()])
        .await;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("model.safetensors") && said.contains("99"),
        "{said}"
    );
}

/// Returns a logged list size with this probability, as `riglm eval policies --output` writes it.
fn logged_size(cluster: usize, propensity: &str) -> String {
    format!(
        r#"{{"cluster":"{cluster}","choice":{{"size":"5","greedy":"10","share":0.5,"candidates":["5","10"],"propensity":{propensity},"draw":{{"coin":0,"place":0}}}},"n_tools":50,"features":[1.0],"outcome":{{"cost":{cluster}.5,"searches":0.0,"coverage":1.0}}}}"#
    )
}

async fn policies(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = process::command(binary::riglm(), &["eval", "policies"]);
    command
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(arguments);
    let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
    ended.await.unwrap().unwrap()
}

#[tokio::test]
async fn list_sizes_are_evaluated_from_a_file_or_refused_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let choices = folder.path().join("choices.jsonl");
    let named = choices.to_str().unwrap();
    let lines: Vec<String> = (0..40).map(|n| logged_size(n, "0.25")).collect();
    std::fs::write(&choices, lines.join("\n")).unwrap();
    let output = policies(folder.path(), &["--choices", named, "--json"]).await;
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["explored_sessions"], 40);
    let of = |name: &str| {
        let all = report["policies"].as_array().unwrap().iter();
        all.into_iter().find(|it| it["policy"] == name).unwrap()
    };
    // Every session had 5 tools with the probability 0.25, and a mean cost of 20.
    assert_eq!(of("5")["snips"]["value"], 20.0);
    assert_eq!(of("5")["ips"]["value"], 80.0);
    let refusal = of("20")["refusal"].as_str().unwrap();
    assert!(refusal.starts_with("no overlap: in 40 of 40"), "{refusal}");

    for (line, reason) in [
        (logged_size(1, "0"), "a propensity must be a number above 0"),
        (logged_size(1, "0.5"), "the propensity is 0.5, but"),
        ("{}".into(), "missing field"),
    ] {
        std::fs::write(&choices, line).unwrap();
        let output = policies(folder.path(), &["--choices", named]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(reason) && said.contains("choices.jsonl"),
            "{said}"
        );
    }
    let unused = policies(folder.path(), &["--json"]).await;
    assert!(unused.status.success(), "{unused:?}");
    let report: Value = serde_json::from_slice(&unused.stdout).unwrap();
    assert_eq!(report["sessions"], 0);
    let clip = policies(folder.path(), &["--choices", named, "--clip", "0"]).await;
    assert!(!clip.status.success());
}
