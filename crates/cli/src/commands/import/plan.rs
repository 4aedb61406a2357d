//! The change of the configuration by an import: a preview first, then one write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{
    ConfiguredServer, ConfiguredTransport, DiffLine, LineRange, SourcedServer, merge_servers,
};
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_domain::id::UpstreamName;
use serde_json::{Value, json};

use super::super::init::{HEAD, check_upstreams, default_path};
use super::connection::{NoConnection, planned_connection};
use super::listen::{AddressChange, ListenChange, address_text};
use super::programs::missing_program;
use super::sections::{NewUpstream, SectionMaker, SkippedServer};
use super::sources::ReadServers;
use super::upstream_name;
use crate::args::ImportScope;
use crate::config::{
    Config, ConfigError, ConfigSource, Environment, Overrides, ProcessEnv, SecretsFile, TuningUse,
    Upstream, address as parse_address, comparison_key,
};
use crate::exit::WrongUsage;
use crate::output::printable;

/// A change of the configuration that has not been made yet.
#[derive(Debug)]
pub(crate) struct ImportPlan {
    /// The configuration file, which may be missing.
    pub(crate) file: PathBuf,
    /// The contents of the file now; `None` if it is missing.
    old: Option<String>,
    /// The change of the address of the proxy, if another one is wanted.
    listen: Option<AddressChange>,
    pub(crate) upstreams: Vec<NewUpstream>,
    pub(crate) skipped: Vec<SkippedServer>,
    /// Sentences about files.
    pub(crate) notes: Vec<String>,
    pub(crate) secrets: SecretsFile,
}

/// The configuration that an import adds to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImportTarget<'a> {
    pub(crate) config: &'a Config,
    pub(crate) process: &'a ProcessEnv,
    pub(crate) overrides: &'a Overrides,
}

impl ImportPlan {
    /// Plans to add servers to the configuration.
    ///
    /// # Errors
    ///
    /// Returns [`WrongUsage`] for a configuration file that cannot be extended.
    pub(crate) fn new(
        target: ImportTarget<'_>,
        servers: ReadServers,
        scope: ImportScope,
    ) -> anyhow::Result<Self> {
        let source = ConfigSource::new(target.overrides.clone(), target.process.clone());
        let file = match source.file() {
            Some(file) => file,
            None => default_path(target.process)?,
        };
        let old = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("failed to read {}", file.display()));
            }
        };
        if file
            .extension()
            .is_some_and(|extension| extension != "toml")
        {
            let text = format!(
                "{} is not TOML: use --config with another file, or --dry-run and add the sections \
                 by hand",
                file.display()
            );
            return Err(WrongUsage(text).into());
        }
        let secrets = SecretsFile::of(&target.config.data_dir);
        let known = target.process.environment.with_others(secrets.read()?);
        let listen = listen_change(target, old.as_deref(), &file, &known)?;
        let variables = known.all().keys().cloned().collect();
        let existing = target.config.upstreams().unwrap_or_default();
        let names = existing.iter().map(|upstream| &upstream.name);
        let mut maker = SectionMaker::new(names, variables, scope);
        let (mut upstreams, mut skipped) = (Vec::new(), Vec::new());
        for merged in &servers.servers {
            if let Some(same) = existing
                .iter()
                .find(|upstream| is_same(upstream, &merged.server, &known))
            {
                skipped.push(SkippedServer {
                    name: merged.server.name.clone(),
                    sources: merged.sources.clone(),
                    reason: format!("it is in the configuration already, as {}", same.name),
                });
                continue;
            }
            let unset = unset_variables(&merged.server, &known);
            if !unset.is_empty() && maker.exclusion(&merged.server).is_none() {
                skipped.push(SkippedServer {
                    name: merged.server.name.clone(),
                    sources: merged.sources.clone(),
                    reason: unset_text(&unset, &merged.server, &secrets),
                });
                continue;
            }
            match maker.upstream(merged) {
                Ok(mut upstream) => {
                    let missing = missing_program(&merged.server, &known);
                    upstream.notes.extend(missing.map(|program| {
                        format!(
                            "the program {program} was not found, so riglm cannot start it: \
                             install it, or write its absolute path; until then, --replace leaves \
                             the server in its clients"
                        )
                    }));
                    upstreams.push(upstream);
                }
                Err(left_out) => skipped.push(left_out),
            }
        }
        Ok(Self {
            file,
            old,
            listen,
            upstreams,
            skipped,
            notes: servers.notes,
            secrets,
        })
    }

    /// Returns the name that a server of a client gets; `None` if it is left out.
    pub(crate) fn name_of(&self, server: &ConfiguredServer) -> Option<UpstreamName> {
        let new = self.upstreams.iter().find(|new| new.server == *server)?;
        Some(new.name.clone())
    }

    /// Returns whether the file would change.
    pub(crate) fn is_change(&self) -> bool {
        self.changes_address() || !self.upstreams.is_empty()
    }

    /// Returns whether the address of the proxy would change in the file.
    pub(crate) fn changes_address(&self) -> bool {
        self.listen.is_some()
    }

    /// Returns the lines that are added at the end of the file: the new sections, after the head if
    /// the file is new. Returns an empty text without new sections.
    fn addition(&self) -> String {
        let listen = self.listen.as_ref().map(|change| change.edit.section());
        let listen = listen.filter(|section| !section.is_empty());
        let sections = (self.upstreams.iter()).map(|upstream| upstream.section.clone());
        let sections: Vec<String> = listen.into_iter().chain(sections).collect();
        if sections.is_empty() {
            return String::new();
        }
        let head = if self.old.is_none() { HEAD } else { "" };
        format!("{head}\n{}", sections.join("\n"))
    }

    /// Returns the change of the file as a diff, and the names of the new secrets; `None` if there is
    /// nothing to change. The lines around are left out, because they may have secrets.
    pub(crate) fn preview(&self) -> Option<String> {
        if !self.is_change() {
            return None;
        }
        let file = self.file.display();
        let mut lines = vec![format!("--- {file}"), format!("+++ {file}")];
        let n_old = self.old.as_deref().unwrap_or_default().lines().count();
        let mut n_new = n_old;
        let edit = self.listen.as_ref().map(|change| &change.edit);
        if let Some(ListenChange::Line { n_before, old, new }) = edit {
            let (n_replaced, n_added) = (usize::from(old.is_some()), 1);
            let place = DiffLine::Header {
                old: LineRange::of(&(*n_before..n_before + n_replaced)),
                new: LineRange::of(&(*n_before..n_before + n_added)),
            };
            lines.push(place.to_string());
            lines.extend(old.iter().map(|line| format!("-{}", printable(line))));
            lines.push(format!("+{}", printable(new)));
            n_new += n_added - n_replaced;
        }
        let addition = self.addition();
        if !addition.is_empty() {
            let place = DiffLine::Header {
                old: LineRange::of(&(n_old..n_old)),
                new: LineRange::of(&(n_new..n_new + addition.lines().count())),
            };
            lines.push(place.to_string());
            let added = addition.lines();
            lines.extend(added.map(|line| format!("+{}", printable(line))));
        }
        let names: Vec<String> = self.new_secrets().into_keys().collect();
        if !names.is_empty() {
            let file = self.secrets.path().display();
            lines.push(format!("{file}: {}", names.join(", ")));
        }
        Some(lines.join("\n"))
    }

    /// Returns the new values of the file of secrets.
    fn new_secrets(&self) -> BTreeMap<String, String> {
        let all = self.upstreams.iter().flat_map(|upstream| &upstream.secrets);
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Returns the sentences for people.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self.notes.iter().map(|note| printable(note)).collect();
        for upstream in &self.upstreams {
            for note in &upstream.notes {
                remarks.push(format!("{}: {}", upstream.name, printable(note)));
            }
        }
        for skipped in &self.skipped {
            remarks.push(format!(
                "{} of {} was left out: {}",
                printable(&skipped.name),
                printable(&skipped.sources.join(", ")),
                printable(&skipped.reason)
            ));
        }
        remarks
    }

    /// Returns the plan as JSON, without secrets.
    pub(crate) fn as_json(&self) -> Value {
        let upstreams = self.upstreams.iter().map(|upstream| {
            json!({
                "name": upstream.name,
                "from": upstream.sources,
                "secrets": upstream.secrets.keys().collect::<Vec<_>>(),
                "notes": upstream.notes,
            })
        });
        let skipped = self.skipped.iter().map(|skipped| {
            json!({"name": skipped.name, "from": skipped.sources, "reason": skipped.reason})
        });
        let addition = Some(self.addition()).filter(|added| !added.is_empty());
        let listen = self.listen.as_ref().map(AddressChange::as_json);
        json!({
            "file": self.file.display().to_string(),
            "listen": listen,
            "added": addition,
            "secrets": {
                "file": self.secrets.path().display().to_string(),
                "names": self.new_secrets().into_keys().collect::<Vec<_>>(),
            },
            "upstreams": upstreams.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    /// Writes the secrets and the configuration. Both are checked first.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since the plan, if the new configuration cannot be
    /// loaded, and the error of writing.
    pub(crate) fn apply(&self, target: ImportTarget<'_>) -> anyhow::Result<()> {
        if !self.is_change() {
            return Ok(());
        }
        let mut text = self.old.clone().unwrap_or_default();
        if let Some(listen) = &self.listen {
            text = listen.edit.apply_to(&text);
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&self.addition());
        let directory = self.file.parent().unwrap_or(Path::new("."));
        let failed = || format!("failed to write {}", self.file.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        // Created with mode 0600.
        let mut new = tempfile::Builder::new()
            .prefix(".riglm-")
            .suffix(".toml")
            .tempfile_in(directory)
            .with_context(failed)?;
        new.write_all(text.as_bytes()).with_context(failed)?;
        new.as_file().sync_all().with_context(failed)?;
        self.check(target, new.path())?;
        if std::fs::read_to_string(&self.file).ok() != self.old {
            anyhow::bail!("{} has changed since the preview", self.file.display());
        }
        self.secrets.add(&self.new_secrets())?;
        if let Ok(metadata) = self.file.metadata() {
            let permissions = metadata.permissions();
            new.as_file()
                .set_permissions(permissions)
                .with_context(failed)?;
        }
        // A symbolic link stays one.
        let place = self.file.canonicalize().unwrap_or(self.file.clone());
        new.persist(place).with_context(failed)?;
        Ok(())
    }

    /// Checks that the new file can be loaded with the new secrets, and that its upstreams can be
    /// used.
    fn check(&self, target: ImportTarget<'_>, new: &Path) -> Result<(), ConfigError> {
        let overrides = Overrides {
            file: Some(new.to_owned()),
            data_dir: Some(target.config.data_dir.clone()),
            ..target.overrides.clone()
        };
        let mut process = target.process.clone();
        process.environment = process.environment.with_others(self.new_secrets());
        let loaded = ConfigSource::new(overrides, process).load(TuningUse::IfSound);
        let named = |error: ConfigError| {
            // The temporary file is an unfamiliar name.
            error.with_path(new, &self.file)
        };
        check_upstreams(&loaded.map_err(named)?.config)
    }
}

/// Returns the change of the file that gives the proxy the address of the command line; `None` if
/// there is none, or if the file has that address. `known` replaces references in the file.
fn listen_change(
    target: ImportTarget<'_>,
    old: Option<&str>,
    file: &Path,
    known: &Environment,
) -> Result<Option<AddressChange>, WrongUsage> {
    let Some(address) = target.overrides.listen else {
        return Ok(None);
    };
    let old = old.unwrap_or_default();
    let present = address_text(old);
    let present = present.unwrap_or_else(|| ListenConfig::default().address.to_string());
    let expanded = known.expand(&present).ok();
    let in_use = expanded.and_then(|text| parse_address(&text).ok());
    if in_use == Some(address) {
        return Ok(None);
    }
    let edit = ListenChange::of(old, address).ok_or_else(|| {
        WrongUsage(format!(
            "{} has listen.address in a form that is not changed automatically: write {address} \
             there",
            file.display()
        ))
    })?;
    Ok(Some(AddressChange {
        old: present,
        new: address,
        edit,
    }))
}

/// Returns the variables that a server refers to and that are not set. A configuration that refers
/// to them cannot be loaded.
fn unset_variables(server: &ConfiguredServer, known: &Environment) -> BTreeSet<String> {
    let mut texts: Vec<&String> = Vec::new();
    match &server.transport {
        ConfiguredTransport::Command(command) => {
            texts.push(&command.program);
            texts.extend(command.args.iter().chain(command.env.values()));
            texts.extend(&command.cwd);
        }
        ConfiguredTransport::Url(url) => {
            texts.push(&url.url);
            texts.extend(url.headers.values().chain(&url.bearer));
            let oauth = url.oauth.iter();
            texts.extend(oauth.flat_map(|it| it.client_id.iter().chain(&it.client_secret)));
        }
        ConfiguredTransport::Unusable(_) => {}
    }
    let unset = texts.into_iter().flat_map(|text| known.unset_in(text));
    unset.collect()
}

/// Returns the sentence about variables that are not set, with what is known about them.
fn unset_text(
    unset: &BTreeSet<String>,
    server: &ConfiguredServer,
    secrets: &SecretsFile,
) -> String {
    let names: Vec<&str> = unset.iter().map(String::as_str).collect();
    let (verb, object) = if names.len() == 1 {
        ("is", "it")
    } else {
        ("are", "them")
    };
    let mut text = format!(
        "{} {verb} not set: write {object} to {}, then import again",
        names.join(", "),
        secrets.path().display()
    );
    for note in &server.notes {
        // The notes about what is missing say where its value is.
        let note = note.to_string();
        if names.iter().any(|name| note.contains(name)) {
            let _ = write!(text, " ({note})");
        }
    }
    text
}

/// The servers that riglm has: those in the configuration, and those that an import adds.
#[derive(Debug)]
pub(crate) struct KnownServers<'a> {
    upstreams: &'a [Upstream],
    import: Option<&'a ImportPlan>,
    variables: Environment,
}

impl<'a> KnownServers<'a> {
    /// Returns the servers of the configuration, and those of a planned import.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the file of secrets cannot be used.
    pub(crate) fn new(
        target: ImportTarget<'a>,
        import: Option<&'a ImportPlan>,
    ) -> Result<Self, ConfigError> {
        let secrets = SecretsFile::of(&target.config.data_dir).read()?;
        Ok(Self {
            upstreams: target.config.upstreams().unwrap_or_default(),
            import,
            variables: target.process.environment.with_others(secrets),
        })
    }

    /// Returns whether riglm has the tools of a server of a client. It has none if the program of the
    /// server is not found.
    pub(crate) fn has(&self, server: &ConfiguredServer) -> bool {
        self.upstream_of(server).is_some() && missing_program(server, &self.variables).is_none()
    }

    pub(crate) fn upstream_of(&self, server: &ConfiguredServer) -> Option<&'a UpstreamName> {
        let own = self.own(server).map(|upstream| &upstream.name);
        own.or_else(|| self.new_upstream(server).map(|new| &new.name))
    }

    /// Returns the upstream that a server of a client is, and the connection to it.
    pub(crate) fn connection_to(
        &self,
        server: &ConfiguredServer,
    ) -> Option<(&'a UpstreamName, Result<UpstreamConfig, NoConnection>)> {
        if let Some(own) = self.own(server) {
            return Some((&own.name, Ok(own.config.clone())));
        }
        let new = self.new_upstream(server)?;
        let connection = planned_connection(&new.name, &new.server, &self.variables);
        Some((&new.name, connection))
    }

    /// Returns the upstream of the configuration that a server of a client is.
    fn own(&self, server: &ConfiguredServer) -> Option<&'a Upstream> {
        let own = self.upstreams.iter();
        let own = own.filter(|upstream| is_same(upstream, server, &self.variables));
        // Of several with the same program and variables, the one with the same name.
        own.max_by_key(|upstream| has_name(upstream, server))
    }

    /// Returns the planned upstream that a server of a client becomes.
    fn new_upstream(&self, server: &ConfiguredServer) -> Option<&'a NewUpstream> {
        let is_it = |new: &&NewUpstream| {
            let both = [&new.server, server].map(|server| SourcedServer {
                source: String::new(),
                server: server.clone(),
            });
            merge_servers(both).len() == 1
        };
        let import = self.import?;
        import.upstreams.iter().find(is_it)
    }
}

/// Returns whether an upstream is the server: by its command line, or by its address without the
/// query, and in addition by its name or by its variables or the whole address, because two accounts
/// may differ in them alone. `variables` replace the references of the server.
fn is_same(upstream: &Upstream, server: &ConfiguredServer, variables: &Environment) -> bool {
    let expanded = |text: &String| variables.expand(text).unwrap_or_else(|_| text.clone());
    let bare = |url: &str| {
        let end = url.find(['?', '#']).unwrap_or(url.len());
        url[..end].trim_end_matches('/').to_owned()
    };
    let has_name = has_name(upstream, server);
    match &server.transport {
        ConfiguredTransport::Command(command) => {
            let words = std::iter::once(&command.program).chain(&command.args);
            let words: Vec<String> = words.map(expanded).collect();
            let env = command.env.iter();
            let env: BTreeMap<String, String> = env
                .map(|(name, value)| (name.clone(), expanded(value)))
                .collect();
            upstream.config.command.as_ref() == Some(&words)
                && (has_name || upstream.config.env == env)
        }
        ConfiguredTransport::Url(url) => upstream.config.url.as_deref().is_some_and(|known| {
            let known = known.strip_prefix("sse+").unwrap_or(known);
            let url = expanded(&url.url);
            bare(known) == bare(&url) && (has_name || known == url)
        }),
        ConfiguredTransport::Unusable(_) => false,
    }
}

/// Returns whether an upstream has the name of a server, as an import would write it.
fn has_name(upstream: &Upstream, server: &ConfiguredServer) -> bool {
    upstream_name(&server.name)
        .is_some_and(|name| comparison_key(&name) == comparison_key(&upstream.name))
}
