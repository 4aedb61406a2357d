//! The program riglm that benches run.

use std::path::PathBuf;
use std::process::Command;

/// Builds the release version of riglm and returns its path, in the folder of this bench's own
/// build.
pub(crate) fn riglm_program() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "-p", "riglm-cli"])
        .status()
        .expect("cargo runs");
    assert!(built.success(), "riglm does not build");
    let own = std::env::current_exe().expect("the path of this program");
    own.ancestors()
        .find(|path| path.ends_with("release"))
        .expect("benches are built in a folder named release")
        .join("riglm")
}
