//! The page of the control port, `riglm open` and `riglm top`, without a browser.

use std::path::Path;
use std::time::Duration;

use http::Method;
use riglm_tests::binary;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::plain_http::{self, HttpResponse};
use riglm_tests::process::{command, free_port};
use riglm_tests::riglm::{read_store, run_at_home};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// Starts a proxy in front of two servers, with a session that made two calls.
async fn busy_proxy(data_dir: &Path) -> Proxy {
    let proxy = proxy()
        .server(&server("docs").tools(12))
        .server(&server("wiki").tools(12))
        .strategy("prediction")
        .with_control()
        .start_in(data_dir)
        .await;
    let client = proxy.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    client.request(&call("2", "docs__tool-001", "{}")).await;
    client.request(&call("3", "wiki__tool-002", "{}")).await;
    proxy
}

/// Sends a request without a token to the control port.
async fn without_token(proxy: &Proxy, method: Method, path: &str, body: &str) -> HttpResponse {
    let headers = [("content-type", "application/json")];
    let url = proxy.control(path);
    let sent = plain_http::exchange(method, &url, &headers, body.to_owned());
    sent.await.unwrap()
}

#[tokio::test]
async fn the_address_of_riglm_open_gives_the_token_once() {
    let data = TempDir::new().unwrap();
    let proxy = busy_proxy(data.path()).await;
    let page = without_token(&proxy, Method::GET, "/", "").await;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");

    let opened = read_store(data.path(), &["open", "--json"]).await;
    let opened: Value = serde_json::from_str(&opened).unwrap();
    // Standard output is not a terminal, so that no browser is started.
    assert_eq!(opened["opened"], false);
    let address = opened["address"].as_str().unwrap();
    let (place, code) = address.split_once("/#code=").unwrap();
    assert_eq!(format!("{place}/"), proxy.control("/").as_str());
    let body = json!({ "code": code }).to_string();
    let exchange = || without_token(&proxy, Method::POST, "/page/tokens", &body);
    let first = exchange().await;
    assert_eq!(first.status, 200, "{}", first.body);
    let token: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(token["token"], proxy.token());
    assert_eq!(exchange().await.status, 404);

    let folder = data.path().to_str().unwrap();
    let arguments = ["open", "--print", "--data-dir", folder];
    let printed = run_at_home(data.path(), &arguments).await.success();
    assert!(printed.stdout.contains("/#code="), "{}", printed.stdout);
    let token = proxy.token();
    assert!(!printed.stdout.contains(&token) && !printed.stderr.contains(&token));
}

#[tokio::test]
async fn commands_without_a_proxy_name_the_next_step() {
    let home = TempDir::new().unwrap();
    for arguments in [&["open"][..], &["top", "--once"]] {
        let output = run_at_home(home.path(), arguments).await;
        assert_eq!(output.code, Some(1), "{arguments:?}");
        let named = output.stderr.contains("riglm serve");
        assert!(named, "{arguments:?}: {}", output.stderr);
    }
    // Nothing listens there.
    let folder = home.path().join(".local/share/riglm");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("control.token"),
        "a token of a proxy that is gone",
    )
    .unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("control.token"), private).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let output = run_at_home(home.path(), &["open", "--control", &address]).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains(&address), "{}", output.stderr);
    let output = run_at_home(home.path(), &["open", "--control", "nowhere"]).await;
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    let output = run_at_home(home.path(), &["top"]).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
}

#[tokio::test]
async fn what_the_page_shows_is_in_the_control_api() {
    let data = TempDir::new().unwrap();
    let proxy = busy_proxy(data.path()).await;
    for path in [
        "/overview",
        "/paths",
        "/learning",
        "/setup",
        "/token",
        "/tools",
    ] {
        let refused = without_token(&proxy, Method::GET, path, "").await;
        assert_eq!(refused.status, 401, "{path}");
    }
    let calls = async || {
        let overview = proxy.control_response("/overview").await;
        overview["totals"]["calls"].clone()
    };
    // Rows appear with a short delay, and sums are kept for some seconds.
    let appeared = timeout(Duration::from_mins(1), async {
        while calls().await != 2 {
            sleep(Duration::from_millis(200)).await;
        }
    });
    appeared.await.expect("the calls are in the overview");
    let overview = proxy.control_response("/overview").await;
    assert_eq!(overview["tools"], 24);
    assert_eq!(overview["strategy"], "prediction");
    assert_eq!(overview["totals"]["tools_used"], 2);
    let open = &overview["open_sessions"][0];
    assert_eq!(open["calls"], 2, "{open}");
    assert_eq!(open["lists"]["available_tools"], 24, "{open}");
    let sessions = proxy.control_response("/sessions").await;
    let session = &sessions["sessions"][0];
    assert_eq!(session["lists"]["available_tools"], 24, "{session}");
    assert_eq!(session["lists"]["misses"], open["lists"]["misses"]);
    assert!(session["client_version"].is_string(), "{session}");
    let learning = proxy.control_response("/learning").await;
    assert_eq!(learning["days"].as_array().unwrap().len(), 1, "{learning}");
    assert_eq!(learning["total"]["tools_used"], 2, "{learning}");
    let paths = proxy.control_response("/paths").await;
    let path = &paths["transitions"][0];
    assert_eq!(path["from"]["tool"], "tool-001", "{paths}");
    assert_eq!(path["to"]["tool"], "tool-002", "{paths}");
    let tools = proxy.control_response("/tools?limit=1000").await;
    let tools = tools["tools"].as_array().unwrap();
    let used = tools.iter().find(|tool| tool["tool"] == "tool-001");
    let used = used.unwrap();
    assert!(used["definition_tokens"].as_u64().unwrap() > 0, "{used}");
    assert!(used["last_call"].is_string(), "{used}");
    let setup = proxy.control_response("/setup").await;
    assert!(!setup["checks"].as_array().unwrap().is_empty(), "{setup}");
    assert!(setup["clients"].as_array().unwrap().len() > 10, "{setup}");
    assert!(!setup.to_string().contains(&proxy.token()));
}

#[tokio::test]
async fn riglm_top_prints_one_screen() {
    let data = TempDir::new().unwrap();
    let proxy = busy_proxy(data.path()).await;
    let screen = read_store(data.path(), &["top", "--once"]).await;
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    for text in ["docs", "wiki", "available", "riglm"] {
        assert!(screen.contains(text), "{text} is not in {screen}");
    }
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
    let json = read_store(data.path(), &["top", "--json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["upstreams"].as_array().unwrap().len(), 2);
    drop(proxy);
}

/// A terminal with a program in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    async fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = command("tmux", &["-L", &self.socket]);
        let output = timeout(Duration::from_secs(20), tmux.args(arguments).output());
        let output = output.await.expect("tmux answers").unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "top"]).await
    }

    /// Waits until the screen has a text, and returns the screen.
    async fn shows(&self, text: &str) -> String {
        let shown = timeout(Duration::from_secs(30), async {
            loop {
                let screen = self.screen().await;
                if screen.contains(text) {
                    return screen;
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        match shown.await {
            Ok(screen) => screen,
            Err(late) => panic!("{text} is not shown, {late}: {}", self.screen().await),
        }
    }

    async fn press(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "top", key]).await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut tmux = std::process::Command::new("tmux");
        let _ = tmux.args(["-L", &self.socket, "kill-server"]).status();
    }
}

#[tokio::test]
#[ignore = "needs tmux"]
async fn riglm_top_is_driven_by_keys() {
    let data = TempDir::new().unwrap();
    let proxy = busy_proxy(data.path()).await;
    let terminal = Terminal {
        socket: format!("riglm-{}", free_port()),
    };
    let program = binary::riglm().display().to_string();
    let line = format!(
        "{program} top --data-dir {}; echo ended $?; sleep 60",
        data.path().display()
    );
    let size = ["new-session", "-d", "-s", "top", "-x", "80", "-y", "24"];
    terminal.tmux(&[&size[..], &[&line]].concat()).await;
    let now = terminal.shows("docs").await;
    let once = read_store(data.path(), &["top", "--once"]).await;
    // The same screen: only ages, the last line and the state of the connection differ.
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words
            .filter(|word| !word.chars().any(|character| character.is_ascii_digit()))
            .map(str::to_owned)
            .collect()
    };
    let upstreams = |screen: &str| -> Vec<Vec<String>> {
        let lines = screen.lines().filter(|line| line.contains("available"));
        lines.map(words).collect()
    };
    assert_eq!(upstreams(&now), upstreams(&once), "{now}\n{once}");
    terminal.press("3").await;
    let tools = terminal.shows("tool-001").await;
    assert!(tools.contains("tool-002"), "{tools}");
    for key in ["/", "w", "i", "k", "i", "Enter"] {
        terminal.press(key).await;
    }
    let filtered = timeout(Duration::from_secs(20), async {
        while terminal.screen().await.contains("tool-001  docs") {
            sleep(Duration::from_millis(100)).await;
        }
    });
    filtered.await.expect("the filter applies");
    terminal.press("2").await;
    terminal.shows("raw-client").await;
    terminal.press("Enter").await;
    terminal.shows("tool-002").await;
    terminal.press("?").await;
    terminal.press("Escape").await;
    terminal.press("q").await;
    terminal.shows("ended 0").await;
    drop(proxy);
}
