//! `riglm init`: the first configuration file.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use riglm_adapters_mcp::upstream::connector;
use serde_json::json;

use super::import::quote;
use crate::args::InitArgs;
use crate::config::{
    Config, ConfigError, ConfigSource, Overrides, ProcessEnv, TuningUse, Upstream, UpstreamChoice,
};
use crate::exit::WrongUsage;
use crate::output::{note, print};

/// The beginning of the file.
pub(super) const HEAD: &str = "\
# The configuration of riglm. All keys, with their defaults: docs/configuration.md.
# Values may refer to variables as ${NAME}: of the environment, or of secrets.env in the data directory.

[filtering]
# none: lists have all tools. prediction: lists have the tools that a session will probably need, and
# a search tool for the others.
strategy = \"prediction\"
";

/// The upstreams of a file for which none were named.
const EXAMPLES: &str = "
# One section for each MCP server. Its tools are shown as NAME__TOOL.
# [upstreams.files]
# command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv/files\"]

# [upstreams.tracker]
# url = \"https://tracker.example.com/mcp\"
# credentials = { type = \"bearer\", token = \"${TRACKER_TOKEN}\" }
";

/// Writes the file, and prints its path.
///
/// # Errors
///
/// Returns [`WrongUsage`] if there is a configuration already, or if the upstreams are not usable.
pub(super) fn run(process: &ProcessEnv, arguments: &InitArgs) -> anyhow::Result<()> {
    let path = path(process, arguments)?;
    let text = text(arguments);
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("failed to create {}", directory.display()))?;
    }
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut file = created.map_err(|error| -> anyhow::Error {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return WrongUsage(format!("{} exists already", path.display())).into();
        }
        anyhow::Error::new(error).context(format!("failed to create {}", path.display()))
    })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("failed to write {}", path.display()))?;
    let overrides = Overrides {
        file: Some(path.clone()),
        ..arguments.places.overrides()
    };
    if let Err(error) = check(overrides, process) {
        // An unusable upstream on the command line: nothing must be left that fails at the start.
        let _ = std::fs::remove_file(&path);
        return Err(error.into());
    }
    if arguments.format.is_json() {
        print(&json!({"file": path.display().to_string()}).to_string())?;
    } else {
        print(&path.display().to_string())?;
        note(
            "next: riglm import --from CLIENT to use the servers of a client, or edit the file; then riglm serve",
        );
    }
    Ok(())
}

/// Checks that the new file can be loaded, and that its upstreams can be used.
fn check(overrides: Overrides, process: &ProcessEnv) -> Result<(), ConfigError> {
    let loaded = ConfigSource::new(overrides, process.clone()).load(TuningUse::IfSound)?;
    check_upstreams(&loaded.config)
}

/// Checks that the upstreams of a configuration can be used.
pub(super) fn check_upstreams(config: &Config) -> Result<(), ConfigError> {
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

fn path(process: &ProcessEnv, arguments: &InitArgs) -> anyhow::Result<PathBuf> {
    if let Some(file) = &arguments.places.config {
        return Ok(file.clone());
    }
    let source = ConfigSource::new(arguments.places.overrides(), process.clone());
    if let Some(file) = source.file() {
        let text = format!("there is a configuration already: {}", file.display());
        return Err(WrongUsage(text).into());
    }
    Ok(default_path(process)?)
}

/// Returns the path of a new file in the configuration directory of the user.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a user without one.
pub(super) fn default_path(process: &ProcessEnv) -> Result<PathBuf, WrongUsage> {
    let directory = process.config_directory.as_ref().ok_or_else(|| {
        WrongUsage("this user has no configuration directory: name a file with --config".into())
    })?;
    Ok(directory.join("riglm").join("riglm.toml"))
}

fn text(arguments: &InitArgs) -> String {
    let choice = if !arguments.command.is_empty() {
        UpstreamChoice::Command(arguments.command.clone())
    } else if !arguments.upstream.is_empty() {
        UpstreamChoice::Urls(arguments.upstream.clone())
    } else {
        return format!("{HEAD}{EXAMPLES}");
    };
    let mut text = HEAD.to_owned();
    let literal = |value: &str| quote(&value.replace("${", "$${"));
    for (position, name) in choice.names().iter().enumerate() {
        let value = match &choice {
            UpstreamChoice::Command(words) => {
                let words: Vec<String> = words.iter().map(|word| literal(word)).collect();
                format!("command = [{}]", words.join(", "))
            }
            UpstreamChoice::Urls(urls) => format!("url = {}", literal(&urls[position])),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[upstreams.{}]\n{value}\n", quote(name));
    }
    text
}
