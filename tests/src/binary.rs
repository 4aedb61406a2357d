//! Where the program under test lies, built when it is missing or older than its sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Returns the path of the `riglm` program.
///
/// `RIGLM_BIN` names it when set. Otherwise it lies beside the folder of the test executable;
/// it is built there, once a test run, when a file that it was built from is newer than it.
pub fn riglm() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("RIGLM_BIN") {
        Some(path) => path.into(),
        None => beside_this_test(),
    })
}

fn beside_this_test() -> PathBuf {
    let this = std::env::current_exe().expect("a running test has an executable");
    let profile = this
        .parent()
        .and_then(Path::parent)
        .expect("a test lies in target/PROFILE/deps");
    let binary = profile.join("riglm");
    if !is_current(&binary) {
        build(profile);
    }
    assert!(binary.exists(), "the build left no {}", binary.display());
    binary
}

/// Returns whether the program is at least as new as every file in its dependency list.
fn is_current(binary: &Path) -> bool {
    let Some(built) = modified(binary) else {
        return false;
    };
    let Ok(list) = std::fs::read_to_string(binary.with_extension("d")) else {
        return false;
    };
    list.split_once(": ").is_some_and(|(_, sources)| {
        sources
            .split_ascii_whitespace()
            .all(|source| modified(Path::new(source)).is_some_and(|at| at <= built))
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn build(profile: &Path) {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A copy of the build of another checkout has the path of that one compiled in.
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    command.args(["build", "--locked"]).current_dir(package);
    if profile.ends_with("release") {
        command.args(["--release", "-p", "riglm-cli", "--bin", "riglm"]);
    } else {
        // What the tests were built with: the package alone would have other features of the
        // libraries, and these would be built again.
        command.args(["--workspace", "--bins", "--tests"]);
    }
    // What cargo says of this test in the environment would count as a change to build scripts that
    // look at it, and everything behind them would be built again, here and by the next cargo.
    for (name, _) in std::env::vars_os() {
        let about_this_test = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if let Some(text) = name.to_str()
            && about_this_test.iter().any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "{command:?} failed: {status}");
}
