//! From the files of MCP clients to a client that works through riglm, and back: `riglm import`,
//! `install`, `uninstall` and `setup`.

mod addresses;
mod gateways;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::process::{Process, command, free_port};
use riglm_tests::riglm::{CommandOutput, listening_address, run_at_home};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The home directory of a user with several clients.
struct Home {
    folder: TempDir,
    port: u16,
}

impl Home {
    /// Makes the files of four clients. Two of them have the same server.
    fn new() -> Self {
        let home = Self {
            folder: TempDir::new().unwrap(),
            port: free_port(),
        };
        let odd = binary::odd_server().display().to_string();
        let docs = json!({"command": odd, "args": ["stdio", "--name", "docs", "--tools", "3"]});
        let wiki = json!({"command": odd, "args": ["stdio", "--name", "wiki", "--tools", "2"],
                          "env": {"WIKI_TOKEN": "s3cret-of-the-wiki"}});
        let code = format!(
            "{{\n\t\"numStartups\": 7,\n\t\"mcpServers\": {{\n\t\t\"docs\": {docs}\n\t}}\n}}"
        );
        home.write(".claude.json", &code);
        let cursor = format!(
            "// mine\r\n{{\r\n  \"mcpServers\": {{\r\n    \"docs\": {docs},\r\n    \"wiki\": {wiki}, // the wiki\r\n  }},\r\n}}\r\n"
        );
        home.write(".cursor/mcp.json", &cursor);
        home.write(".codex/config.toml", "# mine\nmodel = 'x'\n");
        home.write(".config/Claude/claude_desktop_config.json", "{}");
        home
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    /// Writes a configuration with a free port.
    fn configure(&self) {
        let text = format!(
            "[listen]\naddress = \"127.0.0.1:{}\"\n[control]\naddress = \"127.0.0.1:0\"\n",
            self.port
        );
        self.write(".config/riglm/riglm.toml", &text);
    }

    /// Returns all files of clients with their contents.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let is_own = path.ends_with(".config/riglm") || path.ends_with(".local");
                if path.is_dir() && !is_own {
                    folders.push(path);
                } else if !is_own {
                    let bytes = std::fs::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }

    /// Runs a command in a folder, with the free port in a variable.
    async fn run_with_variable(&self, folder: &str, arguments: &[&str]) -> CommandOutput {
        let mut command = command(binary::riglm(), arguments);
        command
            .env("HOME", self.path())
            .env("RIGLM__LISTEN__ADDRESS", format!("127.0.0.1:{}", self.port))
            .current_dir(self.path().join(folder));
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "RIGLM_CONFIG"] {
            command.env_remove(variable);
        }
        CommandOutput::of(&command.output().await.unwrap())
    }

    async fn serve(&self) -> Process {
        let mut serve = command(binary::riglm(), &["serve"]);
        serve.env("HOME", self.path()).current_dir(self.path());
        serve
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME");
        let process = Process::spawn(serve);
        listening_address(&process).await;
        process
    }
}

/// Checks the counts in the heads of the parts of all diffs in a text.
fn assert_counts(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let count = |range: &str| -> usize { range.split_once(',').unwrap().1.parse().unwrap() };
    let mut n_parts = 0;
    for (at, line) in lines.iter().enumerate() {
        let head = line.strip_prefix("@@ -");
        let Some(head) = head.and_then(|head| head.strip_suffix(" @@")) else {
            continue;
        };
        let (old, new) = head.split_once(" +").unwrap();
        let body = lines.iter().skip(at + 1);
        let body = body.take_while(|it| it.starts_with([' ', '-', '+']) && !it.starts_with("--- "));
        let body: Vec<&&str> = body.collect();
        let n_with = |marks: [char; 2]| body.iter().filter(|it| it.starts_with(marks)).count();
        assert_eq!(n_with([' ', '-']), count(old), "{line} in {text}");
        assert_eq!(n_with([' ', '+']), count(new), "{line} in {text}");
        n_parts += 1;
    }
    assert!(n_parts > 0, "{text}");
}

#[tokio::test]
async fn servers_of_clients_are_imported_once_and_their_secrets_apart() {
    let home = Home::new();
    home.configure();
    let before = home.files();
    run_at_home(home.path(), &["setup", "--dry-run"])
        .await
        .success();
    assert!(
        !home.path().join(".local").exists(),
        "a preview writes nothing"
    );
    let planned = run_at_home(home.path(), &["import", "--dry-run", "--json"])
        .await
        .success();
    let names = |json: &Value| -> Vec<String> {
        let upstreams = json["upstreams"].as_array().unwrap().iter();
        upstreams
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&planned.json()), ["docs", "wiki"]);
    assert_eq!(planned.json()["written"], false);
    assert!(!planned.stdout.contains("s3cret") && !planned.stderr.contains("s3cret"));
    assert!(!home.read(".config/riglm/riglm.toml").contains("upstreams"));

    let refused = run_at_home(home.path(), &["import"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("use --yes"), "{}", refused.stderr);

    run_at_home(home.path(), &["import", "--yes"])
        .await
        .success();
    let text = home.read(".config/riglm/riglm.toml");
    assert!(
        text.contains("# From Claude Code, Cursor.\n[upstreams.\"docs\"]"),
        "{text}"
    );
    assert!(
        text.contains("\"WIKI_TOKEN\" = \"${WIKI_WIKI_TOKEN}\""),
        "{text}"
    );
    assert!(!text.contains("s3cret"));
    let secrets = home.path().join(".local/share/riglm/secrets.env");
    assert_eq!(
        std::fs::read_to_string(&secrets).unwrap(),
        "WIKI_WIKI_TOKEN=\"s3cret-of-the-wiki\"\n"
    );
    assert_eq!(
        secrets.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(home.files(), before, "files of clients stay as they are");

    let again = run_at_home(home.path(), &["import", "--json"])
        .await
        .success();
    assert_eq!(names(&again.json()), Vec::<String>::new());
    assert!(
        again.stderr.contains("in the configuration already"),
        "{}",
        again.stderr
    );
    let checked = run_at_home(home.path(), &["config", "check", "--json"])
        .await
        .success();
    assert_eq!(checked.json()["upstreams"], json!(["docs", "wiki"]));
}

#[tokio::test]
async fn a_preview_has_every_file_that_a_setup_writes() {
    let home = Home::new();
    let odd = binary::odd_server().display().to_string();
    let docs = json!({"command": odd, "args": ["stdio", "--name", "docs", "--tools", "3"]});
    let servers = json!({"mcpServers": {"papers": docs, "gone": {"command": "/gone/server"}}});
    home.write(".gemini/settings.json", &servers.to_string());
    // A proxy may run at the default address of this machine.
    let arguments = ["setup", "--dry-run", "--no-service"];
    let planned = home.run_with_variable("", &arguments).await.success();
    for expected in [
        "/.config/riglm/riglm.toml\n@@ -0,0 +1,",
        " @@\n+# The configuration of riglm",
        "\n+strategy = \"prediction\"\n",
        "\n+[upstreams.\"wiki\"]\n",
        "/.local/share/riglm/secrets.env: WIKI_WIKI_TOKEN\n",
    ] {
        assert!(planned.stdout.contains(expected), "{}", planned.stdout);
    }
    assert_counts(&planned.stdout);
    for expected in [
        "docs: Gemini CLI calls it papers\n",
        "gone: the program /gone/server was not found",
        "listed twice; --replace takes them out",
    ] {
        assert!(planned.stderr.contains(expected), "{}", planned.stderr);
    }
    assert!(!planned.stdout.contains("s3cret") && !planned.stderr.contains("s3cret"));

    home.configure();
    let planned = run_at_home(home.path(), &["setup", "--dry-run"])
        .await
        .success();
    let unit = "Written by riglm service install";
    assert!(planned.stdout.contains(unit), "{}", planned.stdout);
    let planned = run_at_home(home.path(), &["setup", "--dry-run", "--json"])
        .await
        .success();
    let json = planned.json();
    assert_eq!(json["service"]["change"], "inserted");
    assert_eq!(
        json["import"]["secrets"]["names"],
        json!(["WIKI_WIKI_TOKEN"])
    );
    let added = json["import"]["added"].as_str().unwrap();
    assert!(added.starts_with("\n# From Claude Code"), "{added}");

    let arguments = ["setup", "--yes", "--replace", "--no-service", "--wait", "0"];
    let written = run_at_home(home.path(), &arguments).await.success();
    let next = "next: start the proxy with `riglm serve`, then restart Claude Code, ";
    assert!(
        written.stderr.contains(next) && written.stderr.contains(", Gemini CLI\n"),
        "{}",
        written.stderr
    );
    assert!(
        !written.stderr.contains("no request yet"),
        "{}",
        written.stderr
    );
    let gemini = home.read(".gemini/settings.json");
    assert!(
        gemini.contains("/gone/server") && !gemini.contains("papers"),
        "a server that riglm cannot start stays: {gemini}"
    );
}

#[tokio::test]
async fn clients_work_through_their_new_entries_and_get_their_files_back() {
    let home = Home::new();
    home.configure();
    run_at_home(home.path(), &["import", "--yes"])
        .await
        .success();
    let before = home.files();
    let planned = run_at_home(home.path(), &["install", "--dry-run"])
        .await
        .success();
    assert!(
        planned.stdout.contains("+\t\t\"riglm\": {"),
        "{}",
        planned.stdout
    );
    assert!(!planned.stdout.contains("s3cret"), "{}", planned.stdout);
    assert_eq!(home.files(), before);

    let installed = run_at_home(home.path(), &["install", "--yes", "--json"])
        .await
        .success();
    let clients: Vec<Value> = (installed.json()["clients"].as_array().unwrap().iter())
        .map(|client| client["client"].clone())
        .collect();
    assert_eq!(
        clients,
        ["claude-code", "claude-desktop", "cursor", "codex"]
    );
    let codex = home.read(".codex/config.toml");
    let url = format!("http://127.0.0.1:{}/mcp", home.port);
    assert!(codex.starts_with("# mine\nmodel = 'x'\n"), "{codex}");
    assert!(
        codex.contains(&format!("[mcp_servers.riglm]\nurl = \"{url}\"\n")),
        "{codex}"
    );
    let cursor = home.read(".cursor/mcp.json");
    assert!(
        cursor.contains("// the wiki\r\n") && cursor.contains(&url),
        "{cursor}"
    );
    let again = run_at_home(home.path(), &["install", "--yes", "--json"])
        .await
        .success();
    assert!(
        !again.stdout.contains("\"written\":true"),
        "{}",
        again.stdout
    );

    let _proxy = home.serve().await;
    let code: Value = serde_json::from_str(&home.read(".claude.json")).unwrap();
    let http = code["mcpServers"]["riglm"]["url"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let by_url = RawClient::streamable(&http, Answers::default());
    let desktop = home.read(".config/Claude/claude_desktop_config.json");
    let desktop: Value = serde_json::from_str(&desktop).unwrap();
    let entry = &desktop["mcpServers"]["riglm"];
    let words = entry["args"].as_array().unwrap().iter();
    let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
    let mut bridge = command(entry["command"].as_str().unwrap(), &words);
    bridge
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME");
    let by_program = RawClient::stdio(bridge, Answers::default());
    for client in [by_url, by_program] {
        client.initialize(&initialize("0", "2025-06-18")).await;
        let list = client.request(&request("1", "tools/list")).await.text;
        assert!(
            list.contains("\"docs__tool-002\"") && list.contains("\"wiki__tool-001\""),
            "{list}"
        );
        let answer = client
            .request(&call("2", "wiki__tool-001", "{}"))
            .await
            .text;
        assert!(answer.contains("\"result\""), "{answer}");
    }

    let removed = run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert!(removed.stderr.contains("Cursor: ") && removed.stderr.contains("as it was before"));
    assert_eq!(
        home.files(),
        before,
        "every byte is back, and nothing is left"
    );
}

#[tokio::test]
async fn a_changed_file_loses_only_the_entry() {
    let home = Home::new();
    home.configure();
    run_at_home(home.path(), &["install", "--client", "codex", "--yes"])
        .await
        .success();
    let text = home.read(".codex/config.toml");
    home.write(
        ".codex/config.toml",
        &text.replace("model = 'x'", "model = 'y'"),
    );
    let removed = run_at_home(home.path(), &["uninstall", "--yes", "--json"])
        .await
        .success();
    assert_eq!(removed.json()["clients"][0]["kind"], "entry_removed");
    assert!(
        !removed.stderr.contains("still there"),
        "{}",
        removed.stderr
    );
    assert_eq!(home.read(".codex/config.toml"), "# mine\nmodel = 'y'\n");
}

#[tokio::test]
async fn servers_that_riglm_has_are_taken_out_and_put_back() {
    let home = Home::new();
    home.configure();
    let before = home.files();
    let planned = run_at_home(home.path(), &["setup", "--dry-run", "--replace"])
        .await
        .success();
    let taken_out = planned
        .stdout
        .lines()
        .filter(|line| line.starts_with('-') && line.contains("odd-server"));
    assert_eq!(taken_out.count(), 3, "{}", planned.stdout);
    let arguments = [
        "setup",
        "--yes",
        "--replace",
        "--no-service",
        "--wait",
        "0",
        "--json",
    ];
    let written = run_at_home(home.path(), &arguments).await.success();
    let clients = written.json()["install"]["clients"].clone();
    assert_eq!(clients[2]["replaced"], json!(["docs", "wiki"]), "{clients}");
    let cursor = home.read(".cursor/mcp.json");
    assert!(
        cursor.starts_with("// mine\r\n{\r\n") && cursor.contains("riglm"),
        "{cursor}"
    );
    assert!(!cursor.contains("odd-server") && !home.read(".claude.json").contains("odd-server"));
    run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert_eq!(home.files(), before);

    run_at_home(home.path(), &["install", "--yes", "--client", "cursor"])
        .await
        .success();
    let twice = run_at_home(home.path(), &["install", "--yes", "--client", "cursor"])
        .await
        .success();
    assert!(
        twice.stderr.contains("docs, wiki are in riglm, too"),
        "{}",
        twice.stderr
    );
    run_at_home(home.path(), &["install", "--yes", "--replace"])
        .await
        .success();
    let text = home.read(".cursor/mcp.json");
    home.write(".cursor/mcp.json", &text.replace("// mine", "// ours"));
    let removed = run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert!(
        removed.stderr.contains("put back: docs, wiki"),
        "{}",
        removed.stderr
    );
    let text = home.read(".cursor/mcp.json");
    assert!(
        text.starts_with("// ours\r\n")
            && text.contains("// the wiki")
            && !text.contains("\"riglm\""),
        "{text}"
    );
    let original = String::from_utf8(before[&home.path().join(".cursor/mcp.json")].clone());
    let original = original.unwrap();
    let entries = original
        .lines()
        .filter(|line| line.contains("odd-server"))
        .map(|line| line.trim_end_matches(" // the wiki"));
    for entry in entries {
        assert!(text.contains(&format!("{entry}\r\n")), "{entry}: {text}");
    }
}

#[tokio::test]
async fn servers_come_back_into_a_file_that_its_client_has_rewritten() {
    let home = Home::new();
    home.configure();
    let cursor = home.read(".cursor/mcp.json");
    let entry_of = |name: &str| {
        let line = cursor.lines().find(|line| line.contains(name)).unwrap();
        let line = line.trim().trim_end_matches(" // the wiki");
        line.trim_end_matches(',').to_owned()
    };
    let (docs, wiki) = (entry_of("\"docs\":"), entry_of("\"wiki\":"));
    let text = format!(
        "{{\n\t\"numStartups\": 7,\n\t\"mcpServers\": {{\n\t\t{docs},\n\t\t{wiki}\n\t}}\n}}"
    );
    home.write(".claude.json", &text);
    run_at_home(home.path(), &["import", "--yes"])
        .await
        .success();
    let arguments = ["install", "--yes", "--replace", "--client", "claude-code"];
    run_at_home(home.path(), &arguments).await.success();
    let installed = home.read(".claude.json");
    assert!(!installed.contains("odd-server"), "{installed}");

    // The client counts its starts, and its user adds a server with a name of before.
    let start = "\"mcpServers\": {";
    let other = format!("{start}\n\t\t\"wiki\": {{\"command\": \"other\"}},");
    let rewritten = installed
        .replace("\"numStartups\": 7", "\"numStartups\": 8")
        .replace(start, &other);
    home.write(".claude.json", &rewritten);
    let lost = "wiki is not put back: another server has its name now; its backup is ";
    let planned = run_at_home(home.path(), &["uninstall", "--dry-run"]).await;
    assert_eq!(planned.code, Some(1), "{}", planned.stderr);
    assert!(planned.stderr.contains(lost), "{}", planned.stderr);
    assert!(
        planned.stdout.contains("+\t\t\"docs\": {") && !planned.stdout.contains("s3cret"),
        "{}",
        planned.stdout
    );
    let planned = run_at_home(home.path(), &["uninstall", "--dry-run", "--json"]).await;
    assert_eq!(planned.code, Some(1));
    let client = planned.json()["clients"][0].clone();
    assert_eq!(client["kind"], "entry_removed");
    assert_eq!(client["restored"], json!(["docs"]));
    assert_eq!(client["lost"][0]["name"], "wiki");
    let backup = PathBuf::from(client["lost"][0]["backup"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), text);
    assert_eq!(home.read(".claude.json"), rewritten);

    let removed = run_at_home(home.path(), &["uninstall", "--yes"]).await;
    assert_eq!(removed.code, Some(1), "{}", removed.stderr);
    for expected in [
        lost,
        "put back: docs\n",
        "still there: the configuration; remove it with: rm /",
        "still there: 1 secret in a file; remove it with: rm /",
        "still there: backups: ",
        "/.claude.json.riglm-*.bak\n",
    ] {
        assert!(removed.stderr.contains(expected), "{}", removed.stderr);
    }
    for absent in ["the service", "a proxy at", "the database"] {
        assert!(!removed.stderr.contains(absent), "{}", removed.stderr);
    }
    let expected = format!(
        "{{\n\t\"numStartups\": 8,\n\t\"mcpServers\": {{\n\t\t\"wiki\": {{\"command\": \"other\"}},\n\t\t\
         {docs}\n\t}}\n}}"
    );
    assert_eq!(home.read(".claude.json"), expected);
    let again = run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    let nothing = "riglm is in no file of a client";
    assert!(again.stderr.contains(nothing), "{}", again.stderr);
}

#[tokio::test]
async fn bad_files_are_named_and_the_others_are_changed() {
    let home = Home::new();
    home.configure();
    home.write(".cursor/mcp.json", "{\"mcpServers\": {");
    home.write(
        ".gemini/settings.json",
        r#"{"mcpServers":{"riglm":{"command":"other-program"}}}"#,
    );
    let before = home.files();
    let installed = run_at_home(home.path(), &["install", "--yes"]).await;
    assert_eq!(installed.code, Some(1));
    assert!(
        installed.stderr.contains("Cursor: "),
        "{}",
        installed.stderr
    );
    let foreign = "Gemini CLI: ";
    assert!(
        installed.stderr.contains(foreign) && installed.stderr.contains("\"riglm\" is not riglm")
    );
    assert!(home.read(".claude.json").contains("riglm"));
    for file in [".cursor/mcp.json", ".gemini/settings.json"] {
        let path = home.path().join(file);
        assert_eq!(std::fs::read(&path).unwrap(), before[&path], "{file}");
    }
    let imported = run_at_home(home.path(), &["import", "--yes"])
        .await
        .success();
    assert!(
        imported.stderr.contains(".cursor/mcp.json was left out: "),
        "{}",
        imported.stderr
    );
    let missing = run_at_home(home.path(), &["install", "--client", "zed", "--yes"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("Zed: it is not installed"),
        "{}",
        missing.stderr
    );
    assert!(!home.path().join(".config/zed").exists());
}

#[tokio::test]
async fn two_installations_at_once_wait_for_each_other() {
    let home = Home::new();
    home.configure();
    let before = home.files();
    let install = || run_at_home(home.path(), &["install", "--yes"]);
    let (first, second) = tokio::join!(install(), install());
    first.success();
    second.success();
    let code = home.read(".claude.json");
    assert_eq!(code.matches("\"riglm\"").count(), 1, "{code}");
    run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert_eq!(home.files(), before);
}

#[tokio::test]
async fn without_a_home_directory_the_reason_is_named() {
    let folder = TempDir::new().unwrap();
    let mut import = command(binary::riglm(), &["import", "--dry-run", "--data-dir", "d"]);
    import.env_clear().current_dir(folder.path());
    // The system knows a home directory even without the variable, so an empty one is named.
    let output = import.args(["--home", "missing"]).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("no file of an MCP client was found"),
        "{text}"
    );
}

#[tokio::test]
async fn a_setup_ends_with_the_first_request_of_the_client() {
    let home = Home::new();
    home.configure();
    let before = home.files();
    let planned = run_at_home(
        home.path(),
        &["setup", "--dry-run", "--client", "claude-code"],
    )
    .await;
    let planned = planned.success();
    assert!(
        planned.stdout.contains("+[upstreams.\"docs\"]"),
        "{}",
        planned.stdout
    );
    assert!(
        planned.stdout.contains("+\t\t\"riglm\": {"),
        "{}",
        planned.stdout
    );
    assert_eq!(home.files(), before);
    let arguments = [
        "setup",
        "--yes",
        "--no-service",
        "--wait",
        "0",
        "--client",
        "claude-code",
    ];
    let written = run_at_home(home.path(), &arguments).await.success();
    assert!(
        written
            .stderr
            .contains("start the proxy with `riglm serve`, then restart Claude Code\n"),
        "{}",
        written.stderr
    );

    let _proxy = home.serve().await;
    let mut setup = command(
        binary::riglm(),
        &["setup", "--yes", "--wait", "60", "--client"],
    );
    setup
        .arg("claude-code")
        .env("HOME", home.path())
        .current_dir(home.path());
    setup
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME");
    let mut setup = Process::spawn(setup);
    let waits = |line: &str| line.contains("waiting for Claude Code").then_some(());
    setup.line(Duration::from_mins(1), "the wait", waits).await;
    let url = format!("http://127.0.0.1:{}/mcp", home.port)
        .parse()
        .unwrap();
    let client = RawClient::streamable(&url, Answers::default());
    let hello = initialize("0", "2025-11-25").replace("raw-client", "claude-code");
    client.initialize(&hello).await;
    client.request(&request("1", "tools/list")).await;
    let tick = |line: &str| {
        (line.contains("claude-code") && line.contains("3 tools, 3 shown")).then_some(())
    };
    setup
        .line(Duration::from_mins(1), "the first request", tick)
        .await;
    assert_eq!(
        setup.wait_for_end(Duration::from_secs(30)).await.code(),
        Some(0)
    );
}

#[tokio::test]
async fn a_setup_does_not_take_another_program_for_its_proxy() {
    let home = Home::new();
    home.configure();
    let before = home.files();
    let configuration = home.read(".config/riglm/riglm.toml");
    let _other = std::net::TcpListener::bind(("127.0.0.1", home.port)).unwrap();
    let reason = format!(
        "127.0.0.1:{} (listen.address) is taken, by no proxy of this data directory: stop that \
         program, or set `[listen] address` in /",
        home.port
    );
    for arguments in [
        &["setup", "--dry-run"][..],
        &["setup", "--yes", "--wait", "0"],
        &["setup", "--yes", "--no-service", "--json"],
    ] {
        let refused = run_at_home(home.path(), arguments).await;
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains(&reason), "{}", refused.stderr);
    }
    assert_eq!(home.files(), before);
    assert_eq!(home.read(".config/riglm/riglm.toml"), configuration);
    assert!(
        !home.path().join(".local").exists(),
        "a refused setup writes nothing"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_service_and_clients_name_the_file_of_the_working_directory() {
    let home = Home::new();
    home.write(
        "project/riglm.toml",
        "[control]\naddress = \"127.0.0.1:0\"\n",
    );
    let folder = home.path().join("project").canonicalize().unwrap();
    let file = folder.join("riglm.toml").display().to_string();
    let planned = home.run_with_variable("project", &["setup", "--dry-run"]);
    let planned = planned.await.success();
    let words = format!(" \"serve\" \"--config\" \"{file}\"\n");
    assert!(planned.stdout.contains(&words), "{}", planned.stdout);
    assert_eq!(
        planned.stdout.matches("\"--config\"").count(),
        2,
        "one of the service, and one of the client that starts riglm connect: {}",
        planned.stdout
    );
    let variable =
        format!("the service does not have RIGLM__LISTEN__ADDRESS: write it to {file}\n");
    assert!(planned.stderr.contains(&variable), "{}", planned.stderr);

    home.configure();
    let planned = run_at_home(home.path(), &["setup", "--dry-run"])
        .await
        .success();
    assert!(!planned.stdout.contains("--config"), "{}", planned.stdout);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_service_that_cannot_be_installed_is_a_failure_with_one_next_step() {
    let home = Home::new();
    home.configure();
    home.write("bin/systemctl", "#!/bin/sh\necho no bus >&2\nexit 1\n");
    let program = home.path().join("bin/systemctl");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["setup", "--yes", "--wait", "30", "--client", "cursor"];
    let mut setup = command(binary::riglm(), &arguments);
    let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
    setup
        .env("HOME", home.path())
        .env("PATH", path)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .current_dir(home.path());
    let output = CommandOutput::of(&setup.output().await.unwrap());
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for expected in [
        "the service was not installed: systemctl --user daemon-reload ended with ",
        "next: start the proxy with `riglm serve`, then restart Cursor\n",
        "the proxy does not run, because its service was not installed",
    ] {
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    assert_eq!(output.stderr.matches("next: ").count(), 1);
    assert!(
        !output.stderr.contains("no request yet"),
        "{}",
        output.stderr
    );
}
