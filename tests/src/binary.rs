//! The path of the program under test. The program is built if it is missing or older than its
//! sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Returns the path of the `riglm` program.
///
/// The environment variable `RIGLM_BIN` overrides it. The default is the parent of the folder of
/// the test executable. The program is built there, once in a test run, if one of its sources is
/// newer.
pub fn riglm() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("RIGLM_BIN") {
        Some(path) => path.into(),
        None => path_in_target_dir(),
    })
}

/// Returns the path of the example that is riglm with a predictor of its own. It is built with riglm.
pub fn example_predictor() -> PathBuf {
    let binary = profile_dir().join("riglm-example-predictor");
    if !is_current(&binary) {
        build(&profile_dir());
    }
    binary
}

/// Returns the path of the unusual server, which cargo builds with every suite of this package.
pub fn odd_server() -> PathBuf {
    profile_dir().join("odd-server")
}

/// Returns the folder of the programs of this build.
fn profile_dir() -> PathBuf {
    let this = std::env::current_exe().expect("a running test has an executable");
    let profile = this.parent().and_then(Path::parent);
    profile
        .expect("a test lies in target/PROFILE/deps")
        .to_owned()
}

fn path_in_target_dir() -> PathBuf {
    let profile = profile_dir();
    let binary = profile.join("riglm");
    if !is_current(&binary) {
        build(&profile);
    }
    assert!(binary.exists(), "the build left no {}", binary.display());
    binary
}

/// Returns whether the program is at least as new as every file in its dependency list.
fn is_current(binary: &Path) -> bool {
    let Some(built) = modification_time(binary) else {
        return false;
    };
    let Ok(list) = std::fs::read_to_string(binary.with_extension("d")) else {
        return false;
    };
    list.split_once(": ").is_some_and(|(_, sources)| {
        sources
            .split_ascii_whitespace()
            .all(|source| modification_time(Path::new(source)).is_some_and(|at| at <= built))
    })
}

fn modification_time(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn build(profile: &Path) {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A build folder that was copied from another checkout has the path of that checkout compiled
    // in, so the variable of the running test comes first.
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    command.args(["build", "--locked"]).current_dir(package);
    if profile.ends_with("release") {
        command.args(["--release", "-p", "riglm-cli", "--bin", "riglm"]);
    } else {
        // The same command builds the tests. The package alone would enable other features of the
        // libraries, and cargo would build them again.
        command.args(["--workspace", "--bins", "--tests"]);
    }
    // Cargo sets these variables for the running test. Build scripts that depend on them would run
    // again, together with everything that depends on them, here and in the next build.
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
