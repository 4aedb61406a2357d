//! The subcommands, one file each, and the choice between them.

mod browser;
mod calls;
mod config;
mod data;
mod db;
mod demo;
mod eval;
mod experiment;
mod hangup;
mod lists;
mod login;
mod model;
mod moment;
mod recommend;
mod replay;
mod serve;
mod sessions;
mod table;
mod tune;

use anyhow::Context;

use crate::args::{Cli, Command};
use crate::config::{Config, ConfigError, Overrides, Surroundings, Watch, load};
use crate::{demo as demo_servers, telemetry};

/// Does what the command line asks for.
///
/// # Errors
///
/// Returns what went wrong; a [`ConfigError`] among the causes means wrong usage.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    // Only a process that chose another provider before could make this fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match cli.command {
        Command::Guard => {
            riglm_adapters_mcp::upstream::guard::run_guard(std::io::stdin().lock());
            Ok(())
        }
        Command::Config(command) => config::run(&command),
        Command::Serve(arguments) => {
            let mut watch = Watch::new(arguments.overrides(), Surroundings::of_process()?);
            let loaded = watch.load()?;
            loaded.config.upstreams()?;
            telemetry::start(&loaded.config.logging);
            wait_for(serve::run(loaded, watch))
        }
        Command::Sessions(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            wait_for(sessions::run(&config, &arguments))
        }
        Command::Lists(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            wait_for(lists::run(&config, &arguments))
        }
        Command::Recommend(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            wait_for(recommend::run(&config, &arguments))
        }
        Command::Calls(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            wait_for(calls::run(&config, &arguments))
        }
        Command::Db(command) => {
            let config = loaded(&command.store().places.overrides())?;
            wait_for(db::run(&config, &command))
        }
        Command::Experiment(command) => {
            let config = loaded(&command.store().places.overrides())?;
            wait_for(experiment::run(&config, &command))
        }
        Command::Eval(command) => {
            let config = loaded(&command.places().overrides())?;
            wait_for(eval::run(&config, &command))
        }
        Command::Replay(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            wait_for(replay::run(&config, &arguments))
        }
        Command::Tune(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            wait_for(tune::run(&config, &arguments))
        }
        Command::Data(command) => {
            let config = loaded(&command.store().places.overrides())?;
            wait_for(data::run(&config, &command))
        }
        Command::Model(command) => {
            let config = loaded(&command.store().places.overrides())?;
            wait_for(model::run(&config, command))
        }
        Command::Login(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            wait_for(login::run(&config, &arguments))
        }
        Command::Demo => wait_for(demo::run()),
        Command::DemoServer { server } => wait_for(demo_servers::serve_stdio(server)),
    }
}

fn loaded(overrides: &Overrides) -> Result<Config, ConfigError> {
    load(overrides, &Surroundings::of_process()?)
}

/// Runs a future on a runtime of its own.
fn wait_for<F: Future<Output = anyhow::Result<()>>>(work: F) -> anyhow::Result<()> {
    // Half of the cores: the clients and servers on both sides of a local proxy need the rest, and
    // fewer workers wake each other less often.
    let n_cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((n_cores / 2).max(1))
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let result = runtime.block_on(work);
    // A read from standard input cannot be cancelled; it must not keep the process alive.
    runtime.shutdown_background();
    result
}
