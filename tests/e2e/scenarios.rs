//! Lists after a declared context, before anything is learned: seven scenarios and other wordings
//! of them, with a catalog for tasks, projects and documents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The own tools of the proxy.
pub(crate) const OWN: [&str; 3] = ["search_available_tools", "call_tool", "set_context"];
/// The number of tools in the catalog.
pub(crate) const N_TOOLS: usize = 41;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("e2e/scenarios/{name}.json"))
}

pub(crate) fn catalog() -> Vec<Value> {
    let text = std::fs::read_to_string(path("catalog")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the names of the tools in the catalog that match a rule.
pub(crate) fn tools(rule: impl Fn(&str, bool) -> bool) -> BTreeSet<String> {
    let tools = catalog().into_iter().filter_map(|tool| {
        let name = tool["name"].as_str().unwrap().to_owned();
        let reads = tool["annotations"]["readOnlyHint"] == true;
        rule(&name, reads).then_some(name)
    });
    tools.collect()
}

pub(crate) fn of_tasks(name: &str) -> bool {
    name.contains("task") && !name.contains("project")
}

/// A proxy in front of the catalog, without learned data.
pub(crate) struct CatalogProxy {
    pub(crate) riglm: Riglm,
    pub(crate) data: TempDir,
}

impl CatalogProxy {
    pub(crate) async fn start(more: &str) -> Self {
        let odd = env!("CARGO_BIN_EXE_odd-server");
        let data = TempDir::new().unwrap();
        let command = json!([odd, "stdio", "--name", "work", "--listing", path("catalog")]);
        let toml = format!("[upstreams.work]\ncommand = {command}\n[filtering]\n{more}");
        let options = Options {
            arguments: ["--strategy", "prediction"].map(str::to_owned).to_vec(),
            ..Options::with_configuration(&toml)
        };
        let riglm = Riglm::serve(&Upstream::from_configuration(), data.path(), &options).await;
        Self { riglm, data }
    }

    /// Returns a client with its own work session.
    pub(crate) async fn client(&self, work: &str) -> Client {
        let client = RawClient::streamable(&self.riglm.url, Answers::default());
        let hello = initialize("0", "2025-11-25").replacen(
            r#""params":{"#,
            &format!(r#""params":{{"_meta":{{"io.github.riglm/session":"{work}"}},"#),
            1,
        );
        assert!(hello.contains(work), "{hello}");
        client.initialize(&hello).await;
        Client { client, n: 0 }
    }
}

pub(crate) struct Client {
    client: RawClient,
    n: usize,
}

impl Client {
    fn id(&mut self) -> String {
        self.n += 1;
        self.n.to_string()
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.id();
        let asked = call(&id, tool, &arguments.to_string());
        let answer: Value = serde_json::from_str(&self.client.request(&asked).await.text).unwrap();
        answer["result"].clone()
    }

    /// Sends a message and returns the HTTP status.
    pub(crate) async fn send_status(&self, text: &str) -> u16 {
        self.client.send(text).await.status
    }

    pub(crate) async fn declare_context(&mut self, query: &str) {
        let said = self.call("set_context", &json!({ "query": query })).await;
        assert_ne!(said["isError"], true, "{said}");
    }

    /// Returns the names in the list, without own tools.
    pub(crate) async fn listed_tools(&mut self) -> BTreeSet<String> {
        let id = self.id();
        let answer = self.client.request(&request(&id, "tools/list")).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        assert!(answer["result"]["nextCursor"].is_null(), "{answer}");
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| !OWN.contains(&name.as_str())).collect()
    }
}

/// Returns whether a list fits a scenario.
pub(crate) fn fits_scenario(scenario: &str, list: &BTreeSet<String>) -> bool {
    let n = list.len();
    let has = |name: &str| list.contains(name);
    match scenario {
        "list" => {
            let reading = tools(|name, reads| of_tasks(name) && reads);
            list.is_subset(&reading) && (5..=8).contains(&n) && has("list_tasks")
        }
        "create" => {
            let all = tools(|name, _| of_tasks(name));
            list.is_subset(&all) && (10..=12).contains(&n) && has("create_task")
        }
        "analyze" => {
            let all = tools(|name, _| name.contains("project"));
            all.is_subset(list) && (18..=22).contains(&n)
        }
        "web" => has("web_search") && n < N_TOOLS / 2,
        "help" => {
            let help = [
                "get_product_overview",
                "search_help_center",
                "get_help_article",
            ];
            help.into_iter().all(has) && n < N_TOOLS / 2
        }
        // An intent to write shows writing tools.
        "update" => has("update_task") && has("create_task") && n < N_TOOLS / 2,
        _ => panic!("there is no scenario {scenario}"),
    }
}

#[tokio::test]
async fn a_declared_task_selects_the_list() {
    let stage = CatalogProxy::start("").await;
    for (n, (scenario, query)) in [
        ("list", "List my tasks"),
        ("create", "Create a new task"),
        ("analyze", "Analyze project health"),
        ("web", "Search the web for X"),
        ("help", "How does it work?"),
        ("update", "Update task status"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = stage.client(&format!("scenario {n}")).await;
        client.declare_context(query).await;
        let list = client.listed_tools().await;
        assert!(
            fits_scenario(scenario, &list),
            "{query}: {} {list:#?}",
            list.len()
        );
        // A hidden tool can be called.
        let result = client.call("archive_project", &json!({})).await;
        assert_eq!(result["content"][0]["text"], "work ran archive_project");
    }
}

#[tokio::test]
async fn a_second_declared_task_changes_the_list() {
    let stage = CatalogProxy::start("").await;
    let mut client = stage.client("shift").await;
    assert_eq!(
        client.listed_tools().await.len(),
        N_TOOLS,
        "nothing is known"
    );
    client.declare_context("Analyze project health").await;
    let of_projects = client.listed_tools().await;
    assert!(fits_scenario("analyze", &of_projects), "{of_projects:#?}");
    assert_eq!(client.listed_tools().await, of_projects);
    client.declare_context("Update task status").await;
    let list = client.listed_tools().await;
    assert!(fits_scenario("update", &list), "{list:#?}");
    assert!(!list.contains("get_project"), "{list:#?}");
    // A context without a topic shows all tools again. A used tool stays in later lists.
    client.declare_context("Good morning!").await;
    assert_eq!(client.listed_tools().await.len(), N_TOOLS);
    client.call("web_search", &json!({ "query": "x" })).await;
    client.declare_context("List my tasks").await;
    let mut list = client.listed_tools().await;
    assert!(list.remove("web_search"), "{list:#?}");
    assert!(fits_scenario("list", &list), "{list:#?}");
}

/// Other wordings of the scenarios.
#[tokio::test]
async fn other_wordings_of_a_task_select_the_same_list() {
    let stage = CatalogProxy::start("").await;
    let text = std::fs::read_to_string(path("wordings")).unwrap();
    let wordings: Value = serde_json::from_str(&text).unwrap();
    let (mut n, mut failed) = (0, Vec::new());
    for (scenario, queries) in wordings.as_object().unwrap() {
        for query in queries.as_array().unwrap() {
            n += 1;
            let mut client = stage.client(&format!("wording {n}")).await;
            let query = match query {
                Value::String(query) => query,
                steps => {
                    client.declare_context(steps[0].as_str().unwrap()).await;
                    let before = client.listed_tools().await;
                    client.declare_context(steps[1].as_str().unwrap()).await;
                    let list = client.listed_tools().await;
                    let reading = tools(|name, reads| of_tasks(name) && reads);
                    let is_of_tasks = reading.is_subset(&list) && list != before;
                    if !(is_of_tasks && list.len() < N_TOOLS / 2) {
                        failed.push(format!("{steps}: {list:?}"));
                    }
                    continue;
                }
            };
            client.declare_context(query).await;
            let list = client.listed_tools().await;
            if !fits_scenario(scenario, &list) {
                failed.push(format!("{scenario}: {query}: {} {list:?}", list.len()));
            }
        }
    }
    println!("{} of {n} wordings hold", n - failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn lists_of_modern_clients_do_not_follow_the_context() {
    let stage = CatalogProxy::start("").await;
    let client = RawClient::modern(&stage.riglm.url);
    let meta = Meta::default();
    let said = meta.call("1", "set_context", r#"{"query":"List my tasks"}"#);
    let answer = client.request(&said).await.text;
    assert!(answer.contains("\"result\""), "{answer}");
    let listed = client
        .request(&meta.request("2", "tools/list", ""))
        .await
        .text;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let n = listed["result"]["tools"].as_array().unwrap().len();
    assert!(n >= N_TOOLS, "{listed}");
}
