//! `riglm setup`: import, installation, service and verification in one command.

mod first_requests;
mod service_plan;
mod setup_plan;

use std::time::Duration;

use jiff::Timestamp;
use riglm_adapters_clients::configuration::{Client, Creation};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;
use serde_json::json;

use self::first_requests::FirstRequests;
use self::service_plan::ServicePlan;
use self::setup_plan::SetupPlan;
use super::confirmation::is_confirmed;
use super::connect::{listens, proxy_url};
use super::import::plan::{ImportPlan, ImportTarget, KnownServers};
use super::import::sources::read_sources;
use super::install::{self, FailedInstall, InstallChoice};
use super::installation_lock::InstallationLock;
use super::service::{self, Listener, is_taken, taken_text};
use super::user_clients::{UserClients, endpoint};
use crate::args::{ImportScope, SetupArgs};
use crate::config::{Config, Overrides, load};
use crate::output::{note, print, printable};

/// The result of the steps after the files are written.
#[derive(Debug)]
struct Verification {
    /// The identifiers of the clients that made a request.
    connected: Vec<&'static str>,
    /// The reason why the proxy that was wanted does not run.
    failure: Option<&'static str>,
}

/// The state of the proxy after a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyState {
    Running,
    /// The user starts it.
    LeftToUser,
    /// The service was wanted, and was not installed.
    Failed,
}

/// Runs all steps, after one confirmation.
///
/// # Errors
///
/// Returns an error if a step fails. Steps that were done before stay. Nothing is written if another
/// program has the address of the proxy.
pub(super) async fn run(target: ImportTarget<'_>, arguments: &SetupArgs) -> anyhow::Result<()> {
    let begun = SystemClock.now();
    // Clients start riglm connect elsewhere, so they must name the file and the folder, too.
    let overrides = Overrides {
        file: service::config_option(target.process, &arguments.places)?,
        data_dir: service::data_dir_option(target.process, &arguments.places)?,
        ..target.overrides.clone()
    };
    let target = ImportTarget {
        overrides: &overrides,
        ..target
    };
    let present = present_endpoint(target);
    let listener = listener_of(target, arguments, present.as_deref()).await?;
    let mut users = UserClients::new(target.config, target.process, &arguments.home)?;
    // Entries with the address of before are riglm, too, also those that it did not write.
    users.riglm.addresses.extend(present);
    let named: Vec<String> = (arguments.client.iter())
        .map(|client| client.id.to_owned())
        .collect();
    let import = ImportPlan::new(target, read_sources(&users, &named)?, ImportScope::Usual)?;
    let choice = InstallChoice {
        clients: &arguments.client,
        profile: None,
        creation: Creation::Refused,
        duplicates: arguments.duplicates,
    };
    let service = ServicePlan::of(target, arguments, listener);
    let lock = InstallationLock::of_change(&target.config.data_dir, &arguments.change)?;
    let known = KnownServers::new(target, Some(&import))?;
    let install = install::plan(target, &users, choice, &known).await?;
    let mut plan = SetupPlan::new(import, install, service);
    let is_json = arguments.change.format.is_json();
    let failures = plan.install.failures.iter();
    let mut failures: Vec<String> = failures.map(FailedInstall::text).collect();
    for remark in plan.import.remarks() {
        note(&remark);
    }
    for failure in &failures {
        note(&printable(failure));
    }
    if !is_json {
        plan.show(target, arguments)?;
    }
    for remark in plan.remarks(target, arguments, &users.program) {
        note(&printable(&remark));
    }
    let question = plan.question();
    let is_applied = match &question {
        Some(question) if !arguments.change.dry_run => is_confirmed(&arguments.change, question)?,
        _ => false,
    };
    if is_applied {
        failures.extend(plan.apply(target)?);
    }
    drop(lock);
    let clients = plan.clients();
    let has_changes = question.is_some();
    let goes_on = !arguments.change.dry_run && (is_applied || !has_changes) && !clients.is_empty();
    let mut connected = Vec::new();
    if goes_on {
        let verification = verify(target, arguments, plan.service, &clients, begun).await?;
        connected = verification.connected;
        failures.extend(verification.failure.map(str::to_owned));
    } else if has_changes && !is_json {
        note("nothing was written");
    } else if clients.is_empty() {
        note("no installed MCP client was found");
    }
    if is_json {
        let unit = service::planned_file(target.process, &arguments.places);
        let json = json!({
            "import": plan.import.as_json(),
            "install": plan.install.as_json(),
            "service": plan.service.as_json(&users.program, unit.as_deref()),
            "written": is_applied,
            "connected": connected,
        });
        print(&json.to_string())?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    anyhow::bail!("{}", printable(&failures.join("; ")))
}

/// Returns the address of the MCP endpoint that the configuration has without `--listen`; `None` if it
/// cannot be loaded, or has no port.
fn present_endpoint(target: ImportTarget<'_>) -> Option<String> {
    let overrides = Overrides {
        listen: None,
        ..target.overrides.clone()
    };
    let config = load(&overrides, target.process).ok()?;
    endpoint(&config, None)
}

/// Returns the program at the address of the proxy. `present` is the endpoint of before.
///
/// # Errors
///
/// Returns an error, with the cure, for another program than a proxy of the data directory: clients
/// must not be sent there. At an address that the configuration gets only now, every program counts
/// as another one, because a proxy that runs has the address of before.
async fn listener_of(
    target: ImportTarget<'_>,
    arguments: &SetupArgs,
    present: Option<&str>,
) -> anyhow::Result<Listener> {
    let address = target.config.listen.address;
    let is_new = endpoint(target.config, None).as_deref() != present;
    if is_new && is_taken(address).await {
        anyhow::bail!(
            "{address} (--listen) is taken, and the configuration has no proxy there: stop that \
             program, or choose another address"
        );
    }
    let listener = Listener::of(target.config).await;
    if listener == Listener::Stranger {
        let taken = taken_text(address, "listen.address");
        let place = service::config_place(target.process, &arguments.places);
        anyhow::bail!("{taken}: stop that program, or set `[listen] address` in {place}");
    }
    Ok(listener)
}

/// Starts the service if no proxy runs, and waits for the first requests since a moment.
async fn verify(
    target: ImportTarget<'_>,
    arguments: &SetupArgs,
    service: ServicePlan,
    clients: &[&'static Client],
    since: Timestamp,
) -> anyhow::Result<Verification> {
    let config = load(target.overrides, target.process)?;
    let state = start_proxy(&config, target, arguments, service).await?;
    if state != ProxyState::Running {
        let titles = titles_of(clients);
        note(&format!(
            "next: start the proxy with `riglm serve`, then restart {titles}"
        ));
        let is_failed = state == ProxyState::Failed;
        return Ok(Verification {
            connected: Vec::new(),
            failure: is_failed
                .then_some("the proxy does not run, because its service was not installed"),
        });
    }
    let has_wait = arguments.wait > 0;
    let connected = if has_wait {
        let patience = Duration::from_secs(arguments.wait);
        let requests = FirstRequests::new(&config, clients, since);
        requests.wait(patience).await?
    } else {
        Vec::new()
    };
    let silent: Vec<&'static Client> = (clients.iter().copied())
        .filter(|client| !connected.contains(&client.id))
        .collect();
    for client in silent.iter().filter(|_| has_wait) {
        note(&format!("{}: no request yet", client.title));
    }
    if !silent.is_empty() {
        let titles = titles_of(&silent);
        note(&format!("next: restart {titles}, then run riglm doctor"));
    }
    Ok(Verification {
        connected,
        failure: None,
    })
}

fn titles_of(clients: &[&'static Client]) -> String {
    let titles: Vec<&str> = clients.iter().map(|client| client.title).collect();
    titles.join(", ")
}

/// Starts the service if no proxy runs. Returns the state of the proxy.
async fn start_proxy(
    config: &Config,
    target: ImportTarget<'_>,
    arguments: &SetupArgs,
    service: ServicePlan,
) -> anyhow::Result<ProxyState> {
    let url = proxy_url(config.listen.address, None)?;
    let address = url.as_str();
    if listens(&url).await {
        note(&format!("a proxy runs at {address}"));
        return Ok(ProxyState::Running);
    }
    if arguments.no_service {
        return Ok(ProxyState::LeftToUser);
    }
    if service == ServicePlan::Refused {
        // The reason was told before the question.
        return Ok(ProxyState::Failed);
    }
    if let Err(error) = service::install_for(config, target.process, &arguments.places) {
        note(&printable(&format!(
            "the service was not installed: {error:#}"
        )));
        return Ok(ProxyState::Failed);
    }
    note(&format!("the service runs at {address}"));
    Ok(ProxyState::Running)
}
