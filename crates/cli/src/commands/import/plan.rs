//! The change of the configuration by an import: a preview first, then one write.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{
    ConfiguredServer, ConfiguredTransport, DiffLine, SourcedServer, merge_servers,
};
use riglm_adapters_mcp::upstream::connector;
use riglm_domain::id::UpstreamName;
use serde_json::{Value, json};

use super::super::init::{HEAD, default_path};
use super::programs::missing_program;
use super::sections::{NewUpstream, SectionMaker, SkippedServer};
use super::sources::ReadServers;
use super::upstream_name;
use crate::args::ImportScope;
use crate::config::{
    Config, ConfigError, ConfigSource, Environment, Overrides, ProcessEnv, SecretsFile, TuningUse,
    Upstream, comparison_key,
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

    /// Returns the lines that are added to the file: the new sections, after the head if the file is
    /// new.
    fn addition(&self) -> String {
        let sections: Vec<&str> = (self.upstreams.iter())
            .map(|upstream| upstream.section.as_str())
            .collect();
        let head = if self.old.is_none() { HEAD } else { "" };
        format!("{head}\n{}", sections.join("\n"))
    }

    /// Returns the change of the file as a diff, and the names of the new secrets; `None` if there is
    /// nothing to add. The lines around are left out, because they may have secrets.
    pub(crate) fn preview(&self) -> Option<String> {
        if self.upstreams.is_empty() {
            return None;
        }
        let file = self.file.display();
        let first = self.old.as_deref().unwrap_or_default().lines().count() + 1;
        let place = DiffLine::Header {
            old: first,
            new: first,
        };
        let mut lines = vec![
            format!("--- {file}"),
            format!("+++ {file}"),
            place.to_string(),
        ];
        let addition = self.addition();
        let added = addition.lines();
        lines.extend(added.map(|line| format!("+{}", printable(line))));
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
                skipped.sources.join(", "),
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
        let addition = (!self.upstreams.is_empty()).then(|| self.addition());
        json!({
            "file": self.file.display().to_string(),
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
        if self.upstreams.is_empty() {
            return Ok(());
        }
        let mut text = self.old.clone().unwrap_or_default();
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
        let config = loaded.map_err(named)?.config;
        for Upstream {
            name,
            config: section,
        } in config.upstreams().unwrap_or_default()
        {
            connector(name.clone(), section, None, &config.data_dir)
                .map_err(|error| ConfigError::unusable(name, &error))?;
        }
        Ok(())
    }
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

    /// Returns the upstream that a server of a client is.
    pub(crate) fn upstream_of(&self, server: &ConfiguredServer) -> Option<&'a UpstreamName> {
        let is_new = |new: &&NewUpstream| {
            let both = [&new.server, server].map(|server| SourcedServer {
                source: String::new(),
                server: server.clone(),
            });
            merge_servers(both).len() == 1
        };
        let own = self.upstreams.iter();
        let own = own.filter(|upstream| is_same(upstream, server, &self.variables));
        // Of several with the same program and variables, the one with the same name.
        let own = own.max_by_key(|upstream| has_name(upstream, server));
        let own = own.map(|upstream| &upstream.name);
        own.or_else(|| {
            let mut new = self.import.iter().flat_map(|import| &import.upstreams);
            new.find(is_new).map(|new| &new.name)
        })
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
