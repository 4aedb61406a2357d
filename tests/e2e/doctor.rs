//! `riglm doctor`: broken set-ups, each named with its place and its cure.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use riglm_tests::binary;
use riglm_tests::kit::server;
use riglm_tests::process::{Process, command, free_port};
use riglm_tests::riglm::{listening_address, run_at_home};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

const CONFIG: &str = ".config/riglm/riglm.toml";
const SECRETS: &str = ".local/share/riglm/secrets.env";

fn write(home: &Path, path: &str, text: &str, mode: u32) {
    let path = home.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the listen and control sections with free ports.
fn ports() -> String {
    let (listen, control) = (free_port(), free_port());
    format!(
        "[listen]\naddress = \"127.0.0.1:{listen}\"\n[control]\naddress = \"127.0.0.1:{control}\"\n"
    )
}

/// Makes a set-up without problems: a configuration with one upstream, and a data directory.
fn healthy() -> TempDir {
    let home = TempDir::new().unwrap();
    let text = format!(
        "{}[upstreams.shell]\ncommand = [\"sh\", \"-c\", \"true\"]\n",
        ports()
    );
    write(home.path(), CONFIG, &text, 0o600);
    let data = home.path().join(".local/share/riglm");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    home
}

/// Returns the address in section `listen` of the configuration.
fn listen_address(home: &Path) -> String {
    let text = std::fs::read_to_string(home.join(CONFIG)).unwrap();
    let start = text.find("127.0.0.1:").unwrap();
    let end = start + text[start..].find('"').unwrap();
    text[start..end].to_owned()
}

async fn diagnose(home: &Path) -> (Option<i32>, Vec<Value>) {
    let output = run_at_home(home, &["doctor", "--json"]).await;
    let checks = output.json()["checks"].as_array().unwrap().clone();
    (output.code, checks)
}

/// Asserts that one check has the status, the detail and the cure.
fn assert_named(checks: &[Value], [status, detail, cure]: [&str; 3]) {
    let is_it = |check: &Value| {
        check["status"] == status
            && check["detail"].as_str().unwrap().contains(detail)
            && check["cure"].as_str().unwrap().contains(cure)
    };
    assert!(checks.iter().any(is_it), "{detail}: {}", json!(checks));
}

#[tokio::test]
async fn a_healthy_set_up_has_no_problem() {
    let home = healthy();
    let output = run_at_home(home.path(), &["doctor"]).await.success();
    assert!(
        output
            .stdout
            .contains("ok       upstreams: shell looks usable"),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.contains("warning  proxy: none runs"),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.trim_end().ends_with("0 problems, 1 warning"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.lines().count() < 20, "{}", output.stdout);
}

/// Breaks a set-up.
type Break = fn(&Path);

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one entry for each set-up")]
async fn broken_set_ups_are_named_with_their_cure() {
    let cases: [(Break, [&str; 3]); 14] = [
        (
            |home| write(home, CONFIG, "[listen]\nadress = 1\n", 0o600),
            ["problem", "adress", "docs/configuration.md"],
        ),
        (
            |home| {
                write(
                    home,
                    CONFIG,
                    "[upstreams.a]\nurl = \"https://${NOWHERE}\"\n",
                    0o600,
                );
            },
            [
                "problem",
                "environment variable NOWHERE is not set",
                "set NOWHERE",
            ],
        ),
        (
            |home| write(home, CONFIG, &ports(), 0o600),
            ["problem", "no upstream is configured", "riglm import"],
        ),
        (
            |home| {
                let text = format!(
                    "{}[upstreams.a]\ncommand = [\"no-such-program\"]\n",
                    ports()
                );
                write(home, CONFIG, &text, 0o600);
            },
            [
                "problem",
                "a: the program no-such-program was not found",
                "install it",
            ],
        ),
        (
            |home| {
                let url = format!("http://127.0.0.1:{}/mcp", free_port());
                let text = format!("{}[upstreams.a]\nurl = \"{url}\"\n", ports());
                write(home, CONFIG, &text, 0o600);
            },
            [
                "problem",
                "a: nothing listens at http://127.0.0.1:",
                "start the server",
            ],
        ),
        (
            |home| {
                let text = "[upstreams.a]\nurl = \"https://h.example/mcp\"\n\
                            credentials = { type = \"oauth\" }\n";
                write(home, CONFIG, &(ports() + text), 0o600);
            },
            ["warning", "a: nobody has logged in yet", "riglm login a"],
        ),
        (
            |home| write(home, SECRETS, "A=1\n", 0o644),
            ["problem", "other users can read", "chmod 600"],
        ),
        (
            |home| write(home, SECRETS, "no value\n", 0o600),
            ["problem", "secrets.env, line 1", "edit the file"],
        ),
        (
            |home| write(home, ".local/share/riglm/hmac.key", "k", 0o644),
            ["problem", "hmac.key", "chmod 600"],
        ),
        (
            |home| {
                write(
                    home,
                    ".local/share/riglm/riglm.db",
                    "no database at all, but text\n",
                    0o600,
                );
            },
            ["problem", "", "riglm db check"],
        ),
        (
            |home| write(home, ".claude.json", "{\"mcpServers\": {", 0o600),
            ["problem", "Claude Code: ", "repair the file"],
        ),
        (
            |home| {
                let text = r#"{"mcpServers":{"riglm":{"type":"http","url":"http://127.0.0.1:1/mcp"},
                    "shell":{"command":"sh","args":["-c","true"]}}}"#;
                write(home, ".claude.json", text, 0o600);
            },
            [
                "warning",
                "Claude Code has shell itself and through riglm",
                "--replace",
            ],
        ),
        (
            |home| {
                let text =
                    r#"{"mcpServers":{"riglm":{"command":"/gone/riglm","args":["connect"]}}}"#;
                write(
                    home,
                    ".config/Claude/claude_desktop_config.json",
                    text,
                    0o600,
                );
            },
            [
                "problem",
                "starts /gone/riglm, which does not exist",
                "riglm install --client claude-desktop",
            ],
        ),
        (
            |home| {
                let text = "# Written by riglm service install\n[Service]\nExecStart=\"/gone/riglm\" \"serve\"\n";
                write(home, ".config/systemd/user/riglm.service", text, 0o644);
            },
            [
                "problem",
                "starts /gone/riglm, which does not exist",
                "riglm service install",
            ],
        ),
    ];
    for (damage, expected) in cases {
        let home = healthy();
        damage(home.path());
        let (code, checks) = diagnose(home.path()).await;
        assert_named(&checks, expected);
        let has_problem = checks.iter().any(|check| check["status"] == "problem");
        assert_eq!(code, Some(i32::from(has_problem)), "{expected:?}");
    }
}

/// Asserts that Claude Code lacks riglm, which is a warning, and has no server twice.
async fn assert_without_riglm(home: &Path) {
    let (code, checks) = diagnose(home).await;
    assert_eq!(code, Some(0), "{checks:?}");
    let detail = "Claude Code does not have riglm";
    let cure = "riglm install --client claude-code";
    assert_named(&checks, ["warning", detail, cure]);
    let all = json!(checks).to_string();
    assert!(!all.contains("listed twice"), "{all}");
}

#[tokio::test]
async fn a_client_without_riglm_has_no_server_twice() {
    let home = healthy();
    let text = r#"{"mcpServers":{"shell":{"command":"sh","args":["-c","true"]}}}"#;
    write(home.path(), ".claude.json", text, 0o600);
    assert_without_riglm(home.path()).await;
    let install = ["install", "--yes", "--client", "claude-code"];
    run_at_home(home.path(), &install).await.success();
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    let detail = "Claude Code has shell itself and through riglm: its tools are listed twice";
    let cure = "riglm install --client claude-code --replace";
    assert_named(&checks, ["warning", detail, cure]);
    run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert_without_riglm(home.path()).await;
}

#[tokio::test]
async fn a_database_is_not_changed() {
    let home = healthy();
    write(home.path(), ".local/share/riglm/riglm.db", "", 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    let folder = home.path().join(".local/share/riglm");
    assert_eq!(folder.join("riglm.db").metadata().unwrap().len(), 0);
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let home = healthy();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "[listen]\naddress = \"{address}\"\n[control]\naddress = \"off\"\n\
         [upstreams.shell]\ncommand = [\"sh\"]\n"
    );
    write(home.path(), CONFIG, &text, 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    let detail = format!("{address} (listen.address) is taken");
    assert_named(&checks, ["problem", &detail, "change listen.address"]);
}

#[tokio::test]
async fn entries_for_an_old_port_are_named() {
    let home = healthy();
    run_at_home(
        home.path(),
        &["install", "--yes", "--create", "--client", "codex"],
    )
    .await
    .success();
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert_named(&checks, ["ok", "Codex has riglm", ""]);
    let text = std::fs::read_to_string(home.path().join(CONFIG)).unwrap();
    let new = format!("127.0.0.1:{}", free_port());
    let text = text.replacen(&listen_address(home.path()), &new, 1);
    write(home.path(), CONFIG, &text, 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    let row = client_row(home.path(), "codex").await;
    assert_eq!([&row["riglm"], &row["current"]], [true, false], "{row}");
    let table = run_at_home(home.path(), &["clients"]).await.success();
    assert!(table.stdout.contains("other address"), "{}", table.stdout);
    let cure = "riglm install --client codex";
    assert_named(
        &checks,
        ["problem", "riglm of Codex has another address", cure],
    );
    run_at_home(home.path(), &["install", "--yes", "--client", "codex"])
        .await
        .success();
    assert_eq!(diagnose(home.path()).await.0, Some(0));
    let row = client_row(home.path(), "codex").await;
    assert_eq!([&row["riglm"], &row["current"]], [true, true], "{row}");
}

/// Returns a client in the output of `riglm clients`.
async fn client_row(home: &Path, id: &str) -> Value {
    let output = run_at_home(home, &["clients", "--json"]).await;
    let rows: Value = output.json();
    let mut rows = rows.as_array().unwrap().iter();
    rows.find(|row| row["client"] == id).unwrap().clone()
}

#[tokio::test]
async fn a_broken_configuration_does_not_hide_other_problems() {
    let home = healthy();
    write(home.path(), ".claude.json", "{\"mcpServers\": {", 0o600);
    let text = "[search]\nenabled = 7\n[upstreams.a]\ncommand = [\"no-such-program\"]\n";
    write(home.path(), CONFIG, &(ports() + text), 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    for expected in [
        ["problem", "search.enabled", "docs/configuration.md"],
        ["problem", "a: the program no-such-program", "install it"],
        ["problem", "Claude Code: ", "repair the file"],
        ["warning", "none runs", "riglm serve"],
        ["ok", ".local/share/riglm", ""],
        ["ok", "nothing is recorded yet", ""],
        ["ok", "UTC", ""],
    ] {
        assert_named(&checks, expected);
    }
    write(home.path(), CONFIG, "[listen\n", 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    for expected in [
        [
            "problem",
            "riglm.toml is not valid TOML",
            "edit the configuration",
        ],
        ["problem", "Claude Code: ", "repair the file"],
        ["ok", "UTC", ""],
    ] {
        assert_named(&checks, expected);
    }
    let all = json!(checks).to_string();
    assert!(!all.contains("u{a}") && !all.contains("[listen"), "{all}");
    let is_about_upstreams = |check: &Value| check["name"] == "upstreams";
    assert!(!checks.iter().any(is_about_upstreams), "{checks:?}");
}

#[tokio::test]
async fn an_unknown_address_makes_no_entry_wrong() {
    let home = healthy();
    run_at_home(
        home.path(),
        &["install", "--yes", "--create", "--client", "codex"],
    )
    .await
    .success();
    write(home.path(), CONFIG, "[listen\n", 0o600);
    let (_, checks) = diagnose(home.path()).await;
    assert_named(&checks, ["ok", "Codex has riglm", ""]);
}

#[tokio::test]
async fn secrets_that_others_can_read_are_named_once_with_their_cure() {
    let home = healthy();
    write(home.path(), SECRETS, "SPARE=s3cret\n", 0o644);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    let path = home.path().join(SECRETS).display().to_string();
    let (detail, cure) = (
        format!("{path}: other users can read it"),
        format!("chmod 600 {path}"),
    );
    assert_named(&checks, ["problem", &detail, &cure]);
    assert_named(&checks, ["ok", "shell looks usable", ""]);
    let problems = checks.iter().filter(|check| check["status"] == "problem");
    assert_eq!(problems.count(), 1, "{checks:?}");
    write(home.path(), SECRETS, "SPARE=s3cret\n", 0o600);
    assert_eq!(diagnose(home.path()).await.0, Some(0));
}

#[tokio::test]
async fn secrets_without_a_use_and_secrets_in_the_file_are_named_without_values() {
    let home = healthy();
    let text = "[upstreams.a]\ncommand = [\"sh\"]\n\
                env = { A_KEY = \"${USED}\", B_TOKEN = \"s3cret-b\", LIMIT = \"5\" }\n";
    write(home.path(), CONFIG, &(ports() + text), 0o600);
    let secrets = "USED=s3cret-u\nSPARE=s3cret-s\nRIGLM_KEY=s3cret-k\n";
    write(home.path(), SECRETS, secrets, 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    let unused = "riglm.toml does not refer to SPARE in ";
    assert_named(&checks, ["warning", unused, "remove what is not needed"]);
    let literal = "upstreams.a.env.B_TOKEN has a secret in the file";
    assert_named(
        &checks,
        ["warning", literal, "secrets.env as B_TOKEN=VALUE"],
    );
    let warnings = checks.iter().filter(|check| check["status"] == "warning");
    // The third one is about the proxy.
    assert_eq!(warnings.count(), 3, "{checks:?}");
    assert!(!json!(checks).to_string().contains("s3cret"), "{checks:?}");
}

#[tokio::test]
async fn upstreams_that_are_switched_off_are_named() {
    let home = healthy();
    let off = "[upstreams.off]\nurl = \"https://h.example/mcp\"\nenabled = false\n";
    let on = "[upstreams.on]\ncommand = [\"sh\"]\n";
    write(home.path(), CONFIG, &(ports() + off + on), 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert_named(&checks, ["ok", "on looks usable", ""]);
    assert_named(&checks, ["ok", "upstreams.off is switched off", ""]);
    write(home.path(), CONFIG, &(ports() + off), 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    let cure = "enabled = true in section upstreams.off";
    assert_named(&checks, ["problem", "every upstream is switched off", cure]);
}

#[tokio::test]
async fn an_entry_by_hand_for_another_port_has_a_cure_that_works() {
    let home = healthy();
    let entry = |url: &str| {
        let text = json!({"mcpServers": {"riglm": {"type": "http", "url": url}}}).to_string();
        write(home.path(), ".claude.json", &text, 0o600);
    };
    let install = ["install", "--yes", "--client", "claude-code"];
    let address = format!("http://{}/mcp", listen_address(home.path()));
    entry("http://127.0.0.1:1/mcp");
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    let detail = format!("riglm of Claude Code has another address than {address}");
    for cure in [
        format!("set its address to {address} there"),
        "remove it there, then riglm install --client claude-code".to_owned(),
    ] {
        assert_named(&checks, ["problem", &detail, &cure]);
    }
    // The installation alone is refused.
    assert_ne!(run_at_home(home.path(), &install).await.code, Some(0));
    entry(&address);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert_named(&checks, ["ok", "Claude Code has riglm", ""]);
    write(home.path(), ".claude.json", "{\"mcpServers\": {}}", 0o600);
    run_at_home(home.path(), &install).await.success();
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert_named(&checks, ["ok", "Claude Code has riglm", ""]);
    let other = json!({"mcpServers": {"riglm": {"command": "another-server"}}}).to_string();
    write(home.path(), ".claude.json", &other, 0o600);
    let (_, checks) = diagnose(home.path()).await;
    let detail = "riglm of Claude Code is another server";
    assert_named(&checks, ["warning", detail, "rename or remove it there"]);
}

#[tokio::test]
async fn entries_that_are_there_twice_or_switched_off_are_named() {
    let home = healthy();
    let url = format!("http://{}/mcp", listen_address(home.path()));
    let entry = json!({"type": "http", "url": url});
    let twice = json!({"mcpServers": {"riglm": entry, "again": entry}}).to_string();
    write(home.path(), ".claude.json", &twice, 0o600);
    let off = format!("[mcp_servers.riglm]\nurl = \"{url}\"\nenabled = false\n");
    write(home.path(), ".codex/config.toml", &off, 0o600);
    let gone = r#"{"mcpServers":{"proxy":{"command":"/gone/riglm","args":["connect"]}}}"#;
    let desktop = ".config/Claude/claude_desktop_config.json";
    write(home.path(), desktop, gone, 0o600);
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(1));
    for expected in [
        [
            "warning",
            "Claude Code has riglm 2 times",
            "remove all but one entry",
        ],
        [
            "problem",
            "riglm is switched off in Codex",
            "switch riglm on there",
        ],
        ["problem", "starts /gone/riglm", "remove proxy from "],
        [
            "problem",
            "starts /gone/riglm",
            ", then riglm install --client claude-desktop",
        ],
    ] {
        assert_named(&checks, expected);
    }
}

/// Diagnoses a set-up with `n` upstreams at an address that does not answer, and returns the time.
async fn time_for(n: usize, home: &Path, address: SocketAddr) -> Duration {
    let sections = (0..n).map(|i| format!("[upstreams.a{i}]\nurl = \"http://{address}/mcp\"\n"));
    let text = sections.fold(ports(), |text, section| text + &section);
    write(home, CONFIG, &text, 0o600);
    let begun = Instant::now();
    let (_, checks) = diagnose(home).await;
    let time = begun.elapsed();
    let silent = checks.iter().filter_map(|check| {
        let (name, rest) = check["detail"].as_str()?.split_once(": ")?;
        rest.starts_with("nothing listens at").then_some(name)
    });
    let expected: Vec<String> = (0..n).map(|i| format!("a{i}")).collect();
    assert_eq!(silent.collect::<Vec<_>>(), expected);
    time
}

#[tokio::test]
async fn slow_upstreams_are_checked_together() {
    let home = healthy();
    // The first command of a test run may build the program.
    diagnose(home.path()).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody takes these connections. When their queue is full, the next one gets no answer.
    let mut queue = Vec::new();
    let patience = Duration::from_millis(500);
    while let Ok(stream) = timeout(patience, TcpStream::connect(address)).await {
        queue.push(stream.unwrap());
        assert!(queue.len() < 1_000, "the queue has no end");
    }
    let one = time_for(1, home.path(), address).await;
    let four = time_for(4, home.path(), address).await;
    assert!(four < one * 2, "{four:?} for four, and {one:?} for one");
}

fn serve_at_home(home: &Path) -> Process {
    let mut serve = command(binary::riglm(), &["serve"]);
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "RIGLM_CONFIG",
        "RIGLM_KEY",
    ] {
        serve.env_remove(variable);
    }
    serve.env("HOME", home).current_dir(home);
    Process::spawn(serve)
}

#[tokio::test]
async fn a_proxy_that_runs_is_healthy() {
    let home = healthy();
    let text = ports() + &server("docs").tools(3).section();
    write(home.path(), CONFIG, &text, 0o600);
    let process = serve_at_home(home.path());
    listening_address(&process).await;
    let ready = async {
        while run_at_home(home.path(), &["health"]).await.code != Some(0) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), ready).await.unwrap();
    let (code, checks) = diagnose(home.path()).await;
    assert_eq!(code, Some(0), "{checks:?}");
    assert_named(&checks, ["ok", "one is ready (control port 127.0.0.1:", ""]);
    let is_sound = |check: &Value| check["status"] == "ok";
    assert!(checks.iter().all(is_sound), "{checks:?}");
    for (second, option) in [
        (&["serve"][..], "--control ADDRESS"),
        (&["serve", "--control", "off"][..], "--listen ADDRESS"),
    ] {
        let output = run_at_home(home.path(), second).await;
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        for expected in [
            "failed to listen on 127.0.0.1:",
            "riglm runs already",
            option,
        ] {
            assert!(output.stderr.contains(expected), "{}", output.stderr);
        }
    }
}

#[tokio::test]
async fn a_proxy_of_another_data_directory_is_none_to_use() {
    let (mine, others) = (healthy(), healthy());
    let process = serve_at_home(others.path());
    listening_address(&process).await;
    let text = std::fs::read_to_string(others.path().join(CONFIG)).unwrap();
    let port = format!("127.0.0.1:{}", free_port());
    let text = text.replacen(&listen_address(others.path()), &port, 1);
    write(mine.path(), CONFIG, &text, 0o600);
    let output = run_at_home(mine.path(), &["serve"]).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for expected in [
        "failed to listen on 127.0.0.1:",
        "another data directory or user has the port",
        "--control ADDRESS, or address in section control",
    ] {
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    for wrong in ["runs already", "use that one", "stop it"] {
        assert!(!output.stderr.contains(wrong), "{}", output.stderr);
    }
}
