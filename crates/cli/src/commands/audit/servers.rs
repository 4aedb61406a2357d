//! The servers that an audit lists: those of clients, and those of riglm.

use riglm_adapters_clients::configuration::ServerNature;
use riglm_adapters_clients::transcripts::{TranscriptClient, comparable_name};
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_domain::id::UpstreamName;
use riglm_ports::token_counter::TokenCounter as _;

use super::called_names::CalledNames;
use crate::args::ImportScope;
use crate::commands::import::connection::{NoConnection, connection_to};
use crate::commands::import::plan::{ImportPlan, ImportTarget, KnownServers};
use crate::commands::import::sources::{ReadServers, error_text};
use crate::commands::server_listing::{ListedTool, ServerLister};
use crate::config::{ConfigError, SecretsFile};

/// The reason for missing tools with `--no-start`.
const NOT_STARTED: &str = "it was not started";

/// The servers of an audit, and the names under which clients call them.
#[derive(Debug)]
pub(super) struct AuditedServers {
    pub(super) servers: Vec<AuditedServer>,
    pub(super) names: CalledNames,
}

/// A server before it is listed.
#[derive(Debug)]
pub(super) struct AuditedServer {
    /// The name, which no other server of the audit has.
    name: String,
    /// The upstream that it is, or that it becomes by an import.
    upstream: Option<UpstreamName>,
    clients: Vec<String>,
    /// Whether riglm has it.
    is_own: bool,
    config: Result<UpstreamConfig, NoConnection>,
}

/// The tools of a server, or the reason why they are unknown.
#[derive(Debug)]
pub(super) struct ServerTools {
    pub(super) name: String,
    pub(super) upstream: Option<UpstreamName>,
    pub(super) clients: Vec<String>,
    pub(super) tools: Result<Vec<CountedTool>, String>,
}

/// A tool with the size of its definition.
#[derive(Debug)]
pub(super) struct CountedTool {
    pub(super) tool: ListedTool,
    pub(super) n_tokens: u64,
}

/// Returns the servers of clients, and those of the configuration.
///
/// # Errors
///
/// Returns [`ConfigError`] if the file of secrets cannot be used.
pub(super) fn audited_servers(
    target: ImportTarget<'_>,
    sources: &ReadServers,
) -> Result<AuditedServers, ConfigError> {
    let secrets = SecretsFile::of(&target.config.data_dir).read()?;
    let variables = target.process.environment.with_others(secrets);
    let known = KnownServers::new(target, None)?;
    // A configuration that cannot be extended gets no new upstreams.
    let import = ImportPlan::new(target, sources.clone(), ImportScope::Usual).ok();
    let mut all = AuditedServers {
        servers: Vec::new(),
        names: CalledNames::default(),
    };
    for upstream in target.config.upstreams().unwrap_or_default() {
        let name = all.add(AuditedServer {
            name: upstream.name.to_string(),
            upstream: Some(upstream.name.clone()),
            clients: Vec::new(),
            is_own: true,
            config: Ok(upstream.config.clone()),
        });
        all.names.add(upstream.name.as_str(), None, None, &name);
    }
    for merged in &sources.servers {
        let server = &merged.server;
        if server.nature == ServerNature::Riglm {
            for entry in &merged.entries {
                all.names.add_riglm(&entry.name);
            }
            if !server.is_disabled {
                all.add_clients_of_riglm(&merged.sources);
            }
        }
        if server.is_disabled || server.nature == ServerNature::Riglm {
            continue;
        }
        let audited = match known.upstream_of(server) {
            Some(upstream) => all.name_of(upstream),
            None => all.add(AuditedServer {
                name: server.name.clone(),
                upstream: import.as_ref().and_then(|import| import.name_of(server)),
                clients: Vec::new(),
                is_own: false,
                config: connection_to(server, &variables),
            }),
        };
        all.add_clients(&audited, &merged.sources);
        for entry in &merged.entries {
            let project = server.project.as_deref();
            (all.names).add(&entry.name, Some(&entry.source), project, &audited);
        }
    }
    Ok(all)
}

impl AuditedServers {
    /// Leaves out the servers that only other clients have. Their names stay, because two servers with
    /// one name are told apart by them.
    pub(super) fn retain_clients(&mut self, clients: &[TranscriptClient]) {
        self.servers.retain(|server| {
            let mut of_server = server.clients.iter();
            let is_of = |title: &String| clients.iter().any(|client| client.title() == title);
            server.is_own || of_server.any(is_of)
        });
    }

    /// Returns the name in the audit of an upstream of the configuration.
    fn name_of(&self, upstream: &UpstreamName) -> String {
        let mut own = self.servers.iter().filter(|server| server.is_own);
        let server = own.find(|server| server.upstream.as_ref() == Some(upstream));
        server.map_or_else(|| upstream.to_string(), |server| server.name.clone())
    }

    /// Adds clients that have riglm, and with it all its servers.
    fn add_clients_of_riglm(&mut self, clients: &[String]) {
        let own = self.servers.iter().filter(|server| server.is_own);
        let own: Vec<String> = own.map(|server| server.name.clone()).collect();
        for name in own {
            self.add_clients(&name, clients);
        }
    }

    /// Adds clients that have a server.
    fn add_clients(&mut self, name: &str, clients: &[String]) {
        if let Some(server) = self.servers.iter_mut().find(|it| it.name == name) {
            for client in clients {
                if !server.clients.contains(client) {
                    server.clients.push(client.clone());
                }
            }
        }
    }

    /// Adds a server, with a number if its name is taken. Returns its name.
    fn add(&mut self, server: AuditedServer) -> String {
        let is_taken = |name: &str| {
            let mut others = self.servers.iter();
            others.any(|other| comparable_name(&other.name) == comparable_name(name))
        };
        let mut name = server.name.clone();
        let mut number = 2;
        while is_taken(&name) {
            name = format!("{} ({number})", server.name);
            number += 1;
        }
        self.servers.push(AuditedServer {
            name: name.clone(),
            ..server
        });
        name
    }
}

impl AuditedServer {
    /// Returns the name with the program or the host.
    pub(super) fn description(&self) -> String {
        let Ok(config) = &self.config else {
            return self.name.clone();
        };
        let program = config.command.as_ref().and_then(|words| words.first());
        let host = config.url.as_deref().and_then(|url| {
            let url = url::Url::parse(url.strip_prefix("sse+").unwrap_or(url)).ok()?;
            url.host_str().map(str::to_owned)
        });
        match program.cloned().or(host) {
            Some(place) => format!("{} ({place})", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the server without its tools, because it is not to be started.
    pub(super) fn not_started(self) -> ServerTools {
        ServerTools {
            name: self.name,
            upstream: self.upstream,
            clients: self.clients,
            tools: Err(NOT_STARTED.into()),
        }
    }

    pub(super) async fn list(self, lister: &ServerLister<'_>) -> ServerTools {
        let name = UpstreamName::parse("audited");
        let tools = match (&self.config, name) {
            (Ok(config), Ok(name)) => lister
                .tools(&name, config)
                .await
                .map_err(|error| error_text(&error)),
            (Err(reason), _) => Err(reason.to_string()),
            (_, Err(error)) => Err(error.to_string()),
        };
        let counted = |tool: ListedTool| CountedTool {
            n_tokens: O200kTokenCounter.count(&tool.definition),
            tool,
        };
        ServerTools {
            name: self.name,
            upstream: self.upstream,
            clients: self.clients,
            tools: tools.map(|tools| tools.into_iter().map(counted).collect()),
        }
    }
}
