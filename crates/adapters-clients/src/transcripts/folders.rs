//! The places where clients keep their transcripts, and the files in them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;

use super::event::TranscriptClient;
use super::opencode;

/// The deepest folder that is searched, counted from the folder of the client. Transcripts of
/// subagents lie five folders deep.
const MAX_DEPTH: usize = 12;

/// The folders of all clients, for one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptFolders {
    folders: Vec<Folder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Folder {
    client: TranscriptClient,
    path: PathBuf,
}

/// A transcript that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptFile {
    /// The client that writes it.
    pub client: TranscriptClient,
    /// The path. For opencode, the file that describes a session, or a database of sessions.
    pub path: PathBuf,
    /// The size in bytes, with the files that belong to it.
    pub size: u64,
    /// The time of the last change, if the file system has it.
    pub modified: Option<Timestamp>,
}

/// The reason why something cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UnreadableReason {
    /// The operating system reported an error.
    #[error(transparent)]
    Io(Arc<io::Error>),
    /// The database engine reported an error: the file is locked, damaged or no database.
    #[error("{0}")]
    Database(Arc<str>),
    /// The file is one JSON document, and too large to be read.
    #[error("it is one document of {bytes} bytes, more than {limit}")]
    TooLarge {
        /// The size of the file.
        bytes: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// The file is not a transcript of its client.
    #[error("it is not a transcript")]
    NotTranscript,
}

/// A file or folder that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to read {}", path.display())]
pub struct UnreadableFile {
    /// The client.
    pub client: TranscriptClient,
    /// The path.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub reason: UnreadableReason,
}

/// The transcripts of one user.
#[derive(Clone, Debug, Default)]
pub struct TranscriptListing {
    /// The files, by client and time of the last change, those of Codex by the time of their start.
    /// The file with an original comes before files with copies of its lines.
    pub files: Vec<TranscriptFile>,
    /// The files and folders that cannot be read.
    pub unreadable: Vec<UnreadableFile>,
}

impl TranscriptListing {
    /// Returns the files of a client.
    pub fn of(&self, client: TranscriptClient) -> impl Iterator<Item = &TranscriptFile> {
        self.files.iter().filter(move |file| file.client == client)
    }

    /// Returns the size of all files, in bytes.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Leaves out the files of other clients.
    pub fn retain_clients(&mut self, clients: &[TranscriptClient]) {
        self.files.retain(|file| clients.contains(&file.client));
        self.unreadable
            .retain(|file| clients.contains(&file.client));
    }
}

impl TranscriptFolders {
    /// Returns the folders of a user with this home directory and these environment variables. They
    /// are the same on all operating systems.
    pub fn new(home: &Path, variables: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| {
            let value = variables(name)?;
            (!value.is_empty()).then(|| PathBuf::from(value))
        };
        let claude = variable("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude"));
        // Versions between 1.0.30 and 1.0.50 used the folder of the XDG specification.
        let claude_xdg =
            (variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"))).join("claude");
        let codex = variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex"));
        let gemini = variable("GEMINI_CLI_HOME").unwrap_or_else(|| home.to_owned());
        let data = variable("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let folder = |client, path| Folder { client, path };
        let mut folders = vec![
            folder(TranscriptClient::ClaudeCode, claude.join("projects")),
            folder(TranscriptClient::ClaudeCode, claude_xdg.join("projects")),
            folder(TranscriptClient::Codex, codex.join("sessions")),
            folder(TranscriptClient::Codex, codex.join("archived_sessions")),
            folder(TranscriptClient::GeminiCli, gemini.join(".gemini/tmp")),
            folder(TranscriptClient::Opencode, data.join("opencode")),
        ];
        if variable("CLAUDE_CONFIG_DIR").is_some() {
            folders.remove(1);
        }
        Self { folders }
    }

    /// Returns the folders in which transcripts of a client are looked for.
    pub fn of(&self, client: TranscriptClient) -> impl Iterator<Item = &Path> {
        let of_client = self.folders.iter().filter(move |it| it.client == client);
        of_client.map(|folder| &*folder.path)
    }

    /// Finds the transcripts without reading them. A folder that does not exist has none.
    #[must_use]
    pub fn find(&self) -> TranscriptListing {
        let mut listing = TranscriptListing::default();
        let mut visited = HashSet::new();
        for folder in &self.folders {
            let mut search = Search {
                client: folder.client,
                listing: &mut listing,
                visited: &mut visited,
            };
            match folder.client {
                TranscriptClient::Opencode => search.opencode(&folder.path),
                _ => search.folder(&folder.path),
            }
        }
        listing.files.sort_by(|a, b| {
            let by_client = a.client.cmp(&b.client);
            let by_start = || start_in_name(a).cmp(&start_in_name(b));
            let by_time = by_client
                .then_with(by_start)
                .then(a.modified.cmp(&b.modified));
            by_time.then_with(|| a.path.cmp(&b.path))
        });
        listing
    }
}

/// Returns the time of the start that a client writes into the name of a file. Files of Codex have
/// one: an original may have changed after a copy of its lines was made, but it is older.
fn start_in_name(file: &TranscriptFile) -> Option<&OsStr> {
    let has_start = file.client == TranscriptClient::Codex;
    has_start.then(|| file.path.file_name()).flatten()
}

/// A search through the folders of a client.
struct Search<'a> {
    client: TranscriptClient,
    listing: &'a mut TranscriptListing,
    /// The folders and files so far, without links. They end loops of links.
    visited: &'a mut HashSet<PathBuf>,
}

impl Search<'_> {
    fn folder(&mut self, root: &Path) {
        let mut open = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = open.pop() {
            for path in self.entries(&folder) {
                let Some(metadata) = self.metadata(&path) else {
                    continue;
                };
                if metadata.is_dir() {
                    if depth < MAX_DEPTH {
                        open.push((path, depth + 1));
                    }
                } else if metadata.is_file() {
                    self.file(path, &metadata);
                }
            }
        }
    }

    fn file(&mut self, path: PathBuf, metadata: &Metadata) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_transcript = match self.client {
            TranscriptClient::ClaudeCode => name.ends_with(".jsonl"),
            TranscriptClient::Codex => {
                // The client removes one of the two files after it wrote the other.
                let is_lone = |stem: &str| !path.with_file_name(format!("{stem}.jsonl")).exists();
                let is_compressed = name.strip_suffix(".jsonl.zst").is_some_and(is_lone);
                name.starts_with("rollout-") && (name.ends_with(".jsonl") || is_compressed)
            }
            TranscriptClient::GeminiCli => {
                let is_chat = path
                    .ancestors()
                    .skip(1)
                    .take(3)
                    .any(|it| it.ends_with("chats"));
                is_chat && (name.ends_with(".jsonl") || name.ends_with(".json"))
            }
            TranscriptClient::Opencode => false,
        };
        if is_transcript {
            self.add(path, metadata.len(), metadata.modified().ok());
        }
    }

    /// Lists the sessions of opencode, and its databases.
    fn opencode(&mut self, root: &Path) {
        for path in self.entries(root) {
            if opencode::is_database(&path) {
                self.database(path);
            }
        }
        let storage = root.join("storage");
        for project in self.entries(&storage.join("session")) {
            if !project.is_dir() {
                continue;
            }
            for path in self.entries(&project) {
                let is_json = path
                    .extension()
                    .is_some_and(|extension| extension == "json");
                let Some(metadata) = self.metadata(&path).filter(|it| is_json && it.is_file())
                else {
                    continue;
                };
                let size = metadata.len() + self.size_of_messages(&storage, &path);
                self.add(path, size, metadata.modified().ok());
            }
        }
    }

    /// Lists a database. What was written last lies in its log.
    fn database(&mut self, path: PathBuf) {
        let Some(metadata) = self.metadata(&path).filter(Metadata::is_file) else {
            return;
        };
        let mut size = metadata.len();
        let mut modified = metadata.modified().ok();
        if let Ok(log) = write_ahead_log(&path).metadata() {
            size += log.len();
            modified = modified.max(log.modified().ok());
        }
        self.add(path, size, modified);
    }

    fn size_of_messages(&mut self, storage: &Path, session: &Path) -> u64 {
        let id = session.file_stem().unwrap_or_default();
        let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        let mut total = 0;
        for message in self.entries(&storage.join("message").join(id)) {
            total += size(&message);
            let id = message.file_stem().unwrap_or_default();
            for part in self.entries(&storage.join("part").join(id)) {
                total += size(&part);
            }
        }
        total
    }

    /// Returns the entries of a folder, sorted. A folder is listed once, however it is reached.
    fn entries(&mut self, folder: &Path) -> Vec<PathBuf> {
        let listed = folder.canonicalize().and_then(|real| {
            if !self.visited.insert(real) {
                return Ok(Vec::new());
            }
            fs::read_dir(folder)?
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()
        });
        match listed {
            Ok(mut entries) => {
                entries.sort();
                entries
            }
            Err(error) => {
                self.failure(folder, error);
                Vec::new()
            }
        }
    }

    /// Returns the metadata behind a path. Links to nothing are no failure.
    fn metadata(&mut self, path: &Path) -> Option<Metadata> {
        match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) => {
                self.failure(path, error);
                None
            }
        }
    }

    fn failure(&mut self, path: &Path, error: io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.unreadable(path.to_owned(), UnreadableReason::Io(Arc::new(error)));
        }
    }

    fn unreadable(&mut self, path: PathBuf, reason: UnreadableReason) {
        self.listing.unreadable.push(UnreadableFile {
            client: self.client,
            path,
            reason,
        });
    }

    fn add(&mut self, path: PathBuf, size: u64, modified: Option<SystemTime>) {
        let is_new = path
            .canonicalize()
            .is_ok_and(|real| self.visited.insert(real));
        if is_new {
            self.listing.files.push(TranscriptFile {
                client: self.client,
                path,
                size,
                modified: modified.and_then(|time| Timestamp::try_from(time).ok()),
            });
        }
    }
}

/// Returns the path of the write-ahead log of a SQLite database.
pub(super) fn write_ahead_log(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

#[cfg(test)]
mod tests;
