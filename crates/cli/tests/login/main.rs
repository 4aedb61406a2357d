//! `riglm login`, against an upstream and an authorization server on this machine.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod authority;
mod refusals;
mod scene;

use std::os::unix::fs::PermissionsExt;

use authority::{Authority, Behaviour};
use scene::Scene;

#[test]
fn login_stores_the_token_and_reports_success() {
    let scene = Scene::new(&Authority::start(Behaviour::Issues));
    let mut login = scene.login(&["--no-browser", "--json"]);
    let address = login.address();
    assert!(address.contains("client_id=registered"), "{address}");
    scene.allow(&address);
    let (code, stdout, stderr) = login.end();
    assert_eq!(code, Some(0), "{stderr}");
    let said: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        said,
        serde_json::json!({"upstream": "files", "stored": true})
    );
    let file = scene.token_file();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let stored = std::fs::read_to_string(file).unwrap();
    assert!(stored.contains("access-1"), "{stored}");
    assert!(!stdout.contains("access-1") && !stderr.contains("access-1"));
}

#[test]
fn browsers_get_the_address_unchanged() {
    let scene = Scene::new(&Authority::start(Behaviour::Issues));
    scene.install_opener();
    let mut login = scene.login(&[]);
    let address = login.address();
    // The address contains characters that a shell would interpret.
    assert!(
        address.contains("&hint=$(touch${IFS}read-by-a-shell)"),
        "{address}"
    );
    assert_eq!(scene.opened_address(), address);
    scene.allow(&address);
    let (code, stdout, stderr) = login.end();
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "logged in to files\n"),
        "{stderr}"
    );
    assert!(!scene.directory.path().join("read-by-a-shell").exists());
}

#[test]
fn a_machine_without_a_browser_can_log_in() {
    let scene = Scene::new(&Authority::start(Behaviour::Issues));
    let mut login = scene.login(&[]);
    scene.allow(&login.address());
    let (code, _, stderr) = login.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("failed to open a browser"), "{stderr}");
}

#[test]
fn denied_logins_fail() {
    let scene = Scene::new(&Authority::start(Behaviour::Issues));
    let mut login = scene.login(&["--no-browser"]);
    scene.deny(&login.address());
    let (code, stdout, stderr) = login.end();
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let reason = "failed to log in to upstream files: login was denied: access_denied";
    assert!(stderr.contains(reason), "{stderr}");
    assert!(!scene.token_file().exists());
}

#[test]
fn login_fails_if_the_server_refuses_a_token() {
    let scene = Scene::new(&Authority::start(Behaviour::Refuses));
    let mut login = scene.login(&["--no-browser"]);
    scene.allow(&login.address());
    let (code, stdout, stderr) = login.end();
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains("authorization server of the upstream"),
        "{stderr}"
    );
    assert!(!scene.token_file().exists());
}
