//! Errors that `riglm login` reports before it sends anything.

use crate::scene::riglm;

const CONFIGURATION: &str = r#"
[upstreams.oauth]
url = "http://127.0.0.1:9/mcp"
credentials = { type = "oauth" }
[upstreams.account]
url = "http://127.0.0.1:9/mcp"
credentials = { type = "oauth", grant = "client_credentials", client_id = "a", client_secret = "hunter2" }
[upstreams.token]
url = "http://127.0.0.1:9/mcp"
credentials = { type = "bearer", token = "hunter2" }
[upstreams.open]
url = "http://127.0.0.1:9/mcp"
[upstreams.program]
command = ["server"]
"#;

#[test]
fn a_login_at_an_upstream_without_login_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("riglm.toml"), CONFIGURATION).unwrap();
    for (name, reason) in [
        (
            "calender",
            r#"unknown upstream "calender": known are account, oauth, open, program, token"#,
        ),
        ("account", "upstream account needs no login"),
        ("token", "upstream token needs no login"),
        ("open", "upstream open needs no login"),
        ("program", "upstream program needs no login"),
    ] {
        let (code, stdout, stderr) =
            riglm(directory.path(), &["login", name, "--no-browser"]).end();
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{name}: {stderr}");
        assert!(stderr.contains(reason), "{name}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn wrong_usage_is_refused_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| riglm(directory.path(), arguments).end();
    let (code, _, stderr) = run(&["login"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("<NAME>"), "{stderr}");
    let (code, _, stderr) = run(&["login", "files"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("no upstream is configured"), "{stderr}");
}

#[test]
fn logins_to_unreachable_servers_fail() {
    let directory = tempfile::tempdir().unwrap();
    // Nothing listens on the port of a closed socket.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let file = format!(
        "[upstream]\nurl = \"http://{address}/mcp\"\ncredentials = {{ type = \"oauth\" }}\n"
    );
    std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let (code, stdout, stderr) =
        riglm(directory.path(), &["login", "default", "--no-browser"]).end();
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(
        stderr.contains("failed to log in to upstream default"),
        "{stderr}"
    );
}
