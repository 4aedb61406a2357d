//! The parts of a configuration that can be used, although the whole cannot be loaded.

use std::collections::BTreeMap;

use config::{Value, ValueKind};

use super::config_text::ConfigText;
use crate::config::{Config, Environment, Overrides, ProcessEnv, SecretsFile, load};

/// The prefix of variables that set a key.
const PREFIX: &str = "RIGLM__";
/// The separator of the parts of a key in such a variable.
const SEPARATOR: &str = "__";

/// The extent to which a configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    /// All of it is known.
    Whole,
    /// Some parts are missing. The address of the proxy is known.
    Parts,
    /// Some parts are missing. The address of the proxy may be among them.
    PartsWithoutAddress,
}

/// The configuration that the checks use.
#[derive(Debug)]
pub(super) struct ReadableConfig {
    pub(super) config: Config,
    pub(super) completeness: Completeness,
}

impl ReadableConfig {
    /// Returns a configuration that was loaded.
    pub(super) fn whole(config: Config) -> Self {
        Self {
            config,
            completeness: Completeness::Whole,
        }
    }

    /// Returns the parts of a file that can be loaded, one after the other, and defaults for the
    /// rest. Returns `None` if not even the defaults can be loaded.
    pub(super) fn of_parts(
        text: Option<&ConfigText>,
        overrides: &Overrides,
        process: &ProcessEnv,
    ) -> Option<Self> {
        let overrides = Overrides {
            reads_no_file: true,
            ..overrides.clone()
        };
        let mut process = process.clone();
        let mut config = load(&overrides, &process).ok();
        if config.is_none() {
            // A variable of the environment is wrong.
            process.environment = without_keys(&process.environment);
            config = load(&overrides, &process).ok();
        }
        let mut config = config?;
        let is_well_formed = text.is_some_and(ConfigText::is_well_formed);
        let mut completeness = if is_well_formed {
            Completeness::Parts
        } else {
            Completeness::PartsWithoutAddress
        };
        for part in text.map(ConfigText::parts).unwrap_or_default() {
            let secrets = SecretsFile::of(&config.data_dir).read().unwrap_or_default();
            let known = process.environment.with_others(secrets);
            let mut variables = BTreeMap::new();
            let mut attempt = process.clone();
            let loaded =
                add_variables(&part.path, part.value, &known, &mut variables).and_then(|()| {
                    attempt.environment = process.environment.with_others(variables);
                    load(&overrides, &attempt).ok()
                });
            match loaded {
                Some(loaded) => {
                    config = loaded;
                    process = attempt;
                }
                None if part.path == ["listen"] => {
                    completeness = Completeness::PartsWithoutAddress;
                }
                None => {}
            }
        }
        Some(Self {
            config,
            completeness,
        })
    }
}

/// Returns an environment without the variables that set keys.
fn without_keys(environment: &Environment) -> Environment {
    let all = environment.all().iter();
    let others = all.filter(|(name, _)| !name.starts_with(PREFIX));
    others
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Adds the variables that set a key to a value. Returns `None` if a reference has no value, or if
/// no variable can set the key.
fn add_variables(
    path: &[String],
    value: &Value,
    known: &Environment,
    variables: &mut BTreeMap<String, String>,
) -> Option<()> {
    let text = match &value.kind {
        ValueKind::Nil => return Some(()),
        ValueKind::Table(table) => {
            for (key, value) in table {
                let path = [path, std::slice::from_ref(key)].concat();
                add_variables(&path, value, known, variables)?;
            }
            return Some(());
        }
        ValueKind::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(|it| plain_text(it, known)).collect();
            serde_json::Value::from(items?).to_string()
        }
        _ => plain_text(value, known)?,
    };
    variables.insert(variable_name(path), text);
    Some(())
}

/// Returns a text, a number or a truth value as text, with its references replaced.
fn plain_text(value: &Value, known: &Environment) -> Option<String> {
    match &value.kind {
        ValueKind::String(text) => known.expand(text).ok(),
        ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => None,
        plain => Some(plain.to_string()),
    }
}

/// Returns the name of the variable that sets a key.
fn variable_name(path: &[String]) -> String {
    let name = path.join(SEPARATOR);
    // The names of upstreams and principals keep their case. Other variables are spelled as
    // everybody spells them, so that those of the environment win.
    match path.first().map(String::as_str) {
        Some("auth" | "upstream" | "upstreams") => format!("{PREFIX}{name}"),
        _ => format!("{PREFIX}{}", name.to_ascii_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(toml: &str) -> ReadableConfig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("riglm.toml");
        std::fs::write(&path, toml).unwrap();
        let process = ProcessEnv {
            environment: Environment::from_iter([("PORT", "7001")]),
            data_directory: Some(folder.path().to_owned()),
            ..ProcessEnv::default()
        };
        let text = ConfigText::read(&path);
        ReadableConfig::of_parts(text.as_ref(), &Overrides::default(), &process).unwrap()
    }

    #[test]
    fn sound_parts_of_a_broken_configuration_are_used() {
        let readable = parts(
            "[listen]\naddress = \"127.0.0.1:${PORT}\"\n[search]\nenabled = 7\n\
             [upstreams.A]\ncommand = [\"a\", \"-b\"]\nenv = { X_y = \"1\" }\n\
             [upstreams.b]\nurl = \"${NOWHERE}\"\n[upstreams.c]\nurl = 1\ncommand = []\nno = 1\n",
        );
        assert_eq!(readable.completeness, Completeness::Parts);
        assert_eq!(readable.config.listen.address.port(), 7001);
        let upstreams = readable.config.upstreams().unwrap();
        let only = &upstreams[0].config;
        assert_eq!(upstreams.len(), 1);
        assert_eq!(only.command.as_deref().unwrap(), ["a", "-b"]);
        assert_eq!(only.env["X_y"], "1");
    }

    #[test]
    fn an_address_that_cannot_be_loaded_is_unknown() {
        let without = Completeness::PartsWithoutAddress;
        assert_eq!(parts("[listen]\nadress = \":1\"\n").completeness, without);
        assert_eq!(parts("[listen\n").completeness, without);
    }
}
