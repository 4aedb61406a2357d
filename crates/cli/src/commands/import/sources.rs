//! The servers of MCP clients and of files, as one list without repetitions.

use std::path::Path;

use riglm_adapters_clients::configuration::{
    ConfiguredServers, FileState, ImportFormat, InstalledClient, MergedServer, ReadContext,
    SourcedServer, client, installed_client, installed_clients, merge_servers, read_servers,
    read_text,
};

use super::super::user_clients::UserClients;
use crate::exit::WrongUsage;
use crate::output::{printable, with_causes};

/// The servers that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadServers {
    pub(crate) servers: Vec<MergedServer>,
    /// Sentences about files.
    pub(crate) notes: Vec<String>,
    /// The files that were read.
    pub(crate) files: Vec<String>,
}

/// Reads the servers of clients and files; of all installed clients if none is named.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a name that is neither a client nor a file, and for a named file that
/// cannot be read. Other files that cannot be read are in the notes.
pub(crate) fn read_sources(users: &UserClients, from: &[String]) -> anyhow::Result<ReadServers> {
    let home = users.home();
    let mut reader = SourceReader {
        context: ReadContext {
            home: &home,
            riglm: &users.riglm,
        },
        found: Vec::new(),
        notes: Vec::new(),
        files: Vec::new(),
    };
    if from.is_empty() {
        for installed in installed_clients(&users.places) {
            reader.add_client(&installed);
        }
    }
    for name in from {
        if let Some(client) = client(name) {
            let installed = installed_client(&users.places, client).ok_or_else(|| {
                WrongUsage(format!("{} is not installed: it has no file", client.title))
            })?;
            reader.add_client(&installed);
        } else {
            reader.add_file(Path::new(name))?;
        }
    }
    Ok(ReadServers {
        servers: merge_servers(reader.found),
        notes: reader.notes,
        files: reader.files,
    })
}

struct SourceReader<'a> {
    context: ReadContext<'a>,
    found: Vec<SourcedServer>,
    notes: Vec<String>,
    files: Vec<String>,
}

impl SourceReader<'_> {
    fn add_client(&mut self, installed: &InstalledClient) {
        for managed in &installed.managed_files {
            self.notes.push(format!(
                "{} uses only the servers of {}, which an administrator manages",
                installed.client.title,
                managed.display()
            ));
        }
        for file in &installed.files {
            match &file.state {
                FileState::Missing => {}
                FileState::Unusable(error) => self.notes.push(error_text(error)),
                FileState::Present { .. } => {
                    let read = read_text(&file.path).map_err(|error| error_text(&error));
                    let servers = read.and_then(|file| {
                        read_servers(&file.text, installed.client, self.context)
                            .map_err(|error| error_text(&error))
                    });
                    match servers {
                        Ok(servers) => self.add(installed.client.title, &file.path, servers),
                        Err(reason) => {
                            let path = file.path.display();
                            self.notes.push(format!("{path} was left out: {reason}"));
                        }
                    }
                }
            }
        }
    }

    fn add_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let wrong = |reason: String| WrongUsage(format!("{shown}: {reason}"));
        if !path.exists() {
            let text = "it is neither a known client nor a file (riglm import --help)";
            return Err(wrong(text.into()).into());
        }
        let file = read_text(path).map_err(|error| WrongUsage(error_text(&error)))?;
        let format =
            ImportFormat::guess(path, &file.text).map_err(|error| wrong(error_text(&error)))?;
        let servers = format
            .read(&file.text, self.context)
            .map_err(|error| wrong(error_text(&error)))?;
        self.add(&shown.to_string(), path, servers);
        Ok(())
    }

    fn add(&mut self, source: &str, path: &Path, servers: ConfiguredServers) {
        let shown = path.display();
        self.files.push(shown.to_string());
        let problems = servers.problems.iter();
        self.notes
            .extend(problems.map(|problem| format!("{shown}: {problem}")));
        let servers = servers.servers.into_iter();
        self.found.extend(servers.map(|server| SourcedServer {
            source: source.to_owned(),
            server,
        }));
    }
}

/// Returns an error with its causes, as printable text.
pub(crate) fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    printable(&with_causes(error))
}
