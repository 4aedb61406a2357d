//! `riglm demo`: the built-in servers, the proxy before each of them, and what it recorded.

use std::path::Path;

use anyhow::{Context, ensure};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_domain::invocation::Outcome;
use riglm_ports::analytics::InvocationFilter;

use super::{calls, sessions};
use crate::config::{Config, Environment, Overrides, Surroundings, load};
use crate::demo::{DemoServer, Expected, drive, script};
use crate::output::{print, printable};
use crate::{compose, telemetry};

/// More than the demonstration records.
const LIMIT: u32 = 1_000;

/// Shows the proxy at work, in a directory of its own that is removed afterwards.
///
/// # Errors
///
/// Returns what did not happen as expected.
pub(super) async fn run() -> anyhow::Result<()> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let mut n_unexpected = 0;
    for server in DemoServer::ALL {
        let config = config_of(server, directory.path())?;
        if server == DemoServer::ALL[0] {
            telemetry::start(&config.logging);
        }
        n_unexpected += show(server, config).await?;
    }
    let config = config_of(DemoServer::ALL[0], directory.path())?;
    n_unexpected += show_records(&config).await?;
    ensure!(
        n_unexpected == 0,
        "{n_unexpected} things did not happen as expected"
    );
    Ok(())
}

/// Returns the configuration of the proxy before one server: everything else has its default, and
/// neither files nor variables of the user play a part.
fn config_of(server: DemoServer, data_dir: &Path) -> anyhow::Result<Config> {
    let program = std::env::current_exe().context("failed to find the program itself")?;
    let command = serde_json::json!([program, "__demo-server", server.name()]);
    let environment = Environment::from_iter([
        (
            format!("RIGLM__UPSTREAMS__{}__COMMAND", server.name()),
            command.to_string(),
        ),
        ("RIGLM__LOGGING__LEVEL".to_owned(), "warn".to_owned()),
    ]);
    let overrides = Overrides {
        data_dir: Some(data_dir.into()),
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        control: Some(ControlAddress::Off),
        ..Overrides::default()
    };
    let surroundings = Surroundings {
        environment,
        working_directory: data_dir.into(),
        ..Surroundings::default()
    };
    Ok(load(&overrides, &surroundings)?)
}

/// Runs the client against one server and returns how many steps were not as expected.
async fn show(server: DemoServer, config: Config) -> anyhow::Result<usize> {
    let running = compose::start(config)
        .await
        .with_context(|| format!("failed to start the proxy of {}", server.name()))?;
    let url = running.mcp_url();
    print(&format!("{} through {url}", server.name()))?;
    let steps = drive(&url, &script(server)).await;
    running.shutdown().await;
    let steps = steps.with_context(|| format!("failed to talk to {}", server.name()))?;
    for step in &steps {
        let mark = if step.is_expected { "ok" } else { "UNEXPECTED" };
        print(&format!("  {mark}  {}", printable(&step.action)))?;
        for line in step.answer.lines() {
            print(&format!("        {}", printable(line)))?;
        }
    }
    Ok(steps.iter().filter(|step| !step.is_expected).count())
}

/// Prints what was recorded and returns how many things about it were not as expected.
async fn show_records(config: &Config) -> anyhow::Result<usize> {
    let readers = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let recorded_sessions = readers.sessions.sessions(LIMIT).await?;
    let filter = InvocationFilter::default();
    let recorded_calls = readers.invocations.invocations(&filter, LIMIT).await?;
    print("\nrecorded sessions")?;
    print(&sessions::as_table(&recorded_sessions))?;
    print("\nrecorded calls")?;
    print(&calls::as_table(&recorded_calls))?;

    let made: Vec<(&str, &str, Outcome)> = DemoServer::ALL
        .into_iter()
        .flat_map(|server| {
            script(server).into_iter().map(move |call| {
                let outcome = match call.expected {
                    Expected::Text(_) => Outcome::Ok,
                    Expected::Failure(_) => Outcome::Error,
                };
                (server.name(), call.tool, outcome)
            })
        })
        .collect();
    let is_recorded = recorded_calls.len() == made.len()
        && recorded_calls.iter().zip(&made).all(|(recorded, made)| {
            let call = &recorded.invocation;
            let outcome = recorded.end.as_ref().map(|end| end.outcome);
            (call.upstream.as_str(), call.tool.as_str(), outcome) == (made.0, made.1, Some(made.2))
        });
    let is_complete = recorded_sessions.len() == DemoServer::ALL.len()
        && recorded_sessions
            .iter()
            .all(|session| session.ended_at.is_some());
    Ok(usize::from(!is_recorded) + usize::from(!is_complete))
}
