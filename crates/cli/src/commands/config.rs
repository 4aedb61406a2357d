//! `riglm config`: check, show, hash-key.

use std::io::BufRead;

use anyhow::Context;
use riglm_adapters_mcp::upstream::connector;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::key_digest::KeyDigest;

use crate::args::{ConfigCheckArgs, ConfigCommand, ConfigShowArgs};
use crate::config::{
    Config, ConfigEntry, ConfigError, ConfigSource, LoadedConfig, ProcessEnv, TuningUse, show,
};
use crate::output::{note, print, printable, with_causes};

// More than any valid key.
const MAX_KEY_BYTES: u64 = 65_536;

pub(super) fn run(command: &ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check(arguments) => check(arguments),
        ConfigCommand::Show(arguments) => print_all(arguments),
        ConfigCommand::HashKey => print_hash(std::io::stdin().lock()),
    }
}

/// Checks the configuration like `serve`, and names the file.
fn check(arguments: &ConfigCheckArgs) -> anyhow::Result<()> {
    let source = ConfigSource::new(arguments.places.overrides(), ProcessEnv::of_process()?);
    let file = source.file();
    let checked = source
        .load(TuningUse::IfSound)
        .map_err(ConfigError::parts)
        .and_then(|loaded| match unusable_upstreams(&loaded.config) {
            unusable if unusable.is_empty() => Ok(loaded),
            unusable => Err(unusable),
        });
    let (loaded, errors) = match checked {
        Ok(loaded) => (Some(loaded), Vec::new()),
        Err(errors) => (None, errors),
    };
    let remarks = loaded.as_ref().map(remarks).unwrap_or_default();
    for remark in &remarks {
        note(remark);
    }
    note(&match &file {
        Some(file) => printable(&format!("configuration file: {}", file.display())),
        None => "no configuration file: only defaults, environment and command line".into(),
    });
    if arguments.format.is_json() {
        let upstreams = loaded.as_ref().map(|loaded| {
            let upstreams = loaded.config.upstreams().unwrap_or_default().iter();
            upstreams.map(|upstream| upstream.name.clone()).collect()
        });
        let upstreams: Vec<UpstreamName> = upstreams.unwrap_or_default();
        let json = serde_json::json!({
            "ok": errors.is_empty(),
            // A path need not be valid Unicode.
            "file": file.map(|file| file.display().to_string()),
            "upstreams": upstreams,
            "errors": errors.iter().map(|error| with_causes(error)).collect::<Vec<_>>(),
            "warnings": remarks,
        });
        print(&json.to_string())?;
    }
    if !errors.is_empty() {
        return Err(ConfigError::all(errors).into());
    }
    if !arguments.format.is_json() {
        print("ok")?;
    }
    Ok(())
}

/// Returns the warnings for a valid configuration.
fn remarks(loaded: &LoadedConfig) -> Vec<String> {
    let mut remarks: Vec<String> = ignored_tuning_warning(loaded).into_iter().collect();
    remarks.extend(without_effect(loaded));
    if loaded.config.upstreams().is_err() {
        remarks
            .push("no upstream is configured: `riglm serve` needs one on its command line".into());
    }
    remarks
}

/// Returns the errors of upstreams. It creates the connector of each, like `serve`, without
/// connecting.
fn unusable_upstreams(config: &Config) -> Vec<ConfigError> {
    let upstreams = config.upstreams().unwrap_or_default().iter();
    let unusable = upstreams.filter_map(|upstream| {
        let name = &upstream.name;
        let made = connector(name.clone(), &upstream.config, None, &config.data_dir);
        made.err().map(|error| ConfigError::unusable(name, &error))
    });
    unusable.collect()
}

fn print_all(arguments: &ConfigShowArgs) -> anyhow::Result<()> {
    let (overrides, surroundings) = (arguments.places.overrides(), ProcessEnv::of_process()?);
    let shown = show(&overrides, &surroundings)?;
    if let Ok(loaded) = ConfigSource::new(overrides, surroundings).load(TuningUse::IfSound) {
        ignored_tuning_warning(&loaded).as_deref().map(note);
    }
    let text = if arguments.format.is_json() {
        shown
            .iter()
            .map(as_json)
            .collect::<serde_json::Value>()
            .to_string()
    } else {
        shown.iter().map(as_line).collect::<Vec<_>>().join("\n")
    };
    Ok(print(&text)?)
}

/// Returns a warning if the tuning file is ignored.
fn ignored_tuning_warning(loaded: &LoadedConfig) -> Option<String> {
    let reason = loaded.ignored.as_ref()?;
    Some(printable(&format!(
        "tuning ignored, because it is invalid: {reason}"
    )))
}

/// Returns warnings for keys of upstreams that have no effect.
fn without_effect(loaded: &LoadedConfig) -> Vec<String> {
    let key = "max_connections";
    let upstreams = loaded.config.upstreams().unwrap_or_default().iter();
    let without = upstreams.filter(|upstream| {
        let name = upstream.name.as_str();
        !upstream.config.bounds_connections() && loaded.sets_upstream_key(name, key)
    });
    let remarks = without.map(|upstream| {
        printable(&format!(
            "upstream {}: {key} has no effect: it needs a command and isolation = \"per_session\"",
            upstream.name
        ))
    });
    remarks.collect()
}

fn as_json(shown: &ConfigEntry) -> serde_json::Value {
    serde_json::json!({"key": shown.key, "value": shown.value, "origin": shown.origin})
}

/// Returns a line of TOML with the source of the value as a comment.
fn as_line(shown: &ConfigEntry) -> String {
    let key: Vec<String> = shown.key.split('.').map(toml_key_part).collect();
    let line = format!("{} = {}  # {}", key.join("."), shown.value, shown.origin);
    printable(&line)
}

/// Returns a part of a key in TOML syntax: bare if its characters allow it.
fn toml_key_part(part: &str) -> String {
    let is_bare = !part.is_empty()
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare {
        part.into()
    } else {
        serde_json::Value::from(part).to_string()
    }
}

fn print_hash(input: impl BufRead) -> anyhow::Result<()> {
    let line = input
        .take(MAX_KEY_BYTES)
        .lines()
        .next()
        .transpose()
        .context("failed to read the key from standard input")?
        .unwrap_or_default();
    let digest = KeyDigest::of(line.trim_end_matches('\r'))?;
    Ok(print(&digest.to_string())?)
}
