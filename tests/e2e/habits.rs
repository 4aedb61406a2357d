//! Commands around the proxy: the first configuration file, the service of the user, the health of
//! a running proxy, completions and manual pages.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use riglm_tests::kit::{proxy, server};
use riglm_tests::riglm::{CommandOutput, run_at_home};
use riglm_tests::{binary, process};
use serde_json::Value;
use tempfile::TempDir;

#[tokio::test]
async fn a_first_file_is_made_once_and_loads() {
    let home = TempDir::new().unwrap();
    let made = run_at_home(
        home.path(),
        &["init", "--", "npx", "-y", "@scope/server-files", "a\"${b"],
    );
    let made = made.await;
    assert!(made.code == Some(0), "{}", made.stderr);
    let file = home.path().join(".config/riglm/riglm.toml");
    assert_eq!(made.stdout.trim(), file.display().to_string());
    let text = std::fs::read_to_string(&file).unwrap();
    let section = "[upstreams.\"files\"]\ncommand = [\"npx\", \"-y\", \"@scope/server-files\", \
                   \"a\\\"$${b\"]\n";
    assert!(text.ends_with(section), "{text}");
    let checked = run_at_home(home.path(), &["config", "check", "--json"]).await;
    let checked: Value = checked.json();
    assert_eq!(
        checked["upstreams"],
        serde_json::json!(["files"]),
        "{checked}"
    );

    let again = run_at_home(home.path(), &["init"]).await;
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("there is a configuration already"));
    let other = run_at_home(
        home.path(),
        &["init", "--config", "other.toml", "--upstream", "ftp://x"],
    );
    let other = other.await;
    assert_eq!(other.code, Some(2), "{}", other.stderr);
    assert!(!home.path().join("other.toml").exists());
    let plain = run_at_home(home.path(), &["init", "--config", "plain.toml", "--json"]).await;
    assert!(plain.code == Some(0), "{}", plain.stderr);
    let check = run_at_home(home.path(), &["config", "check", "--config", "plain.toml"]).await;
    assert!(check.code == Some(0), "{}", check.stderr);
}

/// Makes a program that notes its arguments, and says that the service is active.
fn stub(folder: &Path, name: &str) {
    let script = format!(
        "#!/bin/sh\necho \"{name} $*\" >> {}\necho active\n",
        folder.join("log").display()
    );
    let path = folder.join(name);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_service_of_the_user_is_installed_and_removed() {
    let home = TempDir::new().unwrap();
    let programs = TempDir::new().unwrap();
    stub(programs.path(), "systemctl");
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let unit = home.path().join(".config/systemd/user/riglm.service");
    let run = |arguments: &'static [&'static str]| {
        let mut command = process::command(binary::riglm(), arguments);
        command
            .env("HOME", home.path())
            .env("PATH", &path)
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(home.path());
        async move { CommandOutput::of(&command.output().await.unwrap()) }
    };
    let log = || std::fs::read_to_string(programs.path().join("log")).unwrap_or_default();

    let without = run(&["service", "install"]).await;
    assert_eq!(without.code, Some(2));
    assert!(without.stderr.contains("no upstream is configured"));
    assert!(!unit.exists());

    run(&["init", "--upstream", "http://127.0.0.1:9/mcp"]).await;
    let planned = run(&["service", "install", "--dry-run"]).await;
    assert!(planned.stdout.contains("ExecStart="), "{}", planned.stderr);
    assert!(!unit.exists() && log().is_empty());

    let installed = run(&[
        "service",
        "install",
        "--data-dir",
        "data",
        "--yes",
        "--json",
    ])
    .await;
    assert!(installed.code == Some(0), "{}", installed.stderr);
    let installed: Value = installed.json();
    assert_eq!(installed["running"], true);
    let text = std::fs::read_to_string(&unit).unwrap();
    let data_dir = format!("\"--data-dir\" \"{}\"", home.path().join("data").display());
    assert!(text.contains(&data_dir), "{text}");
    assert!(
        text.contains(&format!("Environment=\"PATH={path}\"")),
        "{text}"
    );
    let expected = [
        "systemctl --user daemon-reload",
        "systemctl --user enable riglm.service",
        "systemctl --user restart riglm.service",
        "systemctl --user is-active riglm.service",
    ];
    assert_eq!(log().lines().collect::<Vec<_>>(), expected);

    let removed = run(&["service", "uninstall", "--yes"]).await;
    assert!(removed.code == Some(0), "{}", removed.stderr);
    assert!(!unit.exists());
    assert!(log().contains("systemctl --user disable --now riglm.service"));
    let status = run(&["service", "status"]).await;
    assert!(status.stdout.starts_with("absent, not running"));

    std::fs::write(&unit, "[Unit]\n").unwrap();
    let foreign = run(&["service", "install"]).await;
    assert_eq!(foreign.code, Some(2));
    assert_eq!(std::fs::read_to_string(&unit).unwrap(), "[Unit]\n");
}

#[tokio::test]
async fn the_health_of_a_running_proxy_is_an_exit_code() {
    let home = TempDir::new().unwrap();
    let proxy = proxy().server(&server("docs").tools(2)).with_control();
    let proxy = proxy.start().await;
    let address = proxy.control("/").authority().to_owned();
    let healthy = || async {
        let output = run_at_home(home.path(), &["health", "--control", &address, "--json"]).await;
        (output.code == Some(0)).then_some(output)
    };
    let mut output = None;
    for _ in 0..100 {
        output = healthy().await;
        if output.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let rows: Value = output.unwrap().json();
    assert_eq!(rows[0]["ready"], true, "{rows}");
    assert!(rows[0]["report"]["upstreams"].is_array(), "{rows}");
    drop(proxy);
    let stopped = run_at_home(home.path(), &["health", "--control", &address]).await;
    assert_eq!(stopped.code, Some(1));
    assert!(
        stopped.stderr.contains("is not ready: "),
        "{}",
        stopped.stderr
    );
}

#[tokio::test]
async fn shells_and_manuals_know_each_command() {
    let home = TempDir::new().unwrap();
    for (shell, expected) in [
        ("bash", "_riglm()"),
        ("zsh", "#compdef riglm"),
        ("fish", "complete -c riglm"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = run_at_home(home.path(), &["completions", shell]).await;
        let text = output.stdout;
        assert!(
            text.contains(expected) && text.contains("recommend"),
            "{shell}"
        );
        assert!(!text.contains("demo-server") || text.contains("__demo-server"));
    }
    let pages = run_at_home(home.path(), &["man", "pages"]).await;
    assert!(pages.code == Some(0), "{}", pages.stderr);
    for page in [
        "riglm",
        "riglm-serve",
        "riglm-db-status",
        "riglm-service-install",
    ] {
        let text = std::fs::read_to_string(home.path().join(format!("pages/{page}.1")));
        assert!(text.unwrap().contains(&page.replace('-', "\\-")), "{page}");
    }
    assert!(!home.path().join("pages/riglm-__guard.1").exists());
    let misspelt = run_at_home(home.path(), &["recomend"]).await;
    assert_eq!(misspelt.code, Some(2));
    assert!(
        misspelt.stderr.contains("'recommend'"),
        "{}",
        misspelt.stderr
    );
}

#[tokio::test]
async fn commands_of_other_programs_are_known_or_have_a_tip() {
    let home = TempDir::new().unwrap();
    let run = |arguments: &'static [&'static str]| run_at_home(home.path(), arguments);
    let version = run(&["version"]).await.success();
    assert_eq!(version.stdout, run(&["--version"]).await.stdout);
    let status = run(&["status"]).await;
    assert_eq!(status.stderr, run(&["health"]).await.stderr);
    for (arguments, tip) in [
        (&["stop"][..], "tip: Ctrl-C ends riglm serve"),
        (&["logs"][..], "tip: riglm calls --follow"),
        (
            &["install", "cursor"][..],
            "tip: riglm install --client cursor",
        ),
    ] {
        let output = run(arguments).await;
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(output.stderr.contains(tip), "{}", output.stderr);
    }
}

#[tokio::test]
async fn a_taken_port_is_named_with_the_cure() {
    let home = TempDir::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let upstream = ["--control", "off", "--upstream", "http://127.0.0.1:9/mcp"];
    let mut arguments = vec!["serve", "--listen", &address];
    arguments.extend(upstream);
    let output = run_at_home(home.path(), &arguments).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let failed = format!("failed to listen on {address}: ");
    for expected in [
        failed.as_str(),
        "stop the program that has the port, or choose another port: --listen ADDRESS",
    ] {
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

#[tokio::test]
async fn a_machine_without_data_has_empty_lists() {
    let home = TempDir::new().unwrap();
    for command in ["calls", "sessions", "tools"] {
        let output = run_at_home(home.path(), &[command, "--json"]).await;
        assert!(output.code == Some(0), "{command}: {}", output.stderr);
        assert_eq!(output.stdout.trim(), "[]", "{command}");
    }
    assert!(!home.path().join(".local").exists());
}
