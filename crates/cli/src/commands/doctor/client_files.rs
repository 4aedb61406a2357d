//! Checks of the files of MCP clients.

use riglm_adapters_clients::configuration::{
    Client, ClientFile, ConfiguredServer, ConfiguredTransport, FileState, InstalledClient,
    ReadContext, ServerNature, ServerNote, installed_clients, read_servers, read_text,
};
use url::Url;

use super::configuration::loopback_url;
use super::finding::{Finding, Status, error_line};
use super::readable::Completeness;
use crate::commands::clients::defect;
use crate::commands::import::plan::{ImportTarget, KnownServers};
use crate::commands::user_clients::{UserClients, endpoint};

/// The name of the entry that `riglm install` makes.
const ENTRY: &str = "riglm";

/// Checks the files of all installed clients.
pub(super) fn check(
    target: ImportTarget<'_>,
    users: &UserClients,
    completeness: Completeness,
) -> Vec<Finding> {
    let checker = ClientChecker {
        target,
        users,
        // An error of the file of secrets is named with that file.
        known: KnownServers::new(target, None).ok(),
        home: users.home(),
        completeness,
    };
    let installed = installed_clients(&users.places);
    if installed.is_empty() {
        return vec![Finding::ok("clients", "no MCP client was found")];
    }
    installed.iter().flat_map(|it| checker.client(it)).collect()
}

struct ClientChecker<'a> {
    target: ImportTarget<'a>,
    users: &'a UserClients,
    /// The servers that riglm has, if the file of secrets can be read.
    known: Option<KnownServers<'a>>,
    home: String,
    completeness: Completeness,
}

/// The entries in a file of a client.
#[derive(Debug, Default)]
struct FileResult {
    findings: Vec<Finding>,
    /// The number of entries that are riglm, or have its name.
    n_own: usize,
    /// Whether one of these entries is riglm, and in use.
    uses_riglm: bool,
    /// The names of the servers in use that riglm has, too.
    doubles: Vec<String>,
}

/// The texts about a file of a client.
struct FileTexts {
    title: &'static str,
    path: String,
    /// The command that installs riglm there.
    install: String,
}

impl ClientChecker<'_> {
    fn client(&self, installed: &InstalledClient) -> Vec<Finding> {
        let client = installed.client;
        let mut findings = Vec::new();
        for managed in &installed.managed_files {
            findings.push(Finding::problem(
                "clients",
                format!(
                    "{} uses only the servers of {}, which an administrator manages",
                    client.title,
                    managed.display()
                ),
                "ask the administrator to add riglm there",
            ));
        }
        let (mut has_riglm, mut uses_riglm, mut doubles) = (false, false, Vec::new());
        for file in &installed.files {
            match &file.state {
                FileState::Missing => {}
                FileState::Unusable(error) => findings.push(Finding::problem(
                    "clients",
                    format!("{}: {}", client.title, error_line(error)),
                    "repair or remove the file",
                )),
                FileState::Present { .. } => {
                    let found = self.file(installed, file);
                    has_riglm |= found.n_own > 0;
                    uses_riglm |= found.uses_riglm;
                    doubles.extend(found.doubles);
                    findings.extend(found.findings);
                }
            }
        }
        // Without riglm in one of its files, the client has each server only once.
        if uses_riglm {
            findings.extend(doubles.iter().map(|name| double(name, client)));
        }
        // A file that cannot be read may have it.
        let is_unknown = (findings.iter()).any(|finding| finding.status == Status::Problem);
        if has_riglm && findings.is_empty() {
            findings.push(Finding::ok(
                "clients",
                format!("{} has riglm", client.title),
            ));
        } else if !has_riglm && !is_unknown {
            findings.push(Finding::warning(
                "clients",
                format!("{} does not have riglm", client.title),
                format!("riglm install --client {}", client.id),
            ));
        }
        findings
    }

    /// Returns the entries of riglm in a file, and their problems.
    fn file(&self, installed: &InstalledClient, file: &ClientFile) -> FileResult {
        let client = installed.client;
        let texts = FileTexts {
            title: client.title,
            path: file.path.display().to_string(),
            install: format!("riglm install --client {}", client.id),
        };
        let FileTexts { title, path, .. } = &texts;
        let context = ReadContext {
            home: &self.home,
            riglm: &self.users.riglm,
        };
        let servers = read_text(&file.path)
            .map_err(|error| error_line(&error))
            .and_then(|text| {
                read_servers(&text.text, client, context).map_err(|error| error_line(&error))
            });
        let servers = match servers {
            Ok(servers) => servers,
            Err(reason) => {
                let text = format!("{title}: {path}: {reason}");
                return FileResult {
                    findings: vec![Finding::problem("clients", text, "repair the file")],
                    ..FileResult::default()
                };
            }
        };
        let mut result = FileResult::default();
        let findings = &mut result.findings;
        findings.extend(servers.problems.iter().map(|problem| {
            let text = format!("{title}: {path}: {problem}");
            Finding::warning("clients", text, "edit the file")
        }));
        for server in &servers.servers {
            let is_used = !is_left_out(server);
            if server.nature == ServerNature::Riglm {
                result.n_own += 1;
                result.uses_riglm |= is_used;
                findings.extend(self.own_entry(server, &texts));
            } else if is_named_riglm(server) {
                // It counts as riglm, so that its own cure is the only one.
                result.n_own += 1;
                result.uses_riglm |= is_used && local_endpoint(&server.transport).is_some();
                findings.extend(self.foreign_entry(server, &texts));
            } else {
                findings.extend(skipped_entry(server, &texts));
                if self.is_double(server) {
                    result.doubles.push(server.name.clone());
                }
            }
        }
        if result.n_own > 1 {
            findings.push(Finding::warning(
                "clients",
                format!("{title} has riglm {} times ({path})", result.n_own),
                "remove all but one entry",
            ));
        }
        result
    }

    /// Checks an entry that is riglm.
    fn own_entry(&self, server: &ConfiguredServer, texts: &FileTexts) -> Vec<Finding> {
        let FileTexts { title, path, .. } = texts;
        let name = &server.name;
        let mut findings = Vec::new();
        if server.notes.contains(&ServerNote::SkippedByClient) {
            findings.push(Finding::problem(
                "clients",
                format!("{title} skips {name}, because its url has no type"),
                cure(server, texts),
            ));
        }
        if server.is_disabled {
            findings.push(Finding::problem(
                "clients",
                format!("riglm is switched off in {title} ({path})"),
                format!("switch {name} on there"),
            ));
        }
        let address = self.address(None);
        if let Some(defect) = defect(&server.transport, self.target.config, address.as_deref()) {
            findings.push(Finding::problem(
                "clients",
                format!("{name} of {title} {defect} ({path})"),
                cure(server, texts),
            ));
        }
        findings
    }

    /// Checks an entry with the name of riglm that `riglm install` neither made nor replaces.
    fn foreign_entry(&self, server: &ConfiguredServer, texts: &FileTexts) -> Option<Finding> {
        let FileTexts {
            title,
            path,
            install,
        } = texts;
        let name = &server.name;
        let by_hand = format!("rename or remove it there, then {install}");
        let Some(url) = local_endpoint(&server.transport) else {
            return Some(Finding::warning(
                "clients",
                format!("{name} of {title} is another server ({path})"),
                by_hand,
            ));
        };
        let address = self.address(profile_in(url).as_deref())?;
        Some(Finding::problem(
            "clients",
            format!("{name} of {title} has another address than {address} ({path})"),
            format!("set its address to {address} there; or {by_hand}"),
        ))
    }

    /// Returns whether a server that is not riglm is in use, and riglm has it, too.
    fn is_double(&self, server: &ConfiguredServer) -> bool {
        let is_used = server.project.is_none() && !is_left_out(server);
        is_used && (self.known.as_ref()).is_some_and(|known| known.has(server))
    }

    /// Returns the address for clients; `None` if it is unknown.
    fn address(&self, profile: Option<&str>) -> Option<String> {
        match self.completeness {
            Completeness::Whole | Completeness::Parts => endpoint(self.target.config, profile),
            Completeness::PartsWithoutAddress => None,
        }
    }
}

/// Returns the warning about a server that a client has itself and through riglm.
fn double(name: &str, client: &Client) -> Finding {
    let title = client.title;
    Finding::warning(
        "clients",
        format!("{title} has {name} itself and through riglm: its tools are listed twice"),
        format!("riglm install --client {} --replace", client.id),
    )
}

/// Returns the warning about an entry that is not riglm, and that the client skips.
fn skipped_entry(server: &ConfiguredServer, texts: &FileTexts) -> Option<Finding> {
    let FileTexts { title, path, .. } = texts;
    let name = &server.name;
    let is_skipped = server.notes.contains(&ServerNote::SkippedByClient);
    is_skipped.then(|| {
        Finding::warning(
            "clients",
            format!("{title} skips {name}, because its url has no type"),
            format!("add \"type\": \"http\" to {name} in {path}"),
        )
    })
}

/// Returns whether the client does not use an entry.
fn is_left_out(server: &ConfiguredServer) -> bool {
    server.is_disabled || server.notes.contains(&ServerNote::SkippedByClient)
}

/// Returns whether an entry has the name that `riglm install` needs.
fn is_named_riglm(server: &ConfiguredServer) -> bool {
    server.name == ENTRY && server.project.is_none()
}

/// Returns the command or the edit that renews an entry of riglm.
fn cure(server: &ConfiguredServer, texts: &FileTexts) -> String {
    let FileTexts { path, install, .. } = texts;
    let profile = match &server.transport {
        ConfiguredTransport::Url(url) => profile_in(&url.url),
        ConfiguredTransport::Command(_) | ConfiguredTransport::Unusable(_) => None,
    };
    let install = profile.map_or_else(
        || install.clone(),
        |profile| format!("{install} --profile {profile}"),
    );
    if is_named_riglm(server) {
        return install;
    }
    // An installation would leave it there, and add another one.
    format!("remove {} from {path}, then {install}", server.name)
}

/// Returns the URL of an entry that can be the endpoint of a proxy on this machine.
fn local_endpoint(transport: &ConfiguredTransport) -> Option<&str> {
    let ConfiguredTransport::Url(url) = transport else {
        return None;
    };
    let parsed = loopback_url(&url.url)?;
    let is_endpoint = parsed.path() == "/mcp" || parsed.path().starts_with("/mcp/");
    is_endpoint.then_some(url.url.as_str())
}

fn profile_in(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let profile = url.path().strip_prefix("/mcp/")?.trim_end_matches('/');
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (!profile.is_empty() && profile.chars().all(is_name)).then(|| profile.to_owned())
}
