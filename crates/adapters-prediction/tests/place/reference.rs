//! The reference engine for comparisons, a Python package.
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be made fails its test"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::json;

/// The packages with all their dependencies, so that nothing else is installed.
const PACKAGES: [&str; 4] = [
    "ctranslate2==4.8.5",
    "numpy==2.4.6",
    "pyyaml==6.0.3",
    "tokenizers==0.23.3",
];

/// Returns the vectors of the texts, as the other engine computes them from the same files.
pub(crate) fn vectors(model: &Path, max_tokens: usize, texts: &[String]) -> Vec<Vec<f64>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/encode.py");
    let mut child = Command::new("python3")
        .arg(script)
        .env("PYTHONPATH", packages())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({ "model": model, "max_tokens": max_tokens, "texts": texts });
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(asked.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the reference ends well");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the folder with the packages. If they are missing, they are installed in the directory
/// in `RIGLM_TEST_CLIENTS`, or in the build directory.
fn packages() -> PathBuf {
    let folder = env::var_os("RIGLM_TEST_CLIENTS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join("encoders");
    let mark = folder.join("installed");
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .arg(&folder)
        .args(PACKAGES)
        .status()
        .unwrap();
    assert!(status.success(), "pip installs the reference");
    fs::write(mark, wanted).unwrap();
    folder
}
