//! Checks of the running proxy, the ports, and the service.

use riglm_adapters_http::ControlAddress;
use riglm_domain::id::UpstreamName;

use super::finding::Finding;
use crate::args::LocationArgs;
use crate::commands::control_port::{ControlAnswer, Readiness, ask, readiness};
use crate::commands::pause::end_in_words;
use crate::commands::service::{
    InstalledService, ServiceState, installed_service, is_taken, taken_text,
};
use crate::config::{Config, ProcessEnv};

/// Checks whether a proxy runs and is ready, or whether it could start.
pub(super) async fn check(
    config: &Config,
    process: &ProcessEnv,
    places: &LocationArgs,
) -> Vec<Finding> {
    let mut findings = match readiness(config, None).await {
        Ok(proxies) => {
            let states = proxies.iter().map(|proxy| match &proxy.report {
                Ok(report) if report.is_ready => Finding::ok(
                    "proxy",
                    format!("one is ready (control port {})", proxy.address),
                ),
                Ok(report) => Finding::problem(
                    "proxy",
                    format!("one runs, and is not ready: {}", report.causes()),
                    "riglm upstreams shows each server with the reason",
                ),
                Err(answer) => Finding::problem(
                    "proxy",
                    answer.clone().reason(),
                    "look at its log, and restart it",
                ),
            });
            let mut findings: Vec<Finding> = states.collect();
            findings.extend(proxies.iter().filter_map(pause_of));
            findings.extend(check_version(config).await);
            findings.extend(check_servers(config).await);
            findings
        }
        // The reason for the other commands names an option that this one does not have.
        Err(ControlAnswer::NotRunning(_)) => {
            let data_dir = config.data_dir.display();
            let why = format!("no control port of data directory {data_dir} on this machine");
            check_ports(config, &why).await
        }
        Err(answer) => check_ports(config, &answer.reason()).await,
    };
    findings.extend(check_service(process, places));
    findings
}

/// Returns a note about the pause of a proxy; `None` if it is not paused.
fn pause_of(proxy: &Readiness) -> Option<Finding> {
    let end = end_in_words(proxy.report.as_ref().ok()?.pause)?;
    Some(Finding::ok(
        "proxy",
        format!(
            "lists are paused {end}: clients see all tools, and safeguards are off (control port \
             {}); `riglm resume` ends it",
            proxy.address
        ),
    ))
}

/// Checks that the running proxies are of the version of this program.
async fn check_version(config: &Config) -> Option<Finding> {
    let ControlAnswer::Said(reports) = ask(config, None, "/health").await else {
        return None;
    };
    let own = env!("CARGO_PKG_VERSION");
    let mut versions = reports.iter().filter_map(|it| it["version"].as_str());
    let other = versions.find(|version| *version != own)?;
    Some(Finding::warning(
        "proxy",
        format!("one has version {other}, and this program has {own}"),
        "restart it: riglm service install, or riglm serve",
    ))
}

/// Names the servers that are starting, and those that show clients of one era other tools.
async fn check_servers(config: &Config) -> Vec<Finding> {
    let ControlAnswer::Said(answers) = ask(config, None, "/upstreams").await else {
        return Vec::new();
    };
    let all = answers.iter().filter_map(|it| it["upstreams"].as_array());
    let mut findings = Vec::new();
    for server in all.flatten() {
        let name = server["name"].as_str().map(UpstreamName::parse);
        let Some(Ok(name)) = name else { continue };
        if server["state"] == "starting" {
            let text = format!("{name} is starting (upstreams.{name}.start_timeout is its time)");
            findings.push(Finding::ok("upstreams", text));
        }
        let tools = &server["tools_by_era"];
        if let (Some(legacy), Some(modern)) = (tools["legacy"].as_u64(), tools["modern"].as_u64()) {
            findings.push(Finding::warning(
                "upstreams",
                format!(
                    "{name} shows clients of revision 2026-07-28 other tools ({modern}) than older \
                     ones ({legacy})"
                ),
                format!("set upstreams.{name}.revision to show all clients the same tools"),
            ));
        }
    }
    findings
}

/// Checks that the ports are free, as no proxy was found.
async fn check_ports(config: &Config, why: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut addresses = vec![("listen.address", config.listen.address)];
    if let ControlAddress::At(address) = config.control.address {
        addresses.push(("control.address", address));
    }
    for (key, address) in addresses {
        if is_taken(address).await {
            findings.push(Finding::problem(
                "ports",
                taken_text(address, key),
                format!("stop the other program, or change {key}"),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::warning(
            "proxy",
            format!("none runs: {why}"),
            "riglm serve, or riglm service install",
        ));
    }
    findings
}

/// Checks the installed service, if there is one.
pub(super) fn check_service(process: &ProcessEnv, places: &LocationArgs) -> Option<Finding> {
    let InstalledService {
        file,
        program,
        is_current,
        kept_data_dir,
        state,
    } = installed_service(process, places)?;
    let shown = match kept_data_dir {
        // This command has another one, because the configured one is relative.
        Some(folder) => format!("{} (data directory {})", file.display(), folder.display()),
        None => file.display().to_string(),
    };
    if !program.exists() {
        return Some(Finding::problem(
            "service",
            format!("{shown} starts {}, which does not exist", program.display()),
            "riglm service install",
        ));
    }
    if !is_current {
        return Some(Finding::warning(
            "service",
            format!("{shown} has another program, configuration or PATH than this command"),
            "riglm service install replaces it",
        ));
    }
    Some(match state {
        ServiceState::Running => Finding::ok("service", shown),
        ServiceState::Stopped => Finding::warning(
            "service",
            format!("{shown} does not run"),
            "riglm service install",
        ),
        ServiceState::Unknown => Finding::warning(
            "service",
            format!("the service manager does not say whether {shown} runs"),
            "riglm service status, when the service manager answers",
        ),
    })
}
