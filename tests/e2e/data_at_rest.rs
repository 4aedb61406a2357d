//! Data on disk: no arguments and results, and no access for other users.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use riglm_tests::answers::Answers;
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{call, initialize, request_with};
use riglm_tests::riglm::{Options, ProxiedClient, read_store};

use crate::odd_over_stdio;

const MARKER: &str = "marker-7f3a9c-secret";

/// SHA-256 in hexadecimal of [`MARKER`], of its JSON string, and of the arguments that contain it.
const DIGESTS: [&str; 3] = [
    "6e4696e67fbac3042a27e2edf4227d4225b072682f1909dfb04b23d0c8e07605",
    "8b5b79602c1a4ef40fed8441133216db0793618f8bc3beaf4b7509b43ef0c054",
    "1a965572125316811a48b7aa6ef4d2b3a0ac1e9bc3a85d37a64e955544d43363",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    entries
        .map(|entry| entry.expect("the entry can be read").path())
        .flat_map(|path| {
            if path.is_dir() {
                let mut below = files(&path);
                below.push(path);
                below
            } else {
                vec![path]
            }
        })
        .collect()
}

fn contains(path: &Path, needle: &str) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

async fn serve_with_calls() -> ProxiedClient {
    let line = ProxiedClient::through(
        Transport::Streamable,
        &odd_over_stdio(),
        &Options::default(),
        Answers::full(),
    )
    .await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    let arguments = format!(r#"{{"text":"{MARKER}"}}"#);
    for (id, tool) in [("1", "echo"), ("2", "no-such-tool"), ("3", "exit")] {
        line.client.request(&call(id, tool, &arguments)).await;
    }
    line
}

/// Returns a proxy with full logging, and a client that declares its task in every possible way.
async fn serve_with_contexts() -> ProxiedClient {
    let configuration = "[filtering]\ndeny = [\"hang\"]\n[logging]\nlevel = \"trace\"\n";
    let options = Options {
        arguments: ["--strategy", "denylist"].map(str::to_owned).to_vec(),
        ..Options::with_configuration(configuration)
    };
    let upstream = odd_over_stdio();
    let line =
        ProxiedClient::through(Transport::Streamable, &upstream, &options, Answers::full()).await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    let said = format!(r#"{{"query":"{MARKER}","intent":"{MARKER}"}}"#);
    let text = format!(r#"{{"name":"echo","arguments":{{"text":["{MARKER}"]}}}}"#);
    for (id, tool, arguments) in [
        ("1", "set_context", &said),
        ("2", "search_available_tools", &said),
        ("3", "call_tool", &text),
    ] {
        let answer = line.client.request(&call(id, tool, arguments)).await;
        assert!(answer.text.contains("content"), "{}", answer.text);
    }
    let meta = format!(r#""_meta":{{"io.github.riglm/context":"{MARKER}"}}"#);
    let prompt = format!(r#"{{"name":"p","arguments":{{"a":"{MARKER}"}},{meta}}}"#);
    let prompt = request_with("4", "prompts/get", &prompt);
    line.client.request(&prompt).await;
    line
}

#[tokio::test]
async fn arguments_and_results_are_on_no_disk_and_in_no_log() {
    nothing_is_left_of(serve_with_calls().await).await;
}

#[tokio::test]
async fn client_contexts_appear_on_no_disk_or_log() {
    nothing_is_left_of(serve_with_contexts().await).await;
}

async fn nothing_is_left_of(mut line: ProxiedClient) {
    let listing = read_store(line.data_dir.path(), &["calls", "--json"]).await;
    assert!(!listing.contains(MARKER), "{listing}");
    let check = |folder: &Path| {
        for path in files(folder).iter().filter(|path| path.is_file()) {
            for needle in [MARKER].iter().chain(&DIGESTS) {
                assert!(!contains(path, needle), "{} holds {needle}", path.display());
            }
        }
    };
    check(line.data_dir.path());
    let riglm = line.riglm.as_mut().expect("the proxy listens");
    riglm.stop().await;
    assert!(!riglm.process.output().contains(MARKER));
    check(line.data_dir.path());
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let line = serve_with_calls().await;
    let mode = |path: &Path| {
        let metadata = path.metadata().expect("the file can be looked at");
        metadata.permissions().mode() & 0o777
    };
    for path in files(line.data_dir.path()) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        if path.file_name().is_some_and(|name| name == "test.toml") {
            continue;
        }
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

#[tokio::test]
async fn missing_data_folders_are_created_with_private_permissions() {
    let parent = tempfile::TempDir::new().expect("a temporary folder can be made");
    let data_dir = parent.path().join("new/data");
    let _riglm =
        riglm_tests::riglm::Riglm::serve(&odd_over_stdio(), &data_dir, &Options::default()).await;
    let mode = data_dir
        .metadata()
        .expect("the folder was made")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
