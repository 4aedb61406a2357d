//! The command line of the official inspector.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use riglm_tests::fixture::{Transport, npm_package};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    SESSION, Target, direct_target, installed_target, masks, node_22, output, proxied_target,
};

/// Returns a script that runs the target's command, because the inspector would parse the arguments
/// of the command as its own options.
fn program(target: &Target, folder: &Path) -> PathBuf {
    let words: Vec<String> = target
        .words
        .iter()
        .map(|word| format!("'{word}'"))
        .collect();
    let path = folder.join("server");
    std::fs::write(&path, format!("#!/bin/sh\nexec {}\n", words.join(" ")))
        .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o700)))
        .expect("the program can be written");
    path
}

async fn inspect(transport: Transport, target: &Target, arguments: &[&str]) -> String {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let mut command = Command::new(node_22());
    command.arg(
        npm_package("@modelcontextprotocol/inspector").join("clients/launcher/build/index.js"),
    );
    command.env("HOME", folder.path()).arg("--cli");
    match transport {
        Transport::Stdio => command.arg(program(target, folder.path())),
        Transport::Streamable => command.args(["--transport", "http"]).args(&target.words),
        Transport::Legacy => command.args(["--transport", "sse"]).args(&target.words),
    };
    command.args(arguments);
    masks().apply(&output(command, SESSION).await)
}

async fn assert_alike(transport: Transport, seen: Target) {
    let expected = direct_target(transport).await;
    for arguments in [
        &["--method", "tools/list"][..],
        &["--method", "resources/list"],
        &["--method", "prompts/list"],
        &[
            "--method",
            "tools/call",
            "--tool-name",
            "get-sum",
            "--tool-arg",
            "a=2",
            "--tool-arg",
            "b=40",
        ],
    ] {
        let expected = inspect(transport, &expected, arguments).await;
        assert!(expected.len() > 20, "{arguments:?} printed {expected:?}");
        assert_eq!(
            inspect(transport, &seen, arguments).await,
            expected,
            "{arguments:?}"
        );
    }
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_inspector_over_stdio() {
    let target = proxied_target(Transport::Stdio).await;
    assert_alike(Transport::Stdio, target).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_inspector_over_streamable_http() {
    let target = proxied_target(Transport::Streamable).await;
    assert_alike(Transport::Streamable, target).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_inspector_over_legacy_http() {
    let target = proxied_target(Transport::Legacy).await;
    assert_alike(Transport::Legacy, target).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_inspector_through_an_installed_bridge() {
    let target = installed_target(Transport::Stdio).await;
    assert_alike(Transport::Stdio, target).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_inspector_at_an_installed_address() {
    let target = installed_target(Transport::Streamable).await;
    assert_alike(Transport::Streamable, target).await;
}
