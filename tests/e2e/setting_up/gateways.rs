//! Servers of other gateways: the run configurations of `ToolHive`.

use riglm_tests::riglm::run_at_home;
use serde_json::{Value, json};

use super::Home;

/// The folder of the run configurations.
const FOLDER: &str = ".local/state/toolhive/runconfigs";

/// Writes a server in a container, a remote server with a secret, and a broken file.
fn write_run_configs(home: &Home) {
    let container = json!({
        "schema_version": "v0.1.0", "image": "ghcr.io/example/fetch:1", "name": "fetch",
        "container_name": "fetch", "base_name": "fetch", "transport": "stdio",
        "host": "127.0.0.1", "port": 40001, "permission_profile": {}, "proxy_mode": "sse",
        "env_vars": {"MODE": "fast"}, "secrets": ["fetch-key,target=API_KEY"],
    });
    let remote = json!({
        "schema_version": "v0.1.0", "image": "", "remote_url": "https://notes.example/mcp",
        "name": "notes", "transport": "streamable-http", "host": "127.0.0.1", "port": 40002,
        "permission_profile": null,
        "header_forward": {"add_headers_from_secret": {"X-Key": "notes-key"}},
    });
    for (name, text) in [
        ("fetch", container.to_string()),
        ("notes", remote.to_string()),
        ("broken", "{\"name\": \"s3cret".to_owned()),
    ] {
        home.write(&format!("{FOLDER}/{name}.json"), &text);
    }
}

#[tokio::test]
async fn servers_of_toolhive_are_found_and_missing_secrets_are_named() {
    let home = Home::new();
    home.configure();
    write_run_configs(&home);
    let arguments = ["import", "--yes", "--json", "--os", "linux"];
    let imported = run_at_home(home.path(), &arguments).await.success();
    let json = imported.json();
    let names: Vec<&Value> = (json["upstreams"].as_array().unwrap().iter())
        .map(|upstream| &upstream["name"])
        .collect();
    assert_eq!(names, ["docs", "wiki", "fetch"]);
    assert_eq!(json["skipped"][0]["name"], "notes");
    let reason = json["skipped"][0]["reason"].as_str().unwrap();
    for expected in [
        "NOTES_KEY is not set: write it to /",
        "/secrets.env, then import again",
        "(ToolHive keeps the secret \"notes-key\": set NOTES_KEY to its value)",
    ] {
        assert!(reason.contains(expected), "{reason}");
    }
    for expected in [
        "/broken.json was left out: the file is malformed",
        "fetch: ToolHive runs it, and must run it for riglm, too: thv start fetch\n",
        "notes of ToolHive was left out: NOTES_KEY is not set",
    ] {
        assert!(imported.stderr.contains(expected), "{}", imported.stderr);
    }
    assert!(!imported.stderr.contains("s3cret"));
    let text = home.read(".config/riglm/riglm.toml");
    let section = "# From ToolHive.\n[upstreams.\"fetch\"]\n\
                   url = \"sse+http://127.0.0.1:40001/sse\"\n";
    assert!(text.contains(section), "{text}");
    assert!(
        !text.contains("API_KEY") && !text.contains("MODE"),
        "{text}"
    );

    let secrets = ".local/share/riglm/secrets.env";
    let with_key = home.read(secrets) + "NOTES_KEY=\"k1\"\n";
    home.write(secrets, &with_key);
    let folder = home.path().join(FOLDER).display().to_string();
    let arguments = ["import", "--yes", "--from", &folder];
    run_at_home(home.path(), &arguments).await.success();
    let text = home.read(".config/riglm/riglm.toml");
    let section = "[upstreams.\"notes\"]\nurl = \"https://notes.example/mcp\"\n\
                   headers = { \"X-Key\" = \"${NOTES_KEY}\" }\n";
    assert!(text.contains(section), "{text}");
    assert_eq!(text.matches("[upstreams.\"fetch\"]").count(), 1, "{text}");
}

#[tokio::test]
async fn a_server_that_a_client_has_through_toolhive_is_imported_once() {
    let home = Home::new();
    home.configure();
    write_run_configs(&home);
    let of_client =
        json!({"mcpServers": {"notes": {"httpUrl": "http://localhost:40002/mcp#notes"}}});
    home.write(".gemini/settings.json", &of_client.to_string());
    let arguments = ["import", "--dry-run", "--json", "--os", "linux"];
    let planned = run_at_home(home.path(), &arguments).await.success();
    let json = planned.json();
    let names: Vec<&Value> = (json["upstreams"].as_array().unwrap().iter())
        .map(|upstream| &upstream["name"])
        .collect();
    assert!(names.contains(&&json!("notes")), "{json}");
    assert_eq!(json["skipped"], json!([]), "{json}");
    let text = "/notes.json was left out: a client has its server, at the address of the gateway\n";
    assert!(planned.stderr.contains(text), "{}", planned.stderr);

    // What is named is read all the same.
    let folder = home.path().join(FOLDER).display().to_string();
    let arguments = ["import", "--dry-run", "--json", "--from", &folder];
    let planned = run_at_home(home.path(), &arguments).await.success();
    assert_eq!(planned.json()["skipped"][0]["name"], "notes");
}

#[tokio::test]
async fn the_name_of_a_file_adds_nothing_to_the_configuration() {
    let home = Home::new();
    home.configure();
    let servers = json!({"mcpServers": {
        "plain": {"url": "http://127.0.0.1:40003/mcp"},
        "old": {"type": "ws", "url": "ws://127.0.0.1:40004"},
    }});
    let name = "evil/x\n[upstreams.evil]\ncommand = ['sh']\n#\u{1b}[31m.json";
    home.write(name, &servers.to_string());
    let arguments = ["import", "--yes", "--from", "evil"];
    let imported = run_at_home(home.path(), &arguments).await.success();
    let text = home.read(".config/riglm/riglm.toml");
    assert!(text.contains("[upstreams.\"plain\"]"), "{text}");
    let is_evil = |line: &str| line.starts_with("[upstreams.evil]") || line.contains('\u{1b}');
    assert!(!text.lines().any(is_evil), "{text}");
    assert!(
        imported
            .stderr
            .contains("old of evil/x\\u{a}[upstreams.evil]"),
        "{}",
        imported.stderr
    );
    assert!(!imported.stderr.lines().any(is_evil), "{}", imported.stderr);
}

#[tokio::test]
async fn a_folder_or_a_file_of_toolhive_can_be_named() {
    let home = Home::new();
    home.configure();
    write_run_configs(&home);
    let file = home.path().join(FOLDER).join("fetch.json");
    let file = file.display().to_string();
    let arguments = ["import", "--dry-run", "--json", "--from", &file];
    let planned = run_at_home(home.path(), &arguments).await.success();
    assert_eq!(planned.json()["upstreams"][0]["name"], "fetch");
    assert_eq!(planned.json()["upstreams"][0]["from"], json!([file]));

    home.write("empty/notes.txt", "no server");
    home.write("empty/list.json", "[1]");
    let refused = run_at_home(home.path(), &["import", "--from", "empty"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    for expected in [
        "empty/list.json was left out: the file has no servers in a known format",
        "empty: it has no file with servers in a known format",
    ] {
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("notes.txt"), "{}", refused.stderr);
}

#[tokio::test]
async fn an_audit_counts_the_servers_of_clients_only() {
    let home = Home::new();
    write_run_configs(&home);
    let arguments = ["audit", "--yes", "--no-start", "--json"];
    let audit = run_at_home(home.path(), &arguments).await.success().json();
    let names: Vec<&Value> = (audit["servers"].as_array().unwrap().iter())
        .map(|server| &server["name"])
        .collect();
    assert!(!names.contains(&&json!("fetch")), "{names:?}");
    let clients = audit["clients"].as_array().unwrap().iter();
    let mut titles = clients.map(|client| client["name"].as_str().unwrap());
    assert!(titles.all(|title| title != "ToolHive"));
}
