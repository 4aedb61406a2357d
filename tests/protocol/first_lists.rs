//! Handshakes and lists from what is known of servers, whatever they do now: how fast they come,
//! which processes they start, and what changes nothing for others.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::kit::{Proxy, ProxyBuilder, ServerBuilder, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::process::{command, eventually};
use riglm_tests::riglm::{Options, rows, serve_command};
use tempfile::TempDir;

use crate::answers;

/// The servers that are ready at once.
const QUICK: [&str; 4] = ["docs", "files", "mail", "wiki"];
/// The number of tools of each server.
const N_TOOLS: usize = 12;
/// The longest time for a handshake or a list from what is known. It is generous, because other
/// tests run at the same time; `first_answers_are_measured` measures it.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Six servers, of which one is broken and one waits for a gate. Each start leaves a line in a file.
struct Servers {
    folder: TempDir,
}

impl Servers {
    fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder can be made"),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data_dir(&self) -> PathBuf {
        self.file("data")
    }

    fn open_gate(&self) {
        std::fs::write(self.file("gate"), "").expect("the gate can be opened");
    }

    fn close_gate(&self) {
        std::fs::remove_file(self.file("gate")).expect("the gate can be closed");
    }

    /// Returns a server whose starts are counted.
    fn counted(&self, name: &str, of: ServerBuilder) -> ServerBuilder {
        let file = self.file(&format!("{name}.starts"));
        of.after(&format!("echo started >> '{}'", file.display()))
    }

    fn n_starts(&self, name: &str) -> usize {
        let starts = std::fs::read_to_string(self.file(&format!("{name}.starts")));
        starts.map_or(0, |starts| starts.lines().count())
    }

    fn forget_starts(&self) {
        for name in QUICK.iter().chain(&["slow", "broken"]) {
            let _ = std::fs::remove_file(self.file(&format!("{name}.starts")));
        }
    }

    fn proxy(&self, strategy: &str) -> ProxyBuilder {
        std::fs::create_dir_all(self.data_dir()).expect("a folder can be made");
        let quick = QUICK.map(|name| self.counted(name, server(name).tools(N_TOOLS)));
        let gate = self.file("gate").display().to_string();
        let slow = server("slow").tools(N_TOOLS).argument("--gate", gate);
        let broken = server("broken").after("exit 3");
        let all = quick
            .into_iter()
            .chain([self.counted("slow", slow), self.counted("broken", broken)]);
        all.fold(proxy(), |proxy, server| proxy.server(&server))
            .strategy(strategy)
            .configuration("limits.first_wait = \"1500ms\"\n")
            .with_control()
    }

    async fn start(&self, strategy: &str) -> Proxy {
        self.proxy(strategy).start_in(&self.data_dir()).await
    }

    /// Runs a proxy until all servers but the broken one have answered once.
    async fn learn(&self, strategy: &str) {
        self.open_gate();
        let mut proxy = self.start(strategy).await;
        until_settled(&proxy, &["slow"]).await;
        assert_eq!(proxy.riglm.stop().await, Some(0));
        self.forget_starts();
    }
}

/// Waits until these servers and the quick ones are available.
async fn until_settled(proxy: &Proxy, more: &[&str]) {
    for _ in 0..600 {
        let health = proxy.control_response("/health").await;
        let is_up = |name: &&&str| health["upstreams"][**name]["state"] == "available";
        // The log says it when the lists are stored.
        let output = proxy.riglm.process.output();
        let is_stored = |name: &&&str| output.contains(&format!("upstream {name} is available: "));
        let mut all = QUICK.iter().chain(more);
        if all.all(|name| is_up(&name) && is_stored(&name))
            && health["upstreams"]["broken"]["state"] == "unavailable"
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", proxy.riglm.process.output());
}

/// The answers to a handshake and to a list, and the longest time that one of them took.
async fn first_answers(client: &RawClient) -> (String, Duration) {
    let begun = Instant::now();
    client.initialize(&initialize("0", "2025-11-25")).await;
    let handshake = begun.elapsed();
    let begun = Instant::now();
    let list = client.request(&request("1", "tools/list")).await.text;
    (list, handshake.max(begun.elapsed()))
}

async fn first_modern_answers(client: &RawClient) -> (String, Duration) {
    let meta = Meta::default().with_capabilities("{}");
    let begun = Instant::now();
    client
        .request(&meta.request("0", "server/discover", ""))
        .await;
    let discovery = begun.elapsed();
    let begun = Instant::now();
    let list = client
        .request(&meta.request("1", "tools/list", ""))
        .await
        .text;
    (list, discovery.max(begun.elapsed()))
}

fn n_of(list: &str, server: &str) -> usize {
    list.matches(&format!("\"name\":\"{server}__")).count()
}

#[tokio::test]
async fn a_restarted_proxy_answers_from_what_the_last_run_knew() {
    let servers = Servers::new();
    servers.learn("none").await;
    servers.close_gate();
    let mut proxy = servers.start("none").await;
    let (list, took) = first_answers(&proxy.riglm.client(answers())).await;
    assert!(took < AT_ONCE, "{took:?}");
    for name in QUICK.iter().chain(&["slow"]) {
        assert_eq!(n_of(&list, name), N_TOOLS, "{name}: {list}");
    }
    let modern = RawClient::modern(&proxy.riglm.url);
    let (list, took) = first_modern_answers(&modern).await;
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(n_of(&list, "slow"), N_TOOLS, "{list}");
    until_settled(&proxy, &[]).await;
    // The checks alone have started processes: neither sessions nor their lists did.
    for name in QUICK.iter().chain(&["slow"]) {
        assert_eq!(servers.n_starts(name), 1, "{name}");
    }
    // A server that ends without an answer may be one that ends at a request of another era.
    assert!(servers.n_starts("broken") <= 2);
    servers.open_gate();
    proxy.riglm.stop().await;
}

#[tokio::test]
async fn sessions_over_standard_input_are_answered_from_what_is_known() {
    let servers = Servers::new();
    servers.learn("none").await;
    servers.close_gate();
    let options = Options::with_configuration(
        &std::fs::read_to_string(servers.data_dir().join("test.toml")).expect("it was written"),
    );
    let serve = serve_command(
        &Upstream::from_configuration(),
        &servers.data_dir(),
        &options,
        &["--stdio"],
    );
    let client = RawClient::stdio(serve, answers());
    let (list, _) = first_answers(&client).await;
    assert_eq!(n_of(&list, "slow"), N_TOOLS, "{list}");
    servers.open_gate();
}

#[tokio::test]
async fn an_epoch_is_one_list_although_a_server_is_broken() {
    let servers = Servers::new();
    servers.open_gate();
    let mut before: Option<String> = None;
    for _ in 0..2 {
        let mut proxy = servers.start("prediction").await;
        until_settled(&proxy, &["slow"]).await;
        for _ in 0..2 {
            let (list, _) = first_answers(&proxy.riglm.client(answers())).await;
            assert_eq!(*before.get_or_insert(list.clone()), list);
        }
        proxy.riglm.stop().await;
    }
    let data = servers.data_dir();
    let sessions = rows(&data, &["sessions", "--json"]).await;
    assert_eq!(sessions.len(), 4);
    for session in &sessions {
        let id = session["id"].as_str().expect("a session has an id");
        let lists = rows(&data, &["lists", "--session", id, "--json"]).await;
        assert_eq!(lists.len(), 1, "{lists:?}");
        assert_eq!(lists[0]["epoch"], 1, "{lists:?}");
    }
}

#[tokio::test]
async fn a_client_of_the_first_run_is_told_once_of_servers_that_started_late() {
    let servers = Servers::new();
    let proxy = servers.start("prediction").await;
    let client = proxy.riglm.client(answers());
    let (first, _) = first_answers(&client).await;
    assert_eq!(n_of(&first, "slow"), 0, "{first}");
    // Until the starts have settled, the client sees one list, however often it asks.
    let again = client.request(&request("2", "tools/list")).await.text;
    assert_eq!(first.replace("\"id\":1", ""), again.replace("\"id\":2", ""));
    servers.open_gate();
    client
        .method_after(0, "notifications/tools/list_changed", 1)
        .await;
    let whole = client.request(&request("3", "tools/list")).await.text;
    assert!(n_of(&whole, "slow") > 0, "{whole}");
    tokio::time::sleep(Duration::from_millis(600)).await;
    client.request(&request("4", "ping")).await;
    let received = client.received_messages();
    let told = received
        .iter()
        .filter(|message| message.is_method("notifications/tools/list_changed"));
    assert_eq!(told.count(), 1, "{}", client.history());
}

#[tokio::test]
async fn definitions_that_changed_while_the_proxy_was_down_replace_the_known_ones() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let listing = folder.path().join("listing.json");
    let list = |name: &str| {
        let text = format!(r#"[{{"name":"{name}","inputSchema":{{"type":"object"}}}}]"#);
        std::fs::write(&listing, text).expect("the listing can be written");
    };
    let start = async |data_dir: &Path| {
        let changing = server("a").listing(&listing);
        let proxy = proxy().server(&changing).server(&server("b").tools(1));
        proxy.with_control().start_in(data_dir).await
    };
    list("before");
    let mut proxy = start(folder.path()).await;
    first_answers(&proxy.riglm.client(answers())).await;
    let is_known = || {
        let output = proxy.riglm.process.output();
        (output.matches(" is available: ").count() == 2).then_some(())
    };
    assert!(eventually(AT_ONCE * 10, is_known).await.is_some());
    proxy.riglm.stop().await;
    list("after");
    let mut proxy = start(folder.path()).await;
    let client = proxy.riglm.client(answers());
    let (first, _) = first_answers(&client).await;
    if first.contains("a__before") {
        client
            .method_after(0, "notifications/tools/list_changed", 1)
            .await;
    }
    let now = client.request(&request("2", "tools/list")).await.text;
    assert!(
        now.contains("a__after") && !now.contains("a__before"),
        "{now}"
    );
    let answer = client.request(&call("3", "b__tool-000", "{}")).await.text;
    assert!(answer.contains("b ran tool-000"), "{answer}");
    proxy.riglm.stop().await;
}

#[tokio::test]
async fn what_is_known_of_another_server_does_not_count() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let start = async |n_tools| {
        let same_name = server("a").tools(n_tools);
        let proxy = proxy().server(&same_name).server(&server("b").tools(1));
        proxy.with_control().start_in(folder.path()).await
    };
    let mut proxy = start(3).await;
    let (list, _) = first_answers(&proxy.riglm.client(answers())).await;
    assert_eq!(n_of(&list, "a"), 3);
    proxy.riglm.stop().await;
    let mut proxy = start(5).await;
    let (list, _) = first_answers(&proxy.riglm.client(answers())).await;
    assert_eq!(n_of(&list, "a"), 5, "{list}");
    proxy.riglm.stop().await;
}

/// Prints the median and the longest time of first answers from the second start on. The bounds are
/// generous, for a busy machine; on a quiet one the answers over HTTP take less than 250 ms.
#[tokio::test]
#[ignore = "needs two minutes"]
async fn first_answers_are_measured() {
    const N_RUNS: usize = 20;
    let servers = Servers::new();
    servers.learn("prediction").await;
    servers.close_gate();
    let options = Options::with_configuration(
        &std::fs::read_to_string(servers.data_dir().join("test.toml")).expect("it was written"),
    );
    let mut worst = Vec::new();
    for way in ["http", "http, 2026-07-28", "--stdio", "connect"] {
        let mut times = Vec::new();
        for _ in 0..N_RUNS {
            if way == "--stdio" {
                let serve = serve_command(
                    &Upstream::from_configuration(),
                    &servers.data_dir(),
                    &options,
                    &["--stdio"],
                );
                let client = RawClient::stdio(serve, answers());
                times.push(first_answers(&client).await.1);
                client.close_input().await;
                continue;
            }
            let mut proxy = servers.start("prediction").await;
            times.push(match way {
                "http" => first_answers(&proxy.riglm.client(answers())).await.1,
                "connect" => {
                    let url = proxy.riglm.url.as_str();
                    let mut bridge = command(binary::riglm(), &["connect", "--url", url]);
                    bridge.arg("--data-dir").arg(servers.data_dir());
                    let client = RawClient::stdio(bridge, answers());
                    first_answers(&client).await.1
                }
                _ => {
                    first_modern_answers(&RawClient::modern(&proxy.riglm.url))
                        .await
                        .1
                }
            });
            proxy.riglm.stop().await;
        }
        times.sort_unstable();
        let (median, longest) = (times[N_RUNS / 2], times[N_RUNS - 1]);
        println!("{way}: median {median:?}, longest {longest:?}");
        worst.push((way, longest));
    }
    for (way, longest) in worst {
        // The time over standard input has the start of the program in it.
        let bound = if matches!(way, "--stdio" | "connect") {
            10
        } else {
            3
        };
        assert!(longest < Duration::from_secs(bound), "{way}: {longest:?}");
    }
}
