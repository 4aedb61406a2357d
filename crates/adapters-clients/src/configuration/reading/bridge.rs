//! Programs that do nothing but connect to an address, such as `npx mcp-remote URL`.

use std::collections::BTreeMap;

use super::variables::{TextTranslator, is_name};
use crate::configuration::identity::{base_name, without_version};
use crate::configuration::server::{ConfiguredCommand, ConfiguredUrl, ServerNote};

/// The bridges that are replaced by the address behind them.
const BRIDGES: [&str; 2] = ["mcp-remote", "mcp-proxy"];

/// A command line before its texts are translated, with a translated environment.
pub(super) struct CommandLine<'a> {
    pub(super) words: &'a [String],
    pub(super) command: &'a ConfiguredCommand,
}

/// Returns the address that a command line is a bridge to.
pub(super) fn bridge_target(
    line: &CommandLine<'_>,
    translator: &mut TextTranslator<'_>,
) -> Option<ConfiguredUrl> {
    let (at, bridge) = line.words.iter().enumerate().find_map(|(at, word)| {
        let name = without_version(word);
        let base = base_name(name);
        let bridge = BRIDGES.into_iter().find(|bridge| base == *bridge)?;
        Some((at, bridge))
    })?;
    let rest = &line.words[at + 1..];
    let is_address = |word: &&String| word.starts_with("http://") || word.starts_with("https://");
    let url = rest.iter().find(is_address)?;
    let mut target = ConfiguredUrl {
        url: translator.translate(url, "args"),
        // The default of the program.
        is_sse: bridge == "mcp-proxy",
        ..ConfiguredUrl::default()
    };
    let env = &line.command.env;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        match flag {
            "--header" | "--headers" | "-H" => {
                let Some(value) = value.or_else(|| words.next().cloned()) else {
                    break;
                };
                let (name, value) = match value.split_once(':') {
                    Some((name, value)) => (name.to_owned(), value.trim().to_owned()),
                    // Some take the name and the value as two words.
                    None => match words.next() {
                        Some(second) => (value, second.clone()),
                        None => break,
                    },
                };
                let value = substitute(&value, env, translator);
                target.headers.insert(name.trim().to_owned(), value);
            }
            "--transport" => {
                let value = value.or_else(|| words.next().cloned());
                target.is_sse = value.is_some_and(|value| value.starts_with("sse"));
            }
            _ => {}
        }
    }
    translator.note(ServerNote::BridgeReplaced { bridge });
    Some(target)
}

/// Replaces the references of a bridge: it knows `${NAME}` for the variables of its environment.
fn substitute(
    text: &str,
    env: &BTreeMap<String, String>,
    translator: &mut TextTranslator<'_>,
) -> String {
    let mut complete = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        complete.push_str(&translator.translate(&rest[..at], "args"));
        let after = &rest[at + 2..];
        let name = after.split_once('}').map(|(name, _)| name);
        let Some(name) = name.filter(|name| is_name(name)) else {
            complete.push_str("$${");
            rest = after;
            continue;
        };
        match env.get(name) {
            Some(value) => complete.push_str(value),
            None => complete.push_str(&TextTranslator::reference(name)),
        }
        rest = &after[name.len() + 1..];
    }
    complete.push_str(&translator.translate(rest, "args"));
    complete
}
