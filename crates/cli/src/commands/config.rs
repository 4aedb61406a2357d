//! `riglm config`: check, show, hash-key.

use std::io::BufRead;

use anyhow::Context;
use riglm_adapters_mcp::upstream::connector;

use crate::args::{ConfigCommand, ConfigShowArgs, Places};
use riglm_domain::key_digest::KeyDigest;

use crate::config::{ConfigSource, Loaded, Shown, Surroundings, TuningUse, show};
use crate::output::{note, print, printable};

/// More than any key has.
const MAX_KEY_BYTES: u64 = 65_536;

/// Does what the arguments ask for.
pub(super) fn run(command: &ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check(places) => check(places),
        ConfigCommand::Show(arguments) => print_all(arguments),
        ConfigCommand::HashKey => print_hash(std::io::stdin().lock()),
    }
}

fn check(places: &Places) -> anyhow::Result<()> {
    let source = ConfigSource::new(places.overrides(), Surroundings::of_process()?);
    let loaded = source.load(TuningUse::IfSound)?;
    note_ignored(&loaded);
    note_without_effect(&loaded);
    let config = loaded.config;
    let upstreams = config.upstreams().unwrap_or_default();
    if upstreams.is_empty() {
        note("no upstream is configured: serve needs one on its command line");
    }
    for upstream in upstreams {
        // What serve would make of the upstream shows whether it can be used.
        connector(
            upstream.name.clone(),
            &upstream.config,
            None,
            &config.data_dir,
        )
        .with_context(|| format!("failed to use upstream {}", upstream.name))?;
    }
    Ok(print("ok")?)
}

fn print_all(arguments: &ConfigShowArgs) -> anyhow::Result<()> {
    let (overrides, surroundings) = (arguments.places.overrides(), Surroundings::of_process()?);
    let shown = show(&overrides, &surroundings)?;
    if let Ok(loaded) = ConfigSource::new(overrides, surroundings).load(TuningUse::IfSound) {
        note_ignored(&loaded);
    }
    let text = if arguments.json {
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

fn note_ignored(loaded: &Loaded) {
    if let Some(reason) = &loaded.ignored {
        note(&printable(&format!(
            "what was tuned is ignored, since it cannot be used: {reason}"
        )));
    }
}

/// Says which keys of upstreams are set and have no effect.
fn note_without_effect(loaded: &Loaded) {
    for upstream in loaded.config.upstreams().unwrap_or_default() {
        let name = upstream.name.as_str();
        let key = "max_connections";
        if !upstream.config.bounds_connections() && loaded.sets_upstream_key(name, key) {
            note(&printable(&format!(
                "upstream {name}: {key} has no effect, since it counts processes of a command with \
                 isolation = \"per_session\""
            )));
        }
    }
}

fn as_json(shown: &Shown) -> serde_json::Value {
    serde_json::json!({"key": shown.key, "value": shown.value, "origin": shown.origin})
}

/// Returns a line of TOML that says where its value comes from.
fn as_line(shown: &Shown) -> String {
    let key: Vec<String> = shown.key.split('.').map(quoted).collect();
    let line = format!("{} = {}  # {}", key.join("."), shown.value, shown.origin);
    printable(&line)
}

/// Returns a part of a key as TOML has it: bare where its characters allow that.
fn quoted(part: &str) -> String {
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
