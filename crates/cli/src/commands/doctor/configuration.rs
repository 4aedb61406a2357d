//! Checks of the configuration, its secrets, and its upstreams.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use futures_util::stream::{self, StreamExt as _};
use riglm_adapters_mcp::upstream::{CredentialsType, connector};
use url::{Host, Url};

use super::Subject;
use super::config_text::ConfigText;
use super::finding::{Finding, error_line};
use super::readable::Completeness;
use crate::commands::connect::{KEY_VARIABLE, listens};
use crate::commands::import::programs::is_program;
use crate::config::{
    Config, ConfigError, LoadedConfig, ProcessEnv, SecretsFile, TuningFile, Upstream,
    is_variable_name,
};

/// The number of upstreams that are checked at once.
const MAX_AT_ONCE: usize = 4;

/// Returns the errors of a configuration that cannot be loaded.
pub(super) fn of_error(error: ConfigError) -> Vec<Finding> {
    let mut findings: Vec<Finding> = error.parts().iter().map(of_part).collect();
    findings.push(Finding::warning(
        "configuration",
        "the other checks use the parts that can be loaded, and defaults",
        "run riglm doctor again when it can be loaded",
    ));
    findings
}

/// Returns one error of a configuration, or of the file of secrets.
fn of_part(error: &ConfigError) -> Finding {
    let (name, cure) = match error {
        ConfigError::VariableNotSet { variable, .. } => (
            "configuration",
            format!("set {variable} in the environment, or in secrets.env in the data directory"),
        ),
        ConfigError::Secrets { place, reason } if reason.starts_with("other users") => {
            ("secrets", format!("chmod 600 {place}"))
        }
        ConfigError::Secrets { .. } => ("secrets", "edit the file".to_owned()),
        ConfigError::Unreadable { source, .. } if source.kind() == ErrorKind::NotFound => (
            "configuration",
            "make the file, or name another one (riglm init)".to_owned(),
        ),
        ConfigError::Unreadable { path, .. } => (
            "configuration",
            format!("correct the file and its permissions: {}", path.display()),
        ),
        ConfigError::NoDataDirectory => ("data", "set HOME, or use --data-dir DIR".to_owned()),
        _ => (
            "configuration",
            "edit the configuration; docs/configuration.md has all keys".to_owned(),
        ),
    };
    Finding::problem(name, error_line(error), cure)
}

/// Checks a configuration that was loaded.
pub(super) fn of_loaded(loaded: &LoadedConfig, file: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![match file {
        Some(file) => Finding::ok("configuration", file.display().to_string()),
        None => Finding::warning(
            "configuration",
            "there is no file: defaults are used",
            "riglm init, or riglm import",
        ),
    }];
    if let Some(reason) = &loaded.ignored {
        let path = TuningFile::of(&loaded.config.data_dir).path();
        findings.push(Finding::warning(
            "configuration",
            format!("the values that were set at run time are ignored: {reason}"),
            format!("correct or remove {}", path.display()),
        ));
    }
    findings
}

/// Checks the text of the file, and the file of secrets.
pub(super) fn check_text(subject: Subject<'_>) -> Vec<Finding> {
    let mut findings = check_literals(subject);
    findings.extend(check_secrets(subject));
    findings
}

/// Names the secrets that are in the configuration file itself, without their values.
fn check_literals(subject: Subject<'_>) -> Vec<Finding> {
    let Some(text) = subject.text else {
        return Vec::new();
    };
    let file = text.path().display();
    let secrets = SecretsFile::of(&subject.config.data_dir);
    let keys = text.literal_secrets();
    let mut findings: Vec<Finding> = (keys.iter())
        .map(|key| {
            let variable = free_variable(key, &keys);
            let place = secrets.path().display();
            Finding::warning(
                "configuration",
                format!("{file}: {} has a secret in the file", key.join(".")),
                format!(
                    "move it to {place} as {variable}=VALUE, and write ${{{variable}}} in its place"
                ),
            )
        })
        .collect();
    let is_open = |path: &Path| path.metadata().is_ok_and(|it| it.mode() & 0o004 != 0);
    if !keys.is_empty() && is_open(text.path()) {
        findings.push(Finding::warning(
            "configuration",
            format!("other users can read {file}, which has a secret"),
            format!("chmod 600 {file}"),
        ));
    }
    findings
}

/// Returns a name for the variable that has the value of a key, with the name of its upstream if
/// another key would get the same one.
fn free_variable(key: &[String], keys: &[Vec<String>]) -> String {
    let name = variable_of(key);
    let is_shared = keys
        .iter()
        .any(|other| other.as_slice() != key && variable_of(other) == name);
    match key {
        [section, upstream, ..] if is_shared && section == "upstreams" => {
            let upstream = variable_of(std::slice::from_ref(upstream));
            format!("{upstream}_{name}")
        }
        _ => name,
    }
}

/// Returns a name for the variable that has the value of a key.
fn variable_of(key: &[String]) -> String {
    let parts: Vec<&str> = key.iter().map(String::as_str).collect();
    let parts = match &parts[..] {
        [.., "env", name] if is_variable_name(name) => return (*name).to_owned(),
        ["upstreams", rest @ ..] => rest,
        all => all,
    };
    let name = parts.join("_").to_ascii_uppercase();
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let name = name.replace(|c: char| !is_plain(c), "_");
    if is_variable_name(&name) {
        name
    } else {
        format!("SECRET_{name}")
    }
}

/// Checks the file of secrets. Only names are in the findings.
fn check_secrets(subject: Subject<'_>) -> Vec<Finding> {
    let secrets = SecretsFile::of(&subject.config.data_dir);
    let path = secrets.path().display();
    let values = match secrets.read() {
        Ok(values) if values.is_empty() => return Vec::new(),
        Ok(values) => values,
        Err(error) => return vec![of_part(&error)],
    };
    let n_values = super::number_of(values.len(), "value");
    let mut findings = vec![Finding::ok("secrets", format!("{n_values} in {path}"))];
    let Some(text) = subject.text else {
        return findings;
    };
    // `riglm connect` and `riglm install` read the key of a client there.
    let is_unused = |name: &&str| *name != KEY_VARIABLE && !text.refers_to(name);
    let names = values.keys().map(String::as_str);
    let unused: Vec<&str> = names.filter(is_unused).collect();
    if !unused.is_empty() {
        findings.push(Finding::warning(
            "secrets",
            format!(
                "{} does not refer to {} in {path}",
                text.path().display(),
                unused.join(", ")
            ),
            format!("remove what is not needed from {path}"),
        ));
    }
    findings
}

/// Checks the upstreams without starting them. Only servers on this machine are connected to.
pub(super) async fn check_upstreams(subject: Subject<'_>) -> Vec<Finding> {
    let Subject {
        config, process, ..
    } = subject;
    let upstreams = config.upstreams().unwrap_or_default();
    let checks = upstreams
        .iter()
        .map(|upstream| check_upstream(config, process, upstream));
    let results: Vec<Vec<Finding>> = stream::iter(checks).buffered(MAX_AT_ONCE).collect().await;
    let mut findings = Vec::new();
    for (upstream, result) in upstreams.iter().zip(results) {
        if result.is_empty() {
            findings.push(Finding::ok(
                "upstreams",
                format!("{} looks usable", upstream.name),
            ));
        }
        findings.extend(result);
    }
    let off = disabled_upstreams(subject);
    if upstreams.is_empty() && subject.completeness == Completeness::Whole {
        findings.push(match off.first() {
            Some(key) => Finding::problem(
                "upstreams",
                "every upstream is switched off",
                format!("set enabled = true in section {key}"),
            ),
            None => Finding::problem(
                "upstreams",
                "no upstream is configured",
                "riglm import adds the servers of your clients; riglm init --upstream URL adds one",
            ),
        });
    }
    for key in off {
        findings.push(Finding::ok("upstreams", format!("{key} is switched off")));
    }
    findings
}

/// Returns the sections of the upstreams that are switched off.
fn disabled_upstreams(subject: Subject<'_>) -> Vec<String> {
    let used = subject.config.upstreams().unwrap_or_default();
    // A variable of the environment may switch it on.
    let is_used = |key: &String| {
        let name = key.strip_prefix("upstreams.").unwrap_or("default");
        used.iter().any(|upstream| upstream.name.as_str() == name)
    };
    let mut keys = (subject.text).map_or_else(Vec::new, ConfigText::disabled_upstreams);
    keys.retain(|key| !is_used(key));
    keys
}

async fn check_upstream(
    config: &Config,
    process: &ProcessEnv,
    upstream: &Upstream,
) -> Vec<Finding> {
    let Upstream {
        name,
        config: section,
    } = upstream;
    let mut findings = Vec::new();
    if let Err(error) = connector(name.clone(), section, None, &config.data_dir) {
        let error = ConfigError::unusable(name, &error);
        findings.push(Finding::problem(
            "upstreams",
            error_line(&error),
            format!("edit upstreams.{name}"),
        ));
    }
    let credentials = section.credentials.as_ref();
    let own_path = section.env.get("PATH").map(String::as_str);
    let path = process.environment.value("PATH");
    let here = &process.working_directory;
    let directory = section
        .cwd
        .as_ref()
        .map_or_else(|| here.clone(), |cwd| here.join(cwd));
    let of_credentials = credentials.and_then(|credentials| credentials.command.as_ref());
    for (words, path, directory) in [
        (section.command.as_ref(), own_path.or(path), &directory),
        (of_credentials, path, here),
    ] {
        let Some(program) = words.and_then(|words| words.first()) else {
            continue;
        };
        if !is_program(program, path.unwrap_or_default(), directory) {
            findings.push(Finding::problem(
                "upstreams",
                format!("{name}: the program {program} was not found"),
                format!(
                    "install it, write its absolute path, or remove upstreams.{name}; a service has \
                     another PATH than a shell"
                ),
            ));
        }
    }
    if let Some(directory) = section.cwd.as_ref().filter(|directory| !directory.is_dir()) {
        findings.push(Finding::problem(
            "upstreams",
            format!("{name}: the folder {} does not exist", directory.display()),
            format!("edit upstreams.{name}.cwd"),
        ));
    }
    if credentials.is_some_and(|it| it.r#type == CredentialsType::Oauth && it.grant.is_none())
        && !has_login(config, name.as_str())
    {
        findings.push(Finding::warning(
            "upstreams",
            format!("{name}: nobody has logged in yet"),
            format!("riglm login {name}"),
        ));
    }
    if let Some(url) = section.url.as_deref().and_then(loopback_url)
        && !listens(&url).await
    {
        let origin = url.origin().ascii_serialization();
        findings.push(Finding::problem(
            "upstreams",
            format!("{name}: nothing listens at {origin}"),
            "start the server, or correct its url",
        ));
    }
    findings
}

fn has_login(config: &Config, name: &str) -> bool {
    let folder = config.data_dir.join("credentials");
    folder.join(format!("{name}.json")).exists()
}

/// Returns the URL of a server on this machine; `None` for others.
pub(super) fn loopback_url(url: &str) -> Option<Url> {
    let url = Url::parse(url.strip_prefix("sse+").unwrap_or(url)).ok()?;
    let is_local = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    };
    is_local.then_some(url)
}
