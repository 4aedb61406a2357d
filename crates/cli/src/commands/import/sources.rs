//! The servers of MCP clients and of files, as one list without repetitions.

use std::path::Path;

use riglm_adapters_clients::configuration::{
    ConfiguredServers, FileState, GatewayFolder, ImportError, ImportFormat, InstalledClient,
    MergedServer, ReadContext, SourcedServer, client, gateway_folders, installed_client,
    installed_clients, merge_servers, read_servers, read_text, server_files,
};

use super::super::user_clients::UserClients;
use crate::exit::WrongUsage;
use crate::output::{note, printable, with_causes};

/// The servers that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadServers {
    pub(crate) servers: Vec<MergedServer>,
    /// Sentences about files.
    pub(crate) notes: Vec<String>,
    /// The files that were read.
    pub(crate) files: Vec<String>,
}

/// Reads the servers of clients, files and folders; of all installed clients and gateways if none is
/// named.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a name that is neither a client nor a file, for a named file that
/// cannot be read, and for a named folder without a file that can be read. Other files that cannot
/// be read are in the notes.
pub(crate) fn read_sources(users: &UserClients, from: &[String]) -> anyhow::Result<ReadServers> {
    let home = users.home();
    let mut reader = SourceReader::new(users, &home);
    if from.is_empty() {
        reader.add_installed_clients(users);
        for gateway in gateway_folders(&users.places) {
            reader.add_gateway(&gateway);
        }
    }
    for name in from {
        if let Some(client) = client(name) {
            let installed = installed_client(&users.places, client).ok_or_else(|| {
                WrongUsage(format!("{} is not installed: it has no file", client.title))
            })?;
            reader.add_client(&installed);
        } else if Path::new(name).is_dir() {
            reader.add_named_folder(Path::new(name))?;
        } else {
            reader.add_named_file(Path::new(name))?;
        }
    }
    Ok(reader.into_servers())
}

/// Reads the servers of all installed clients. Files that cannot be read are in the notes.
pub(crate) fn read_clients(users: &UserClients) -> ReadServers {
    let home = users.home();
    let mut reader = SourceReader::new(users, &home);
    reader.add_installed_clients(users);
    reader.into_servers()
}

struct SourceReader<'a> {
    context: ReadContext<'a>,
    found: Vec<SourcedServer>,
    notes: Vec<String>,
    files: Vec<String>,
}

impl<'a> SourceReader<'a> {
    fn new(users: &'a UserClients, home: &'a str) -> Self {
        Self {
            context: ReadContext {
                home,
                riglm: &users.riglm,
            },
            found: Vec::new(),
            notes: Vec::new(),
            files: Vec::new(),
        }
    }

    fn into_servers(self) -> ReadServers {
        ReadServers {
            servers: merge_servers(self.found),
            notes: self.notes,
            files: self.files,
        }
    }

    fn add_installed_clients(&mut self, users: &UserClients) {
        for installed in installed_clients(&users.places) {
            self.add_client(&installed);
        }
    }

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

    /// Adds the servers in the files of a gateway.
    fn add_gateway(&mut self, gateway: &GatewayFolder) {
        // Servers of the gateway itself may share a port, if one of them is stopped.
        let n_known = self.found.len();
        match server_files(&gateway.path) {
            Ok(files) => {
                for file in files {
                    self.add_file_of_folder(&file, gateway.title, n_known);
                }
            }
            Err(error) => self.notes.push(format!(
                "{} was left out: {}",
                gateway.path.display(),
                error_text(&error)
            )),
        }
    }

    fn add_named_folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        let shown = folder.display();
        let files = server_files(folder)
            .map_err(|error| WrongUsage(format!("{shown}: {}", error_text(&error))))?;
        let n_before = self.files.len();
        for file in files {
            self.add_file_of_folder(&file, &file.display().to_string(), 0);
        }
        if self.files.len() == n_before {
            for text in &self.notes {
                note(&printable(text));
            }
            let text = format!("{shown}: it has no file with servers in a known format");
            return Err(WrongUsage(text).into());
        }
        Ok(())
    }

    /// Adds the servers of a file. If it cannot be read, the others go on. It is left out if a gateway
    /// offers its server at the address of one of the first `n_known` servers.
    fn add_file_of_folder(&mut self, path: &Path, source: &str, n_known: usize) {
        let text = read_text(path).map_err(|error| error_text(&error));
        let servers = text.and_then(|file| {
            let text = &file.text;
            let format = ImportFormat::guess(path, text).map_err(|error| error_text(&error))?;
            let known = self.found.iter().take(n_known);
            if format.is_offered_among(text, known.map(|known| &known.server)) {
                return Err("a client has its server, at the address of the gateway".to_owned());
            }
            let servers = format.read(text, self.context);
            servers.map_err(|error| error_text(&ImportError::from(error)))
        });
        match servers {
            Ok(servers) => self.add(source, path, servers),
            Err(reason) => {
                let path = path.display();
                self.notes.push(format!("{path} was left out: {reason}"));
            }
        }
    }

    fn add_named_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        if !path.exists() {
            let text = "it is neither a known client nor a file (riglm import --help)";
            return Err(WrongUsage(format!("{shown}: {text}")).into());
        }
        let file = read_text(path).map_err(|error| WrongUsage(error_text(&error)))?;
        let servers = self.servers_in(path, &file.text);
        let servers =
            servers.map_err(|error| WrongUsage(format!("{shown}: {}", error_text(&error))))?;
        self.add(&shown.to_string(), path, servers);
        Ok(())
    }

    /// Returns the servers in the text of a file in any format, or the reason why there are none.
    fn servers_in(&self, path: &Path, text: &str) -> Result<ConfiguredServers, ImportError> {
        let format = ImportFormat::guess(path, text)?;
        Ok(format.read(text, self.context)?)
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
