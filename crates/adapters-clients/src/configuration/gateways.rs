//! The folders of gateways that keep a file for each server.

use std::io;
use std::path::{Path, PathBuf};

use super::client::{FilePlace, FileRole};
use super::places::Places;

/// The folder of the run configurations of `ToolHive`, in its state directory.
const RUN_CONFIGS: FilePlace = FilePlace {
    role: FileRole::Current,
    linux: &[
        "$XDG_STATE_HOME/toolhive/runconfigs",
        "~/.local/state/toolhive/runconfigs",
    ],
    macos: &[
        "$XDG_STATE_HOME/toolhive/runconfigs",
        "~/Library/Application Support/toolhive/runconfigs",
    ],
    windows: &["%LOCALAPPDATA%/toolhive/runconfigs"],
};
/// The gateways with such a folder.
const GATEWAYS: [(&str, FilePlace); 1] = [("ToolHive", RUN_CONFIGS)];
/// The endings of files that may have servers.
const ENDINGS: [&str; 6] = ["json", "jsonc", "json5", "toml", "yaml", "yml"];
/// The maximum number of entries of a folder. A larger one holds something else.
const MAX_ENTRIES: usize = 10_000;

/// The folder of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFolder {
    /// The name of the gateway.
    pub title: &'static str,
    /// The folder, which has a file for each server.
    pub path: PathBuf,
}

/// Returns the folders of gateways that exist.
pub fn gateway_folders(places: &Places) -> Vec<GatewayFolder> {
    let found = GATEWAYS.into_iter().filter_map(|(title, place)| {
        let path = places.path_at(&place)?;
        path.is_dir().then_some(GatewayFolder { title, path })
    });
    found.collect()
}

/// Returns the files in a folder that may have servers, by their endings, sorted by name. Folders
/// in it are left out, and so are hidden files, which gateways write for a moment.
///
/// # Errors
///
/// Returns the error of the operating system, and one for a folder with too many entries.
pub fn server_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (entry, n_before) in std::fs::read_dir(folder)?.zip(0..) {
        if n_before == MAX_ENTRIES {
            let text = format!("the folder has more than {MAX_ENTRIES} entries");
            return Err(io::Error::other(text));
        }
        let path = entry?.path();
        if has_servers_name(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns whether a file may have servers, by its name.
fn has_servers_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let is_it = |known: &&str| ending.eq_ignore_ascii_case(known);
    !name.starts_with('.') && ENDINGS.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::configuration::places::Os;

    #[test]
    fn the_folder_of_a_gateway_is_found_on_each_system() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = home.path().join("state");
        let state = elsewhere.display().to_string();
        for (os, variables, folder) in [
            (Os::Linux, vec![], ".local/state/toolhive/runconfigs"),
            (
                Os::Linux,
                vec![("XDG_STATE_HOME".to_owned(), state)],
                "state/toolhive/runconfigs",
            ),
            (
                Os::MacOs,
                vec![],
                "Library/Application Support/toolhive/runconfigs",
            ),
            (Os::Windows, vec![], "AppData/Local/toolhive/runconfigs"),
        ] {
            let places = Places {
                os,
                home: home.path().to_owned(),
                variables: BTreeMap::from_iter(variables),
            };
            assert!(gateway_folders(&places).is_empty());
            let path = home.path().join(folder);
            std::fs::create_dir_all(&path).unwrap();
            let title = "ToolHive";
            assert_eq!(gateway_folders(&places), [GatewayFolder { title, path }]);
        }
    }

    #[test]
    fn files_of_a_folder_are_told_by_their_endings() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.YAML", ".b.json", "notes.txt", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d.json")).unwrap();
        let files = server_files(folder.path()).unwrap();
        let expected = ["a.YAML", "b.json"].map(|name| folder.path().join(name));
        assert_eq!(files, expected);
        assert!(server_files(&folder.path().join("none")).is_err());
    }
}
