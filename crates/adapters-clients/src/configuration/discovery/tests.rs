//! Sample homes on all systems.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::configuration::places::Os;

fn sample(os: Os) -> (tempfile::TempDir, Places) {
    let home = tempfile::tempdir().unwrap();
    let places = Places {
        os,
        home: home.path().to_owned(),
        variables: std::collections::BTreeMap::new(),
    };
    (home, places)
}

fn write(places: &Places, path: &str) -> PathBuf {
    let path = places.home.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{}").unwrap();
    path
}

fn ids(places: &Places) -> Vec<&'static str> {
    let installed = installed_clients(places);
    installed.iter().map(|it| it.client.id).collect()
}

fn install_paths(places: &Places, id: &str) -> Vec<PathBuf> {
    let installed = installed_client(places, table::client(id).unwrap()).unwrap();
    let files = installed.install_files();
    files.into_iter().map(|file| file.path.clone()).collect()
}

#[test]
fn clients_are_found_by_their_files_or_folders() {
    let (_home, places) = sample(Os::Linux);
    assert_eq!(ids(&places), [] as [&str; 0]);
    fs::create_dir_all(places.home.join(".cursor")).unwrap();
    fs::create_dir_all(places.home.join(".config")).unwrap();
    fs::create_dir_all(places.home.join(".claude")).unwrap();
    write(&places, ".config/zed/settings.json");
    assert_eq!(ids(&places), ["claude-code", "cursor", "zed"]);
    assert_eq!(
        install_paths(&places, "cursor"),
        [places.home.join(".cursor/mcp.json")]
    );
    let zed = installed_client(&places, table::client("zed").unwrap()).unwrap();
    assert!(matches!(
        zed.files[0].state,
        FileState::Present { n_bytes: 2, .. }
    ));
}

#[test]
fn windows_and_macos_are_found_in_a_sample_home() {
    let (_home, places) = sample(Os::Windows);
    let desktop = write(&places, "AppData/Roaming/Claude/claude_desktop_config.json");
    let packaged = write(
        &places,
        "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
    );
    write(&places, "AppData/Roaming/Block/goose/config/config.yaml");
    assert_eq!(ids(&places), ["claude-desktop", "goose"]);
    assert_eq!(
        install_paths(&places, "claude-desktop"),
        [desktop, packaged]
    );
    let (_home, places) = sample(Os::MacOs);
    let user = "Library/Application Support/Code/User";
    let main = write(&places, &format!("{user}/mcp.json"));
    let profile = write(&places, &format!("{user}/profiles/1a/mcp.json"));
    write(&places, &format!("{user}/profiles/2b/settings.json"));
    assert_eq!(ids(&places), ["vscode"]);
    assert_eq!(install_paths(&places, "vscode"), [main, profile]);
}

#[test]
fn the_file_that_wins_is_chosen() {
    let (_home, places) = sample(Os::Linux);
    let plain = write(&places, ".config/opencode/opencode.json");
    assert_eq!(
        install_paths(&places, "opencode"),
        std::slice::from_ref(&plain)
    );
    let with_comments = write(&places, ".config/opencode/opencode.jsonc");
    assert_eq!(
        install_paths(&places, "opencode"),
        std::slice::from_ref(&with_comments)
    );
    fs::remove_file(&plain).unwrap();
    fs::remove_file(&with_comments).unwrap();
    assert_eq!(install_paths(&places, "opencode"), [plain]);
    let old = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
    let old = write(&places, &format!(".config/Code/User/{old}"));
    assert_eq!(install_paths(&places, "cline"), std::slice::from_ref(&old));
    let new = write(&places, ".cline/data/settings/cline_mcp_settings.json");
    assert_eq!(install_paths(&places, "cline"), [new, old]);
}

#[test]
fn links_and_unusable_files_are_named() {
    let (_home, places) = sample(Os::Linux);
    let dotfiles = write(&places, "dotfiles/mcp.json");
    fs::create_dir(places.home.join(".cursor")).unwrap();
    symlink("../dotfiles/mcp.json", places.home.join(".cursor/mcp.json")).unwrap();
    fs::create_dir_all(places.home.join(".codex/config.toml")).unwrap();
    fs::create_dir(places.home.join(".gemini")).unwrap();
    symlink("/nowhere", places.home.join(".gemini/settings.json")).unwrap();
    let state = |id: &str| {
        let mut found = installed_client(&places, table::client(id).unwrap()).unwrap();
        found.files.remove(0).state
    };
    let FileState::Present { target, .. } = state("cursor") else {
        panic!("it is not present");
    };
    assert_eq!(target, dotfiles.canonicalize().unwrap());
    assert!(matches!(
        state("codex"),
        FileState::Unusable(FileError::NotRegular { .. })
    ));
    assert!(matches!(
        state("gemini"),
        FileState::Unusable(FileError::Dangling { .. })
    ));
}

#[test]
fn files_of_a_project_are_found() {
    let (_home, places) = sample(Os::Linux);
    let one = write(&places, "project/.continue/mcpServers/a.yaml");
    let two = write(&places, "project/.continue/mcpServers/b.json");
    write(&places, "project/.continue/mcpServers/c.txt");
    let project = places.home.join("project");
    let client = |id: &str| table::client(id).unwrap();
    assert_eq!(project_files(client("continue"), &project), [one, two]);
    assert_eq!(
        project_files(client("cursor"), &project),
        [] as [PathBuf; 0]
    );
}
