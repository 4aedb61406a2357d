//! Tools of operators with a running proxy: Prometheus with the shipped alerts and dashboard, and a
//! fuzzer that uses the description of the control API.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::clients_dir;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::plain_http;
use riglm_tests::process::{Process, command, free_port};
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

/// The deadline for a start of Prometheus, a scrape and an evaluation.
const PATIENCE: Duration = Duration::from_mins(1);

struct RunningProxy(Proxy);

async fn line(data: &Path) -> RunningProxy {
    let proxy = proxy()
        .before(server("plain").tools(12).upstream())
        .strategy("prediction")
        .variable("RIGLM__RECOMMEND__TOOLS", "true")
        .with_control();
    RunningProxy(proxy.start_in(data).await)
}

impl RunningProxy {
    async fn metrics(&self) -> String {
        self.0.operate(Method::GET, "/metrics", "").await.body
    }

    async fn n_series(&self) -> usize {
        let text = self.metrics().await;
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    /// Lets a client list, call, search, and call a found tool.
    async fn make_calls(&self) -> RawClient {
        let client = self.0.client().connect().await;
        client.request(&request("1", "tools/list")).await;
        for n in 0..3 {
            let id = format!("{}", n + 2);
            client.request(&call(&id, "tool-003", "{}")).await;
        }
        let words = r#"{"query":"tool"}"#;
        let search = call("9", "search_available_tools", words);
        let found = client.request(&search).await;
        assert!(found.text.contains("\"result\""));
        let ask = r#"{"query":"tool-003"}"#;
        let asked = client.request(&call("10", "recommend_tools", ask)).await;
        assert!(asked.text.contains("\"tool-003\""), "{}", asked.text);
        client.request(&call("11", "tool-003", "{}")).await;
        client
    }
}

#[tokio::test]
async fn made_up_names_of_tools_add_few_series() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let client = line.make_calls().await;
    let before = line.n_series().await;
    for n in 0..500 {
        let id = format!("{}", n + 100);
        client
            .request(&call(&id, &format!("made_up_{n}"), "{}"))
            .await;
    }
    let after = line.n_series().await;
    assert!(after <= before + 60, "{before} before, {after} after");
    let text = line.metrics().await;
    assert!(!text.contains("made_up_"), "{text}");
    let counted = text
        .lines()
        .any(|line| line.starts_with("riglm_tool_calls_total") && line.contains("_other"));
    assert!(counted, "{text}");
}

struct Prometheus {
    _process: Process,
    api: Url,
}

impl Prometheus {
    fn start(line: &RunningProxy, directory: &Path) -> Self {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
        let shipped = std::fs::read_to_string(deploy.join("prometheus.yml")).unwrap();
        let alerts = deploy.join("alerts.yml").canonicalize().unwrap();
        let config = shipped
            .replace("- alerts.yml", &format!("- {}", alerts.display()))
            .replace("15s", "1s")
            .replace(
                "/var/lib/riglm/control.token",
                &line.0.data_dir.join("control.token").display().to_string(),
            )
            .replace("127.0.0.1:8643", line.0.control("/").authority());
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", directory.join("tsdb").display()),
            format!("--web.listen-address={address}"),
        ];
        Self {
            _process: Process::spawn(command("prometheus", &arguments)),
            api: format!("http://{address}/api/v1/").parse().unwrap(),
        }
    }

    /// Returns the response of a path of the API, or `None` if there is none yet.
    async fn get(&self, path: &str) -> Option<Value> {
        let url = self.api.join(path).unwrap();
        let answer = plain_http::exchange(http::Method::GET, &url, &[], String::new());
        let answer = answer.await.ok()?;
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        (body["status"] == "success").then(|| body["data"].clone())
    }

    async fn wait_for<T>(&self, path: &str, read: impl Fn(&Value) -> Option<T>) -> T {
        let asked = async {
            loop {
                if let Some(found) = self.get(path).await.as_ref().and_then(&read) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, asked).await;
        found.unwrap_or_else(|_| panic!("{path} never had what was waited for"))
    }
}

/// Returns the metric names in a text with expressions.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(|c: char| !is_part(c))
        .filter(|word| word.starts_with("riglm_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
#[ignore = "needs prometheus"]
async fn prometheus_scrapes_the_proxy_and_evaluates_its_alerts() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let _client = line.make_calls().await;
    let directory = TempDir::new().unwrap();
    let prometheus = Prometheus::start(&line, directory.path());
    let target = prometheus
        .wait_for("targets", |data| {
            let target = data["activeTargets"].get(0)?.clone();
            (target["health"] != "unknown").then_some(target)
        })
        .await;
    assert_eq!(target["health"], "up", "{target}");
    let calls = prometheus
        .wait_for("query?query=riglm_tool_calls_total", |data| {
            data["result"].get(0).map(|one| one["value"][1].clone())
        })
        .await;
    assert_eq!(calls, json!("4"));
    let rules = prometheus
        .wait_for("rules", |data| {
            let rules = data["groups"].get(0)?["rules"].as_array()?.clone();
            let is_done = rules.iter().all(|rule| rule["health"] != "unknown");
            is_done.then_some(rules)
        })
        .await;
    assert!(rules.len() >= 10, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["state"], "inactive", "{rule}");
    }

    // All metrics of the dashboard and the alerts exist.
    let names = prometheus
        .wait_for("label/__name__/values", |data| {
            let names: BTreeSet<String> = serde_json::from_value(data.clone()).ok()?;
            names.contains("riglm_build_info").then_some(names)
        })
        .await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for file in ["grafana/riglm.json", "prometheus/alerts.yml"] {
        let text = std::fs::read_to_string(deploy.join(file)).unwrap();
        let wanted = metrics_in(&text);
        assert!(wanted.len() >= 10, "{file}: {wanted:?}");
        let missing: Vec<&String> = wanted.difference(&names).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}");
    }
}

#[tokio::test]
#[ignore = "needs prometheus"]
async fn alert_rules_pass_the_checks_of_promtool() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
    for arguments in [["check", "alerts.yml"], ["test", "alerts.test.yml"]] {
        let [verb, file] = arguments;
        let output = tokio::process::Command::new("promtool")
            .args([verb, "rules", file])
            .current_dir(&deploy)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[tokio::test]
#[ignore = "needs pip"]
async fn fuzzed_requests_conform_to_the_description_of_the_control_api() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let _client = line.make_calls().await;
    let folder = clients_dir().join("schemathesis");
    let output = tokio::process::Command::new("python3")
        .args(["-m", "schemathesis.cli", "run"])
        .arg(line.0.control("/openapi.json").as_str())
        .args([
            "--header",
            &format!("Authorization: Bearer {}", line.0.token()),
        ])
        // An event stream does not end by itself.
        .args(["--exclude-path", "/events"])
        // Valid requests may be refused too: a time in the past, an invalid cursor.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--max-examples", "40", "--seed", "1", "--no-color"])
        .args(["--request-timeout", "20"])
        .env("PYTHONPATH", &folder)
        .current_dir(data.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Tested: 31"), "{text}");
}
