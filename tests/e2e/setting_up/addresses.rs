//! Addresses and folders that hold wherever a command runs, and servers whose address is silent.

use riglm_tests::fixture::{Server, Transport};
use riglm_tests::process::free_port;
use riglm_tests::riglm::run_at_home;
use serde_json::json;

use super::{Home, assert_counts};

#[tokio::test]
async fn a_setup_writes_the_address_that_it_is_given() {
    let home = Home::new();
    home.configure();
    let before = home.read(".config/riglm/riglm.toml");
    let address = format!("127.0.0.1:{}", free_port());
    let setup = ["setup", "--no-service", "--listen", &address];
    let planned = run_at_home(home.path(), &[&setup[..], &["--dry-run"]].concat()).await;
    let planned = planned.success();
    let lines = format!(
        "@@ -2,1 +2,1 @@\n-address = \"127.0.0.1:{}\"\n+address = \"{address}\"\n@@ -4,0 +5,",
        home.port
    );
    assert!(planned.stdout.contains(&lines), "{}", planned.stdout);
    assert_counts(&planned.stdout);
    assert_eq!(home.read(".config/riglm/riglm.toml"), before);

    let apply = [&setup[..], &["--yes", "--wait", "0"]].concat();
    let json = [&setup[..], &["--dry-run", "--json"]].concat();
    let json = run_at_home(home.path(), &json).await.success().json();
    let addresses = json!({"old": format!("127.0.0.1:{}", home.port), "new": address});
    assert_eq!(json["import"]["listen"], addresses);
    let written = run_at_home(home.path(), &apply).await.success();
    assert!(
        written
            .stderr
            .contains("start the proxy with `riglm serve`"),
        "{}",
        written.stderr
    );
    let text = home.read(".config/riglm/riglm.toml");
    let start = format!("[listen]\naddress = \"{address}\"\n[control]\n");
    assert!(text.starts_with(&start), "{text}");
    let code = home.read(".claude.json");
    assert!(code.contains(&format!("http://{address}/mcp")), "{code}");
    // The file has the address now, so the second setup needs no option for it.
    let again = run_at_home(home.path(), &["setup", "--no-service", "--dry-run"]).await;
    let again = again.success();
    assert!(!again.stdout.contains("@@"), "{}", again.stdout);
}

#[tokio::test]
async fn a_setup_does_not_send_clients_to_a_program_at_its_new_address() {
    let home = Home::new();
    home.configure();
    run_at_home(home.path(), &["import", "--yes"])
        .await
        .success();
    // A proxy of the data directory runs, and another program has the new address.
    let _proxy = home.serve().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let before = home.files();
    let setup = ["setup", "--no-service", "--wait", "0", "--listen", &address];
    for more in ["--dry-run", "--yes"] {
        let refused = run_at_home(home.path(), &[&setup[..], &[more]].concat()).await;
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        let reason = format!("{address} (--listen) is taken");
        assert!(refused.stderr.contains(&reason), "{}", refused.stderr);
    }
    assert_eq!(home.files(), before);
    // At its own address, the proxy is no stranger.
    let own = format!("127.0.0.1:{}", home.port);
    let setup = ["setup", "--dry-run", "--no-service", "--listen", &own];
    run_at_home(home.path(), &setup).await.success();
}

#[tokio::test]
async fn the_riglm_of_before_is_no_server_to_import() {
    let home = Home::new();
    home.configure();
    let servers = json!({"mcpServers": {
        "proxy": {"httpUrl": format!("http://localhost:{}/mcp", home.port)},
    }});
    home.write(".gemini/settings.json", &servers.to_string());
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = [
        "setup",
        "--dry-run",
        "--json",
        "--no-service",
        "--listen",
        &address,
    ];
    let planned = run_at_home(home.path(), &arguments).await.success().json();
    let skipped = &planned["import"]["skipped"][0];
    assert_eq!(skipped["name"], "proxy", "{planned}");
    assert_eq!(skipped["reason"], "it is riglm itself", "{planned}");
}

#[tokio::test]
async fn an_address_that_is_a_reference_is_replaced_too() {
    let home = Home::new();
    let section = "[listen]\naddress = \"${PROXY_ADDRESS:-127.0.0.1:8650}\"\n";
    home.write(".config/riglm/riglm.toml", section);
    let setup = ["setup", "--dry-run", "--json", "--no-service", "--listen"];
    let listen = async |address: &str| {
        let planned = run_at_home(home.path(), &[&setup[..], &[address]].concat()).await;
        planned.success().json()["import"]["listen"].clone()
    };
    // The default of riglm is not what the file has.
    let address = "127.0.0.1:8642";
    let old = "${PROXY_ADDRESS:-127.0.0.1:8650}";
    assert_eq!(listen(address).await, json!({"old": old, "new": address}));
    assert_eq!(listen("127.0.0.1:8650").await, json!(null));
}

#[tokio::test]
async fn a_first_setup_puts_its_address_into_the_new_file() {
    let home = Home::new();
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = ["setup", "--dry-run", "--no-service", "--listen", &address];
    let planned = run_at_home(home.path(), &arguments).await.success();
    let section = format!("\n+\n+[listen]\n+address = \"{address}\"\n+\n+# From ");
    assert!(planned.stdout.contains(&section), "{}", planned.stdout);
    assert_counts(&planned.stdout);

    home.write(
        ".config/riglm/riglm.toml",
        "listen = { address = \"127.0.0.1:1\" }\n",
    );
    let refused = run_at_home(home.path(), &arguments).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let reason = format!("is not changed automatically: write {address} there");
    assert!(refused.stderr.contains(&reason), "{}", refused.stderr);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_relative_data_directory_is_the_same_for_the_service_and_for_clients() {
    let home = Home::new();
    home.write(
        "project/riglm.toml",
        "data_dir = \"data\"\n[control]\naddress = \"127.0.0.1:0\"\n",
    );
    let folder = home.path().join("project").canonicalize().unwrap();
    let data = folder.join("data").display().to_string();
    let planned = home.run_with_variable("project", &["setup", "--dry-run"]);
    let planned = planned.await.success();
    let words = format!(" \"--data-dir\" \"{data}\"\n");
    assert!(planned.stdout.contains(&words), "{}", planned.stdout);
    assert_eq!(
        planned.stdout.matches("\"--data-dir\"").count(),
        2,
        "one of the service, and one of the client that starts riglm connect: {}",
        planned.stdout
    );
    let written = home.run_with_variable("project", &["install", "--yes"]);
    written.await.success();
    let desktop = home.read(".config/Claude/claude_desktop_config.json");
    assert!(desktop.contains(&format!("\"{data}\"")), "{desktop}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_service_keeps_its_data_directory_wherever_a_command_runs() {
    let home = Home::new();
    home.write(
        "project/riglm.toml",
        "data_dir = \"data\"\n[control]\naddress = \"127.0.0.1:0\"\n\
         [upstreams.docs]\nurl = \"http://127.0.0.1:1/mcp\"\n",
    );
    let folder = home.path().join("project").canonicalize().unwrap();
    let data = folder.join("data").display().to_string();
    let file = folder.join("riglm.toml").display().to_string();
    let install = ["service", "install", "--dry-run", "--config", &file];
    let planned = home.run_with_variable("project", &install).await.success();
    let (_, text) = planned.stdout.split_once('\n').unwrap();
    let (unit, _) = text.split_once("\nsystemctl ").unwrap();
    home.write(".config/systemd/user/riglm.service", unit);

    home.write("elsewhere/notes.txt", "");
    let doctor = ["doctor", "--config", &file];
    let doctor = home.run_with_variable("elsewhere", &doctor).await.stdout;
    let named = format!("riglm.service (data directory {data})");
    assert!(doctor.contains(&named), "{doctor}");
    assert!(
        !doctor.contains("another program, configuration"),
        "{doctor}"
    );

    let again = home.run_with_variable("elsewhere", &install).await;
    let again = again.success();
    let words = format!(" \"--data-dir\" \"{data}\"\n");
    assert!(again.stdout.contains(&words), "{}", again.stdout);
    let kept = format!("the service keeps its data directory {data}, because");
    assert!(again.stderr.contains(&kept), "{}", again.stderr);
}

#[tokio::test]
async fn a_server_that_riglm_cannot_serve_stays_in_its_client() {
    let home = Home::new();
    home.configure();
    let odd = Server::Odd(riglm_tests::binary::odd_server());
    let live = odd.start(Transport::Streamable).await;
    let live = live.url.as_ref().unwrap().to_string();
    let silent = format!("http://127.0.0.1:{}/mcp", free_port());
    let servers = json!({"mcpServers": {"live": {"httpUrl": live}, "silent": {"httpUrl": silent}}});
    home.write(".gemini/settings.json", &servers.to_string());
    let before = home.read(".gemini/settings.json");
    let client = ["--client", "gemini"];
    let setup = ["setup", "--replace", "--no-service", "--wait", "0"];
    let planned = [&setup[..], &client, &["--dry-run"]].concat();
    let planned = run_at_home(home.path(), &planned).await.success();
    let kept = "Gemini CLI: silent stays in the file, because riglm cannot serve it now: ";
    assert!(planned.stderr.contains(kept), "{}", planned.stderr);

    let setup = [&setup[..], &client, &["--yes"]].concat();
    run_at_home(home.path(), &setup).await.success();
    let text = home.read(".config/riglm/riglm.toml");
    assert!(
        text.contains(&silent),
        "it is imported all the same: {text}"
    );
    let settings = home.read(".gemini/settings.json");
    assert!(
        settings.contains(&silent) && !settings.contains(&live),
        "{settings}"
    );
    let install = ["install", "--yes", "--replace", "--json"];
    let install = [&install[..], &client].concat();
    let installed = run_at_home(home.path(), &install).await.success().json();
    let installed = &installed["clients"][0];
    assert_eq!(installed["kept"][0]["name"], "silent", "{installed}");
    assert_eq!(installed["replaced"], json!([]), "{installed}");
    run_at_home(home.path(), &["uninstall", "--yes"])
        .await
        .success();
    assert_eq!(home.read(".gemini/settings.json"), before);
}

#[tokio::test]
async fn a_server_with_a_login_stays_in_its_client_until_riglm_has_one() {
    let home = Home::new();
    home.configure();
    // It lists its tools to everybody.
    let odd = Server::Odd(riglm_tests::binary::odd_server());
    let live = odd.start(Transport::Streamable).await;
    let live = live.url.as_ref().unwrap().to_string();
    let login = json!({"clientId": "c", "scopes": "a"});
    let servers = json!({"mcpServers": {
        "notes": {"type": "http", "url": live, "oauth": login},
        "signed": {"type": "http", "url": live, "headersHelper": "/bin/true",
                   "headers": {"X-Team": "a"}},
    }});
    home.write(".claude.json", &servers.to_string());
    let setup = [
        "setup",
        "--replace",
        "--no-service",
        "--wait",
        "0",
        "--dry-run",
    ];
    let setup = [&setup[..], &["--client", "claude-code"]].concat();
    let planned = run_at_home(home.path(), &setup).await.success();
    for reason in [
        "notes stays in the file, because riglm cannot serve it now: log in first: riglm login \
         notes\n",
        "signed stays in the file, because riglm cannot serve it now: its credentials come from a \
         program\n",
    ] {
        assert!(planned.stderr.contains(reason), "{}", planned.stderr);
    }
}
