//! `riglm doctor`: checks of a set-up, each with its cure.

mod client_files;
mod config_text;
mod configuration;
mod data;
mod finding;
mod proxy;
mod readable;

use serde_json::json;

use self::config_text::ConfigText;
pub(crate) use self::finding::{Finding, Status};
use self::readable::{Completeness, ReadableConfig};
use super::import::plan::ImportTarget;
use super::user_clients::UserClients;
use crate::args::{DoctorArgs, HomeArgs, LocationArgs};
use crate::config::{Config, ConfigSource, ProcessEnv, TuningUse};
use crate::output::{number_of, print, printable};

/// The set-up that is checked.
#[derive(Clone, Copy)]
struct Subject<'a> {
    config: &'a Config,
    completeness: Completeness,
    /// The configuration file, if there is one that can be read.
    text: Option<&'a ConfigText>,
    process: &'a ProcessEnv,
}

/// Prints the result of each check.
///
/// # Errors
///
/// Returns an error if there is a problem.
pub(super) async fn run(process: &ProcessEnv, arguments: &DoctorArgs) -> anyhow::Result<()> {
    let source = ConfigSource::new(arguments.places.overrides(), process.clone());
    let findings = check(&source, &arguments.home).await;
    let count = |status: Status| findings.iter().filter(|it| it.status == status).count();
    let (n_problems, n_warnings) = (count(Status::Problem), count(Status::Warning));
    if arguments.format.is_json() {
        let checks: Vec<_> = findings.iter().map(Finding::as_json).collect();
        let json = json!({"checks": checks, "problems": n_problems, "warnings": n_warnings});
        print(&json.to_string())?;
    } else {
        for finding in &findings {
            print(&printable_lines(&finding.text()))?;
        }
        let problems = number_of(n_problems, "problem");
        print(&format!("{problems}, {}", number_of(n_warnings, "warning")))?;
    }
    if n_problems > 0 {
        anyhow::bail!("found {}", number_of(n_problems, "problem"));
    }
    Ok(())
}

/// Makes all checks. Those that need the configuration use the parts of it that can be loaded. It
/// reads files and asks the service manager on the thread of the caller.
pub(crate) async fn check(source: &ConfigSource, home: &HomeArgs) -> Vec<Finding> {
    let (overrides, process) = (source.overrides(), source.surroundings());
    let places = LocationArgs {
        config: overrides.file.clone(),
        data_dir: overrides.data_dir.clone(),
    };
    let file = source.file();
    let text = file.as_deref().and_then(ConfigText::read);
    let (readable, mut findings) = match source.load(TuningUse::IfSound) {
        Ok(loaded) => {
            let findings = configuration::of_loaded(&loaded, file.as_deref());
            (Some(ReadableConfig::whole(loaded.config)), findings)
        }
        Err(error) => {
            let readable = ReadableConfig::of_parts(text.as_ref(), overrides, process);
            (readable, configuration::of_error(error))
        }
    };
    let Some(readable) = readable else {
        findings.push(data::check_clock());
        findings.extend(proxy::check_service(process, &places));
        return findings;
    };
    let config = &readable.config;
    let subject = Subject {
        config,
        completeness: readable.completeness,
        text: text.as_ref(),
        process,
    };
    findings.extend(configuration::check_text(subject));
    findings.extend(configuration::check_upstreams(subject).await);
    findings.extend(data::check(config).await);
    findings.extend(proxy::check(config, process, &places).await);
    let target = ImportTarget {
        config,
        process,
        overrides,
    };
    match UserClients::new(config, process, home) {
        Ok(users) => {
            findings.extend(client_files::check(target, &users, readable.completeness));
        }
        Err(error) => findings.push(Finding::problem(
            "clients",
            format!("{error:#}"),
            "set HOME, or use --home DIR",
        )),
    }
    distinct(findings)
}

/// Returns the findings without repetitions: a check may meet the error of an earlier one.
fn distinct(findings: Vec<Finding>) -> Vec<Finding> {
    let mut distinct: Vec<Finding> = Vec::new();
    for finding in findings {
        if !distinct.contains(&finding) {
            distinct.push(finding);
        }
    }
    distinct
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}
