//! The transcripts of a user in a temporary folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use riglm_adapters_clients::transcripts::{
    ClientSummary, ReadOptions, ReadSummary, RecordedCall, ServerNames, TranscriptClient,
    TranscriptEvent, TranscriptFolders, TranscriptListing, read_transcripts,
};
use tempfile::TempDir;

/// Transcripts that were read.
pub(crate) struct Scene {
    home: TempDir,
    pub(crate) options: ReadOptions,
}

/// The result of a run.
pub(crate) struct Reading {
    pub(crate) events: Vec<TranscriptEvent>,
    pub(crate) summary: ReadSummary,
}

impl Scene {
    /// A user without transcripts.
    pub(crate) fn empty() -> Self {
        Self {
            home: TempDir::new().unwrap(),
            options: ReadOptions::default(),
        }
    }

    /// A user with the files of a client. The times of the files are in order of their paths.
    pub(crate) fn of(fixture: &str, folder: &str) -> Self {
        let scene = Self::empty();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/fixtures");
        let mut paths = Vec::new();
        copy(&fixtures.join(fixture), &scene.path(folder), &mut paths);
        paths.sort();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        for (number, path) in (0..).zip(paths) {
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(start + Duration::from_secs(number))
                .unwrap();
        }
        scene
    }

    pub(crate) fn with_servers(mut self, servers: &[&str]) -> Self {
        self.options.servers = ServerNames::new(servers.iter().copied());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file in the home directory.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn find(&self) -> TranscriptListing {
        let no_variables = |_: &str| -> Option<OsString> { None };
        TranscriptFolders::new(self.home.path(), &no_variables).find()
    }

    pub(crate) fn read(&self) -> Reading {
        let listing = self.find();
        let mut events = Vec::new();
        let mut last = 0;
        let summary = read_transcripts(
            &listing,
            &self.options,
            &mut |event| events.push(event),
            &mut |progress| {
                assert!(progress.n_bytes >= last && progress.n_files <= listing.files.len());
                last = progress.n_bytes;
            },
        );
        assert_eq!(last, listing.n_bytes());
        Reading { events, summary }
    }
}

impl Reading {
    pub(crate) fn counts(&self, client: TranscriptClient) -> ClientSummary {
        self.summary.clients[&client]
    }

    /// Returns the calls as `session server tool outcome milliseconds`, with `-` for no value.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.events.iter().filter_map(|event| match event {
            TranscriptEvent::Call(call) => Some(shown(call)),
            TranscriptEvent::UserMessage(_) => None,
        });
        calls.collect()
    }

    pub(crate) fn call(&self, tool: &str) -> &RecordedCall {
        let mut calls = self.events.iter().filter_map(|event| match event {
            TranscriptEvent::Call(call) if call.tool == tool => Some(call),
            _ => None,
        });
        calls.next().unwrap()
    }

    /// Returns the messages by session.
    pub(crate) fn messages(&self) -> BTreeMap<String, Vec<String>> {
        let mut messages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in &self.events {
            if let TranscriptEvent::UserMessage(message) = event {
                let session = messages.entry(message.session.to_string()).or_default();
                session.push(message.text.clone());
            }
        }
        messages
    }
}

fn shown(call: &RecordedCall) -> String {
    let server = call.server.as_deref().unwrap_or("-");
    let duration = call.duration.map(|it| it.as_millis().to_string());
    format!(
        "{} {server} {} {} {}",
        call.session,
        call.tool,
        call.outcome,
        duration.as_deref().unwrap_or("-")
    )
}

fn copy(from: &Path, to: &Path, paths: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target, paths);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            paths.push(target);
        }
    }
}
