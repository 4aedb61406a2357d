//! Several servers of which one is still starting, hangs, or is left by its client meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::Upstream;
use riglm_tests::messages::{call, initialize, initialize_with, request};
use riglm_tests::plain_http;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;
use tempfile::TempDir;

use crate::answers;

const LIST_CHANGED: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];
/// How many tools each server has.
const N_TOOLS: usize = 8;

/// A proxy in front of a server that is quick and of one that starts when its gate is opened, both
/// started anew for each session.
struct Scene {
    riglm: Riglm,
    control: u16,
    gate: PathBuf,
    data_dir: TempDir,
}

impl Scene {
    async fn start(strategy: &str, further: &str) -> Self {
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        let gate = data_dir.path().join("gate");
        let mut configuration = String::from(further);
        for name in ["quick", "slow"] {
            let mut words = vec![env!("CARGO_BIN_EXE_odd-server").to_owned(), "stdio".into()];
            words.extend(["--tools".into(), N_TOOLS.to_string()]);
            words.extend(["--name".into(), name.to_owned()]);
            if name == "slow" {
                words.extend(["--gate".into(), gate.display().to_string()]);
            }
            let words = serde_json::to_string(&words).expect("words are JSON");
            let section = ["\n[upstreams.", name, "]\ncommand = ", &words, "\n"];
            configuration.push_str(&section.concat());
        }
        let control = free_port();
        let arguments = ["--strategy", strategy, "--control"].map(str::to_owned);
        let options = Options {
            arguments: [&arguments[..], &[format!("127.0.0.1:{control}")]].concat(),
            configuration: Some(configuration),
            ..Options::default()
        };
        let riglm = Riglm::serve(&Upstream::configured(), data_dir.path(), &options).await;
        Self {
            riglm,
            control,
            gate,
            data_dir,
        }
    }

    fn open_gate(&self) {
        std::fs::write(&self.gate, "").expect("the gate can be opened");
    }

    fn close_gate(&self) {
        std::fs::remove_file(&self.gate).expect("the gate can be closed");
    }

    fn client(&self) -> RawClient {
        self.riglm.client(answers())
    }

    /// Returns a client that has set up its session.
    async fn connected(&self, capabilities: &str) -> RawClient {
        let client = self.client();
        let hello = initialize_with("0", "2025-11-25", capabilities);
        client.initialize(&hello).await;
        client
    }

    /// Returns what the control port answers.
    async fn asked(&self, path: &str) -> Value {
        let token = std::fs::read_to_string(self.data_dir.path().join("control.token"));
        let bearer = format!("Bearer {}", token.expect("there is a token").trim());
        let url = format!("http://127.0.0.1:{}{path}", self.control);
        let url = url.parse().expect("the address is a URL");
        let headers = [("authorization", &*bearer)];
        let answer = plain_http::exchange(Method::GET, &url, &headers, String::new()).await;
        serde_json::from_str(&answer.expect("the control port answers").body)
            .expect("the answer is JSON")
    }
}

fn tools_in(answer: &str) -> Vec<String> {
    let tools = raw_at(answer, &["result", "tools"]).unwrap_or_else(|| panic!("{answer}"));
    let tools: Vec<Value> = serde_json::from_str(&tools).expect("tools are JSON");
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names.map(str::to_owned).collect()
}

async fn listed(client: &RawClient, id: &str) -> Vec<String> {
    tools_in(&client.request(&request(id, "tools/list")).await.text)
}

fn n_of(tools: &[String], server: &str) -> usize {
    let prefix = format!("{server}__");
    tools
        .iter()
        .filter(|tool| tool.starts_with(&prefix))
        .count()
}

/// Returns how many notifications of changed lists a client received.
fn n_told(client: &RawClient) -> usize {
    let received = client.received();
    let is_told = |method: &&str| {
        let of_method = received.iter().filter(|message| message.is_method(method));
        of_method.count()
    };
    LIST_CHANGED.iter().map(is_told).sum()
}

/// Calls a tool of the server, which waits until the server is there.
async fn calls(client: &RawClient, id: &str, server: &str) {
    let answer = client
        .request(&call(id, &format!("{server}__tool-000"), "{}"))
        .await;
    assert!(
        answer.text.contains(&format!("{server} ran tool-000")),
        "{}",
        answer.text
    );
}

/// Lets the proxy tell what it has to tell: changes are told a tenth of a second late.
async fn settled(client: &RawClient) {
    tokio::time::sleep(Duration::from_millis(600)).await;
    client.request(&request("\"settled\"", "ping")).await;
}

#[tokio::test]
async fn the_first_list_waits_for_a_server_of_which_nothing_is_known() {
    let scene = Scene::start("none", "").await;
    let opening = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        scene.open_gate();
    };
    let listing = async {
        let client = scene.connected("{}").await;
        let tools = listed(&client, "1").await;
        (client, tools)
    };
    let ((), (client, tools)) = tokio::join!(opening, listing);
    assert_eq!(
        (n_of(&tools, "quick"), n_of(&tools, "slow")),
        (N_TOOLS, N_TOOLS)
    );
    settled(&client).await;
    assert_eq!(n_told(&client), 0, "{}", client.history());
}

#[tokio::test]
async fn a_client_with_other_capabilities_is_shown_the_tools_of_a_server_that_is_starting() {
    for strategy in ["none", "prediction"] {
        let scene = Scene::start(strategy, "").await;
        scene.open_gate();
        let first = scene.connected("{}").await;
        let all = listed(&first, "1").await;
        assert_eq!(n_of(&all, "slow"), N_TOOLS, "{strategy}");
        scene.close_gate();
        let second = scene.connected(r#"{"roots":{"listChanged":true}}"#).await;
        assert_eq!(listed(&second, "1").await, all, "{strategy}");
        // A call waits for the server; what it lists then is what was shown.
        let calling = calls(&second, "2", "slow");
        let opening = async { scene.open_gate() };
        tokio::join!(calling, opening);
        settled(&second).await;
        assert_eq!(n_told(&second), 0, "{strategy}: {}", second.history());
    }
}

#[tokio::test]
async fn a_list_says_which_servers_it_lacks_and_one_change_is_told() {
    let scene = Scene::start("none", "limits.unite_timeout = \"300ms\"").await;
    let client = scene.connected("{}").await;
    let answer = client.request(&request("1", "tools/list")).await.text;
    assert_eq!(n_of(&tools_in(&answer), "quick"), N_TOOLS);
    assert_eq!(n_of(&tools_in(&answer), "slow"), 0);
    let meta = raw_at(&answer, &["result", "_meta"]).unwrap_or_else(|| panic!("{answer}"));
    let meta: Value = serde_json::from_str(&meta).expect("metadata is JSON");
    assert_eq!(
        meta["io.github.riglm/missing-upstreams"][0]["upstream"],
        "slow"
    );
    let upstreams = scene.asked("/upstreams").await;
    assert_eq!(upstreams["upstreams"][1]["left_out"], 1, "{upstreams}");
    scene.open_gate();
    client.method_after(0, LIST_CHANGED[0], 1).await;
    settled(&client).await;
    // It asked for no other list, and did not ask for this one again.
    assert_eq!(n_told(&client), 1, "{}", client.history());
    let answer = client.request(&request("2", "tools/list")).await.text;
    assert_eq!(n_of(&tools_in(&answer), "slow"), N_TOOLS);
    assert_eq!(raw_at(&answer, &["result", "_meta"]), None);
}

#[tokio::test]
async fn no_epoch_begins_while_a_server_is_missing() {
    let further = "limits.unite_timeout = \"300ms\"\n[filtering]\nmax_tools = 4\nmin_tools = 2\n\
                   [[filtering.pools]]\nname = \"basic\"\ntools = [\"slow__*\", \"quick__tool-00[01]\"]\n";
    let scene = Scene::start("prediction", further).await;
    let client = scene.connected("{}").await;
    let partial = listed(&client, "1").await;
    assert_eq!(n_of(&partial, "slow"), 0);
    scene.open_gate();
    client.method_after(0, LIST_CHANGED[0], 1).await;
    let whole = listed(&client, "2").await;
    assert_eq!(n_of(&whole, "slow"), N_TOOLS, "{whole:?}");
    settled(&client).await;
    assert_eq!(n_told(&client), 1, "{}", client.history());
}

#[tokio::test]
async fn a_client_that_leaves_while_a_server_starts_does_not_make_it_unavailable() {
    let scene = Scene::start("none", "").await;
    scene.open_gate();
    listed(&scene.connected("{}").await, "1").await;
    scene.close_gate();
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let leaving = scene.connected(capabilities).await;
        listed(&leaving, "1").await;
        assert_eq!(leaving.delete().await, 204);
    }
    let health = scene.asked("/health").await;
    assert_eq!(health["status"], "ok", "{health}");
    let next = scene.connected("{}").await;
    assert_eq!(n_of(&listed(&next, "1").await, "slow"), N_TOOLS);
}

#[tokio::test]
async fn a_client_that_leaves_at_once_does_not_make_unknown_servers_unavailable() {
    let scene = Scene::start("none", "limits.unite_timeout = \"300ms\"").await;
    // Nobody knows the server yet, and the one who asked is gone before it answers.
    let leaving = scene.client();
    let hello = initialize("0", "2025-11-25");
    leaving.initialize(&hello).await;
    leaving.delete().await;
    scene.open_gate();
    let next = scene.connected("{}").await;
    calls(&next, "1", "slow").await;
    let health = scene.asked("/health").await;
    assert_eq!(health["status"], "ok", "{health}");
}

#[tokio::test]
async fn a_server_that_hangs_holds_up_one_client_once_and_not_the_end() {
    let mut scene = Scene::start("none", "limits.unite_timeout = \"4s\"").await;
    let mut times = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        let client = scene.connected("{}").await;
        let tools = listed(&client, "1").await;
        times.push(begun.elapsed());
        assert_eq!((n_of(&tools, "quick"), n_of(&tools, "slow")), (N_TOOLS, 0));
        clients.push(client);
    }
    assert!(times[0] >= Duration::from_secs(4), "{times:?}");
    let slowest = times[1..].iter().max().expect("there are three more");
    assert!(*slowest * 2 < times[0], "{times:?}");
    let health = scene.asked("/health").await;
    assert_eq!(
        health["upstreams"]["slow"]["state"], "unavailable",
        "{health}"
    );
    assert_eq!(
        health["upstreams"]["quick"]["state"], "available",
        "{health}"
    );
    // The drain limit is 30 seconds, of which nothing is needed: nobody waits for an answer.
    assert_eq!(scene.riglm.stop().await, Some(0));
}

#[tokio::test]
async fn a_server_that_hangs_after_it_was_known_holds_nobody_up() {
    let scene = Scene::start("none", "limits.unite_timeout = \"20s\"").await;
    scene.open_gate();
    let all = listed(&scene.connected("{}").await, "1").await;
    scene.close_gate();
    for capabilities in ["{}", r#"{"roots":{}}"#, r#"{"sampling":{}}"#] {
        let begun = Instant::now();
        let client = scene.connected(capabilities).await;
        let handshake = begun.elapsed();
        let begun = Instant::now();
        assert_eq!(listed(&client, "1").await, all);
        let list = begun.elapsed();
        // A quarter of a second is waited for an upstream that is known.
        let limit = Duration::from_millis(900);
        assert!(handshake < limit && list < limit, "{handshake:?}, {list:?}");
        calls(&client, "2", "quick").await;
    }
}

#[tokio::test]
async fn an_upstream_that_changes_its_list_is_told_of_once_to_who_saw_it() {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let changes = data_dir.path().join("changes");
    let riglm = changing(data_dir.path(), &changes).await;
    let ignorant = riglm.client(answers());
    ignorant.initialize(&initialize("0", "2025-11-25")).await;
    let client = riglm.client(answers());
    client.initialize(&initialize("0", "2025-11-25")).await;
    let before = listed(&client, "1").await;
    // The server says that its list changed, which it did not.
    client.request(&call("2", "one__change_list", "{}")).await;
    settled(&client).await;
    assert_eq!(n_told(&client), 0, "{}", client.history());
    std::fs::write(&changes, "").expect("the lists can be changed");
    client.request(&call("3", "one__change_list", "{}")).await;
    client.method_after(0, LIST_CHANGED[0], 1).await;
    // What the client was told already is not told again before it asks.
    client.request(&call("4", "one__change_list", "{}")).await;
    settled(&client).await;
    assert_eq!(n_told(&client), 1, "{}", client.history());
    assert_ne!(listed(&client, "5").await, before);
    ignorant.request(&call("6", "two__change_list", "{}")).await;
    settled(&ignorant).await;
    assert_eq!(n_told(&ignorant), 0, "{}", ignorant.history());
}

/// Starts a proxy in front of two servers whose tools change when the file `changes` is there.
async fn changing(data_dir: &Path, changes: &Path) -> Riglm {
    let mut configuration = String::new();
    for name in ["one", "two"] {
        let program = env!("CARGO_BIN_EXE_odd-server");
        let changes = changes.display();
        let section = format!(
            "[upstreams.{name}]\ncommand = [\"{program}\", \"stdio\", \"--name\", \"{name}\", \
             \"--tools\", \"3\", \"--changes\", \"{changes}\"]\n"
        );
        configuration.push_str(&section);
    }
    let options = Options::configured(&configuration);
    Riglm::serve(&Upstream::configured(), data_dir, &options).await
}
