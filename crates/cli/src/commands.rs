//! The subcommands, one file each, and the choice between them.

mod browser;
mod calls;
mod config;
mod control_port;
mod data;
mod db;
mod demo;
mod eval;
mod experiment;
mod hangup;
mod lists;
mod login;
mod model;
pub(crate) mod moment;
mod overrides;
mod recommend;
mod replay;
mod serve;
mod sessions;
mod start_notes;
mod table;
mod tools;
mod tune;
mod unused;
mod upstreams;

use anyhow::Context;
use riglm_ports::analytics::Deleted;
use serde_json::json;

use crate::args::{Cli, Command, DataCommand, ExperimentCommand, OverrideCommand};
use crate::config::{Config, ConfigError, LogFormat, Overrides, Surroundings, Watch, load};
use crate::output::write_json_remarks;

use self::unused::{Empty, if_used, unless_unused};
use crate::{demo as demo_servers, telemetry};

/// Does what the command line asks for.
///
/// # Errors
///
/// Returns what went wrong; a [`ConfigError`] among the causes means wrong usage.
#[expect(clippy::too_many_lines, reason = "one arm for each command")]
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
            if watch.source().log_format() == LogFormat::Json {
                write_json_remarks();
            }
            let loaded = watch.load()?;
            loaded.config.upstreams()?;
            telemetry::start(&loaded.config.logging);
            wait_for(serve::run(loaded, watch))
        }
        Command::Sessions(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            let empty = Empty::of(arguments.json, &json!([]));
            wait_for(unless_unused(
                &config,
                empty,
                sessions::run(&config, &arguments),
            ))
        }
        Command::Lists(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            let empty = Empty::of(arguments.store.json, &lists::empty(&config, &arguments));
            wait_for(unless_unused(
                &config,
                empty,
                lists::run(&config, &arguments),
            ))
        }
        Command::Recommend(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            let empty = Empty::of(arguments.store.json, &recommend::empty());
            wait_for(unless_unused(
                &config,
                empty,
                recommend::run(&config, &arguments),
            ))
        }
        Command::Calls(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            if arguments.follow {
                return wait_for(calls::follow(&config, &arguments));
            }
            let empty = if arguments.count {
                Empty::Printed("0".into())
            } else {
                Empty::of(arguments.json, &json!([]))
            };
            wait_for(unless_unused(
                &config,
                empty,
                calls::run(&config, &arguments),
            ))
        }
        Command::Tools(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            let empty = Empty::of(arguments.store.json, &json!([]));
            wait_for(unless_unused(
                &config,
                empty,
                tools::run(&config, &arguments),
            ))
        }
        Command::Upstreams(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            wait_for(upstreams::run(&config, &arguments))
        }
        Command::Db(command) => {
            let config = loaded(&command.store().places.overrides())?;
            match db::empty(&command) {
                Some(empty) => wait_for(unless_unused(&config, empty, db::run(&config, &command))),
                None => wait_for(db::run(&config, &command)),
            }
        }
        Command::Experiment(command) => {
            let config = loaded(&command.store().places.overrides())?;
            match &command {
                ExperimentCommand::Status(_) => {
                    let empty = Empty::of(command.store().json, &json!([]));
                    wait_for(unless_unused(
                        &config,
                        empty,
                        experiment::run(&config, &command),
                    ))
                }
                ExperimentCommand::Stop(_) => {
                    wait_for(if_used(&config, experiment::run(&config, &command)))
                }
            }
        }
        Command::Override(command) => {
            let config = loaded(&command.store().places.overrides())?;
            match &command {
                OverrideCommand::List(arguments) => {
                    let empty = Empty::of(arguments.json, &json!([]));
                    wait_for(unless_unused(
                        &config,
                        empty,
                        overrides::run(&config, &command),
                    ))
                }
                OverrideCommand::Add(_) | OverrideCommand::Remove(_) => {
                    wait_for(overrides::run(&config, &command))
                }
            }
        }
        Command::Eval(command) => {
            let config = loaded(&command.places().overrides())?;
            match eval::empty(&command) {
                Some(empty) => {
                    wait_for(unless_unused(&config, empty, eval::run(&config, &command)))
                }
                None => wait_for(eval::run(&config, &command)),
            }
        }
        Command::Replay(arguments) => {
            let config = loaded(&arguments.places.overrides())?;
            if arguments.input.from_store {
                let empty = Empty::of(arguments.json, &replay::empty());
                return wait_for(unless_unused(
                    &config,
                    empty,
                    replay::run(&config, &arguments),
                ));
            }
            wait_for(replay::run(&config, &arguments))
        }
        Command::Tune(arguments) => {
            let config = loaded(&arguments.store.places.overrides())?;
            if arguments.rollback.is_some() {
                return wait_for(if_used(&config, tune::run(&config, &arguments)));
            }
            let empty = Empty::of(arguments.store.json, &tune::empty(&arguments));
            wait_for(unless_unused(
                &config,
                empty,
                tune::run(&config, &arguments),
            ))
        }
        Command::Data(command) => {
            let config = loaded(&command.store().places.overrides())?;
            match &command {
                DataCommand::Export(_) => {
                    let work = data::run(&config, &command);
                    wait_for(unless_unused(&config, Empty::Remarked, work))
                }
                DataCommand::Delete(arguments) => {
                    data::confirm(arguments)?;
                    let json = data::deleted_as_json(&Deleted::default(), true);
                    let empty = Empty::of(arguments.store.json, &json);
                    wait_for(unless_unused(&config, empty, data::run(&config, &command)))
                }
            }
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
