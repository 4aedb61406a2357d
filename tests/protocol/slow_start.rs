//! Several servers: one of them starts slowly, hangs, or loses its client during the start.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riglm_tests::client::RawClient;
use riglm_tests::envelope::raw_at;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, initialize_with, request};
use serde_json::Value;
use tempfile::TempDir;

use crate::answers;

const LIST_CHANGED: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];
/// The number of tools of each server.
const N_TOOLS: usize = 8;

/// A proxy in front of two servers: one is ready at once, the other one when its gate file exists.
/// Each session starts its own processes.
struct Scene {
    proxy: Proxy,
    gate: PathBuf,
    _folder: TempDir,
}

impl Scene {
    async fn start(strategy: &str, further: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let gate = folder.path().join("gate");
        let slow = server("slow").tools(N_TOOLS);
        let proxy = proxy()
            .configuration(further)
            .server(&server("quick").tools(N_TOOLS))
            .server(&slow.argument("--gate", gate.display().to_string()))
            .strategy(strategy)
            .with_control()
            .start()
            .await;
        Self {
            proxy,
            gate,
            _folder: folder,
        }
    }

    fn open_gate(&self) {
        std::fs::write(&self.gate, "").expect("the gate can be opened");
    }

    fn close_gate(&self) {
        std::fs::remove_file(&self.gate).expect("the gate can be closed");
    }

    fn client(&self) -> RawClient {
        self.proxy.riglm.client(answers())
    }

    /// Returns a client with an initialised session.
    async fn connect(&self, capabilities: &str) -> RawClient {
        let client = self.client();
        let hello = initialize_with("0", "2025-11-25", capabilities);
        client.initialize(&hello).await;
        client
    }
}

fn tools_in(answer: &str) -> Vec<String> {
    let tools = raw_at(answer, &["result", "tools"]).unwrap_or_else(|| panic!("{answer}"));
    let tools: Vec<Value> = serde_json::from_str(&tools).expect("tools are JSON");
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names.map(str::to_owned).collect()
}

async fn listed_tools(client: &RawClient, id: &str) -> Vec<String> {
    tools_in(&client.request(&request(id, "tools/list")).await.text)
}

fn n_of(tools: &[String], server: &str) -> usize {
    let prefix = format!("{server}__");
    tools
        .iter()
        .filter(|tool| tool.starts_with(&prefix))
        .count()
}

/// Returns the number of received `list_changed` notifications.
fn n_list_changed(client: &RawClient) -> usize {
    let received = client.received_messages();
    let is_told = |method: &&str| {
        let of_method = received.iter().filter(|message| message.is_method(method));
        of_method.count()
    };
    LIST_CHANGED.iter().map(is_told).sum()
}

/// Calls a tool of the server. The call waits until the server has started.
async fn call_tool_of(client: &RawClient, id: &str, server: &str) {
    let answer = client
        .request(&call(id, &format!("{server}__tool-000"), "{}"))
        .await;
    assert!(
        answer.text.contains(&format!("{server} ran tool-000")),
        "{}",
        answer.text
    );
}

/// Waits for delayed notifications: the proxy delays `list_changed` by a tenth of a second.
async fn wait_for_notifications(client: &RawClient) {
    tokio::time::sleep(Duration::from_millis(600)).await;
    client.request(&request("\"settled\"", "ping")).await;
}

#[tokio::test]
async fn the_first_list_waits_for_an_unknown_server() {
    let scene = Scene::start("none", "").await;
    let opening = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        scene.open_gate();
    };
    let listing = async {
        let client = scene.connect("{}").await;
        let tools = listed_tools(&client, "1").await;
        (client, tools)
    };
    let ((), (client, tools)) = tokio::join!(opening, listing);
    assert_eq!(
        (n_of(&tools, "quick"), n_of(&tools, "slow")),
        (N_TOOLS, N_TOOLS)
    );
    wait_for_notifications(&client).await;
    assert_eq!(n_list_changed(&client), 0, "{}", client.history());
}

#[tokio::test]
async fn tools_of_starting_servers_are_shown_despite_other_capabilities() {
    for strategy in ["none", "prediction"] {
        let scene = Scene::start(strategy, "").await;
        scene.open_gate();
        let first = scene.connect("{}").await;
        let all = listed_tools(&first, "1").await;
        assert_eq!(n_of(&all, "slow"), N_TOOLS, "{strategy}");
        scene.close_gate();
        let second = scene.connect(r#"{"roots":{"listChanged":true}}"#).await;
        assert_eq!(listed_tools(&second, "1").await, all, "{strategy}");
        // The call waits for the server, whose list is then equal to the shown one.
        let calling = call_tool_of(&second, "2", "slow");
        let opening = async { scene.open_gate() };
        tokio::join!(calling, opening);
        wait_for_notifications(&second).await;
        assert_eq!(
            n_list_changed(&second),
            0,
            "{strategy}: {}",
            second.history()
        );
    }
}

#[tokio::test]
async fn a_list_names_missing_servers_and_one_list_changed_follows() {
    let scene = Scene::start("none", "limits.first_wait = \"300ms\"").await;
    let client = scene.connect("{}").await;
    let answer = client.request(&request("1", "tools/list")).await.text;
    assert_eq!(n_of(&tools_in(&answer), "quick"), N_TOOLS);
    assert_eq!(n_of(&tools_in(&answer), "slow"), 0);
    let meta = raw_at(&answer, &["result", "_meta"]).unwrap_or_else(|| panic!("{answer}"));
    let meta: Value = serde_json::from_str(&meta).expect("metadata is JSON");
    assert_eq!(
        meta["io.github.riglm/missing-upstreams"][0]["upstream"],
        "slow"
    );
    let upstreams = scene.proxy.control_response("/upstreams").await;
    assert_eq!(upstreams["upstreams"][1]["left_out"], 1, "{upstreams}");
    scene.open_gate();
    client.method_after(0, LIST_CHANGED[0], 1).await;
    wait_for_notifications(&client).await;
    // The client saw only this list and did not request it again, so it gets one notification.
    assert_eq!(n_list_changed(&client), 1, "{}", client.history());
    let answer = client.request(&request("2", "tools/list")).await.text;
    assert_eq!(n_of(&tools_in(&answer), "slow"), N_TOOLS);
    assert_eq!(raw_at(&answer, &["result", "_meta"]), None);
}

#[tokio::test]
async fn no_epoch_begins_while_a_server_is_missing() {
    let further = "limits.first_wait = \"300ms\"\n[filtering]\nmax_tools = 4\nmin_tools = 2\n\
                   [[filtering.pools]]\nname = \"basic\"\ntools = [\"slow__*\", \"quick__tool-00[01]\"]\n";
    let scene = Scene::start("prediction", further).await;
    let client = scene.connect("{}").await;
    let partial = listed_tools(&client, "1").await;
    assert_eq!(n_of(&partial, "slow"), 0);
    scene.open_gate();
    client.method_after(0, LIST_CHANGED[0], 1).await;
    let whole = listed_tools(&client, "2").await;
    assert_eq!(n_of(&whole, "slow"), N_TOOLS, "{whole:?}");
    wait_for_notifications(&client).await;
    assert_eq!(n_list_changed(&client), 1, "{}", client.history());
}

#[tokio::test]
async fn departed_clients_do_not_make_starting_servers_unavailable() {
    let scene = Scene::start("none", "").await;
    scene.open_gate();
    listed_tools(&scene.connect("{}").await, "1").await;
    scene.close_gate();
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let leaving = scene.connect(capabilities).await;
        listed_tools(&leaving, "1").await;
        assert_eq!(leaving.delete().await, 204);
    }
    let health = scene.proxy.control_response("/health").await;
    assert_eq!(health["status"], "ok", "{health}");
    let next = scene.connect("{}").await;
    assert_eq!(n_of(&listed_tools(&next, "1").await, "slow"), N_TOOLS);
}

#[tokio::test]
async fn departed_clients_do_not_make_unknown_servers_unavailable() {
    let scene = Scene::start("none", "limits.first_wait = \"300ms\"").await;
    // The server is unknown, and the client has left before it responds.
    let leaving = scene.client();
    let hello = initialize("0", "2025-11-25");
    leaving.initialize(&hello).await;
    leaving.delete().await;
    scene.open_gate();
    let next = scene.connect("{}").await;
    call_tool_of(&next, "1", "slow").await;
    let health = scene.proxy.control_response("/health").await;
    assert_eq!(health["status"], "ok", "{health}");
}

#[tokio::test]
async fn hanging_servers_delay_only_the_first_client_not_shutdown() {
    let mut scene = Scene::start("none", "limits.first_wait = \"4s\"").await;
    let mut times = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        let client = scene.connect("{}").await;
        let tools = listed_tools(&client, "1").await;
        times.push(begun.elapsed());
        assert_eq!((n_of(&tools, "quick"), n_of(&tools, "slow")), (N_TOOLS, 0));
        clients.push(client);
    }
    assert!(times[0] >= Duration::from_secs(4), "{times:?}");
    let slowest = times[1..].iter().max().expect("there are three more");
    assert!(*slowest * 2 < times[0], "{times:?}");
    let health = scene.proxy.control_response("/health").await;
    assert_eq!(health["upstreams"]["slow"]["state"], "starting", "{health}");
    assert_eq!(
        health["upstreams"]["quick"]["state"], "available",
        "{health}"
    );
    // The drain limit is 30 seconds, but no client waits for a response.
    assert_eq!(scene.proxy.riglm.stop().await, Some(0));
}

#[tokio::test]
async fn hanging_known_servers_delay_no_client() {
    let scene = Scene::start("none", "limits.first_wait = \"20s\"").await;
    scene.open_gate();
    let all = listed_tools(&scene.connect("{}").await, "1").await;
    scene.close_gate();
    for capabilities in ["{}", r#"{"roots":{}}"#, r#"{"sampling":{}}"#] {
        let begun = Instant::now();
        let client = scene.connect(capabilities).await;
        let handshake = begun.elapsed();
        let begun = Instant::now();
        assert_eq!(listed_tools(&client, "1").await, all);
        let list = begun.elapsed();
        // The proxy waits a quarter of a second for a known upstream.
        let limit = Duration::from_millis(900);
        assert!(handshake < limit && list < limit, "{handshake:?}, {list:?}");
        call_tool_of(&client, "2", "quick").await;
    }
}

#[tokio::test]
async fn list_changes_are_notified_once_to_clients_with_lists() {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let changes = data_dir.path().join("changes");
    let proxy = serve_changing_servers(&changes).await;
    let ignorant = proxy.client().answers(answers()).connect().await;
    let client = proxy.client().answers(answers()).connect().await;
    let before = listed_tools(&client, "1").await;
    // The server sends `list_changed` although its list is unchanged.
    client.request(&call("2", "one__change_list", "{}")).await;
    wait_for_notifications(&client).await;
    assert_eq!(n_list_changed(&client), 0, "{}", client.history());
    std::fs::write(&changes, "").expect("the lists can be changed");
    client.request(&call("3", "one__change_list", "{}")).await;
    client.method_after(0, LIST_CHANGED[0], 1).await;
    // A client gets no second notification before it requests the list.
    client.request(&call("4", "one__change_list", "{}")).await;
    wait_for_notifications(&client).await;
    assert_eq!(n_list_changed(&client), 1, "{}", client.history());
    assert_ne!(listed_tools(&client, "5").await, before);
    ignorant.request(&call("6", "two__change_list", "{}")).await;
    wait_for_notifications(&ignorant).await;
    assert_eq!(n_list_changed(&ignorant), 0, "{}", ignorant.history());
}

/// Starts a proxy in front of two servers whose tools change when the file `changes` exists.
async fn serve_changing_servers(changes: &Path) -> Proxy {
    let changing = |name| {
        let server = server(name).tools(3);
        server.argument("--changes", changes.display().to_string())
    };
    let proxy = proxy().server(&changing("one")).server(&changing("two"));
    proxy.start().await
}
