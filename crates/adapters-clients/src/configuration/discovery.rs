//! The clients that are installed, and their files.
//!
//! Nothing is read here, only looked up: macOS asks the user before a program reads the data of
//! another one.

use std::path::{Path, PathBuf};

use super::client::{Client, FileRole};
use super::file::{self, FileError};
use super::places::{CandidateFile, Places};
use super::table;

#[cfg(test)]
mod tests;

/// The maximum number of folders that a `*` in a path stands for.
const MAX_MATCHES: usize = 64;

/// A client that is installed.
#[derive(Debug)]
pub struct InstalledClient {
    /// The row of the client.
    pub client: &'static Client,
    /// Its files, in the order in which the client prefers them.
    pub files: Vec<ClientFile>,
    /// The files of an administrator that exist, and shut out other servers.
    pub managed_files: Vec<PathBuf>,
}

/// A file of an installed client.
#[derive(Debug)]
pub struct ClientFile {
    /// The path, which may be a symbolic link.
    pub path: PathBuf,
    /// The use of the file.
    pub role: FileRole,
    /// The state of the file.
    pub state: FileState,
}

/// The state of a file.
#[derive(Debug)]
pub enum FileState {
    /// It can be read.
    Present {
        /// The file itself, if the path is a symbolic link.
        target: PathBuf,
        /// The size.
        n_bytes: u64,
    },
    /// It does not exist, and can be created.
    Missing,
    /// It cannot be used.
    Unusable(FileError),
}

impl InstalledClient {
    /// Returns the files to change for an installation: every one that exists, but only the first
    /// of today's files; else the first of today's files, which is missing.
    pub fn install_files(&self) -> Vec<&ClientFile> {
        let is_missing = |file: &&ClientFile| matches!(file.state, FileState::Missing);
        let current = |file: &&ClientFile| file.role == FileRole::Current;
        let mut files: Vec<&ClientFile> = Vec::new();
        files.extend(self.files.iter().filter(current).find(|it| !is_missing(it)));
        let variants = self.files.iter().filter(|it| !current(it));
        files.extend(variants.filter(|it| !is_missing(it)));
        if files.is_empty() {
            // The last one is the plain form where the client knows several.
            files.extend(self.files.iter().rfind(current));
        }
        files
    }
}

/// Returns the clients that are installed.
pub fn installed_clients(places: &Places) -> Vec<InstalledClient> {
    table::clients()
        .filter_map(|client| installed_client(places, client))
        .collect()
}

/// Returns a client if it is installed: one of its files exists, or the folder of one.
pub fn installed_client(places: &Places, client: &'static Client) -> Option<InstalledClient> {
    let found = client_files(places, client);
    let is_there = |file: &ClientFile| {
        let folder = file.path.parent();
        let has_folder =
            folder.is_some_and(|folder| folder.is_dir() && !is_ordinary(places, folder));
        !matches!(file.state, FileState::Missing) || has_folder
    };
    let has_folder = || places.folder(client).is_some_and(|folder| folder.is_dir());
    let is_installed = found.files.iter().any(is_there) || has_folder();
    is_installed.then_some(found)
}

/// Returns the files of a client, whether it is installed or not.
pub fn client_files(places: &Places, client: &'static Client) -> InstalledClient {
    let mut files = Vec::new();
    for CandidateFile { path, role } in places.files(client) {
        for path in expand(&path) {
            let state = match file::check(&path) {
                Ok((target, n_bytes)) => FileState::Present { target, n_bytes },
                Err(FileError::Missing { .. }) => FileState::Missing,
                Err(error) => FileState::Unusable(error),
            };
            if role == FileRole::Current || !matches!(state, FileState::Missing) {
                files.push(ClientFile { path, role, state });
            }
        }
    }
    let managed_files = places.managed_files(client);
    InstalledClient {
        client,
        files,
        managed_files: managed_files.into_iter().filter(|it| it.exists()).collect(),
    }
}

/// Returns the files of a client in the folder of a project that exist. They have the format of the
/// client, or that of [`ImportFormat::guess`](super::ImportFormat::guess).
pub fn project_files(client: &Client, folder: &Path) -> Vec<PathBuf> {
    let paths = client.project_files.iter();
    let paths = paths.flat_map(|path| expand(&folder.join(path)));
    paths.filter(|path| path.is_file()).collect()
}

/// Returns whether a folder exists on any system, with or without the client.
fn is_ordinary(places: &Places, folder: &Path) -> bool {
    folder == places.home || folder == places.home.join(".config")
}

/// Returns the paths that a path with `*` stands for, sorted.
fn expand(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for component in path.components() {
        let text = component.as_os_str().to_string_lossy();
        let Some((before, after)) = text.split_once('*') else {
            for path in &mut paths {
                path.push(component);
            }
            continue;
        };
        let mut matches = Vec::new();
        for folder in &paths {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let fits = |name: &std::ffi::OsString| {
                let name = name.to_string_lossy();
                name.len() >= before.len() + after.len()
                    && name.starts_with(before)
                    && name.ends_with(after)
            };
            matches.extend(
                names
                    .filter(fits)
                    .map(|name| folder.join(name))
                    .take(MAX_MATCHES),
            );
        }
        matches.sort();
        paths = matches;
    }
    paths
}
