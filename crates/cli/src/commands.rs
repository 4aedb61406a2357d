//! The subcommands, one file each, and their dispatch.

mod audit;
mod browser;
mod calls;
pub(crate) mod clients;
mod config;
mod confirmation;
mod connect;
mod control_port;
mod data;
mod db;
mod demo;
pub(crate) mod doctor;
mod empty_store;
mod eval;
mod experiment;
mod file_diff;
mod health;
mod import;
mod init;
mod install;
mod installation_lock;
mod lists;
mod login;
mod model;
pub(crate) mod moment;
mod open;
mod overrides;
mod pause;
mod predictor;
mod recommend;
mod replay;
mod serve;
mod server_listing;
mod service;
mod sessions;
mod setup;
mod shell;
mod sighup;
mod start_notes;
mod table;
mod tools;
mod top;
mod tune;
mod uninstall;
mod upstreams;
pub(crate) mod user_clients;

use anyhow::Context;
use serde_json::json;

use crate::args::{
    Cli, Command, DataCommand, ExperimentCommand, LocationArgs, OverrideCommand, PredictorCommand,
    ServiceCommand,
};
use crate::compose::Extensions;
use crate::config::{Config, ConfigError, LogFormat, Overrides, ProcessEnv, Watch, load};
use crate::output::{print, write_json_remarks};

use self::empty_store::{EmptyOutput, run_if_stored, run_unless_empty};
use self::import::plan::ImportTarget;
use crate::{demo as demo_servers, telemetry};

/// Runs the command of the command line. `extensions` replace configured parts of the proxy of
/// `serve`.
///
/// # Errors
///
/// Returns the error of the command; a [`ConfigError`] among its causes means wrong usage.
#[expect(clippy::too_many_lines, reason = "one arm for each command")]
pub fn run(cli: Cli, extensions: Extensions) -> anyhow::Result<()> {
    // Fails only if the process has installed a provider before; that one is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match cli.command {
        Command::Guard => {
            riglm_adapters_mcp::upstream::guard::run_guard(std::io::stdin().lock());
            Ok(())
        }
        Command::Config(command) => config::run(&command),
        Command::Import(arguments) => {
            if let Some(gateway) = &arguments.gateway {
                return import::print_export(gateway);
            }
            with_clients(&arguments.places, |target| import::run(target, &arguments))
        }
        Command::Audit(arguments) => with_clients(&arguments.places, |target| {
            wait_for(audit::run(target, &arguments))
        }),
        Command::Clients(arguments) => {
            with_clients(&arguments.places, |target| clients::run(target, &arguments))
        }
        Command::Install(arguments) => with_clients(&arguments.places, |target| {
            wait_for(install::run(target, &arguments))
        }),
        Command::Uninstall(arguments) => with_clients(&arguments.places, |target| {
            wait_for(uninstall::run(target, &arguments))
        }),
        Command::Setup(arguments) => with_configuration(&arguments.overrides(), |target| {
            wait_for(setup::run(target, &arguments))
        }),
        Command::Serve(arguments) => {
            let mut watch = Watch::new(arguments.overrides(), ProcessEnv::of_process()?);
            // Before the configuration is loaded: its errors and warnings must be JSON too.
            if watch.source().log_format() == LogFormat::Json {
                write_json_remarks();
            }
            let loaded = watch.load()?;
            loaded.config.upstreams()?;
            telemetry::start(&loaded.config.logging);
            wait_for(serve::run(loaded, watch, extensions))
        }
        Command::Connect(arguments) => {
            let process = ProcessEnv::of_process()?;
            let config = load(&arguments.places.overrides(), &process)?;
            telemetry::start(&config.logging);
            wait_for(connect::run(config, &process, &arguments))
        }
        Command::Service(command) => {
            let process = ProcessEnv::of_process()?;
            let config = match &command {
                ServiceCommand::Install(arguments) => {
                    Some(load(&arguments.places.overrides(), &process)?)
                }
                ServiceCommand::Uninstall(_) | ServiceCommand::Status(_) => None,
            };
            service::run(config.as_ref(), &process, &command)
        }
        Command::Doctor(arguments) => wait_for(doctor::run(&ProcessEnv::of_process()?, &arguments)),
        Command::Init(arguments) => init::run(&ProcessEnv::of_process()?, &arguments),
        Command::Health(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            wait_for(health::run(&config, &arguments))
        }
        Command::Open(arguments) => {
            let process = ProcessEnv::of_process()?;
            let config = load(&arguments.store.places.overrides(), &process)?;
            wait_for(open::run(&config, &process.environment, &arguments))
        }
        Command::Top(arguments) => {
            let process = ProcessEnv::of_process()?;
            let config = load(&arguments.store.places.overrides(), &process)?;
            wait_for(top::run(&config, &process.environment, &arguments))
        }
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
        Command::Version => Ok(print(concat!("riglm ", env!("CARGO_PKG_VERSION")))?),
        Command::Sessions(arguments) => {
            let config = load_config(&arguments.places.overrides())?;
            let empty = EmptyOutput::of(arguments.format, &json!([]));
            wait_for(run_unless_empty(
                &config,
                empty,
                sessions::run(&config, &arguments),
            ))
        }
        Command::Lists(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            let empty = EmptyOutput::of(arguments.store.format, &lists::empty(&config, &arguments));
            wait_for(run_unless_empty(
                &config,
                empty,
                lists::run(&config, &arguments),
            ))
        }
        Command::Recommend(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            let empty = EmptyOutput::of(arguments.store.format, &recommend::empty());
            wait_for(run_unless_empty(
                &config,
                empty,
                recommend::run(&config, &arguments),
            ))
        }
        Command::Calls(arguments) => {
            let config = load_config(&arguments.places.overrides())?;
            if arguments.follow {
                return wait_for(calls::follow(&config, &arguments));
            }
            let empty = if arguments.count {
                EmptyOutput::Printed("0".into())
            } else {
                EmptyOutput::of(arguments.format, &json!([]))
            };
            wait_for(run_unless_empty(
                &config,
                empty,
                calls::run(&config, &arguments),
            ))
        }
        Command::Tools(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            let empty = EmptyOutput::of(arguments.store.format, &json!([]));
            wait_for(run_unless_empty(
                &config,
                empty,
                tools::run(&config, &arguments),
            ))
        }
        Command::Predictor(command) => {
            let PredictorCommand::Check(arguments) = &command;
            let config = load_config(&arguments.places.overrides())?;
            wait_for(predictor::run(&config, &command))
        }
        Command::Upstreams(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            wait_for(upstreams::run(&config, &arguments))
        }
        Command::Pause(arguments) => {
            let config = load_config(&arguments.running.store.places.overrides())?;
            wait_for(pause::pause(&config, &arguments))
        }
        Command::Resume(arguments) => {
            let config = load_config(&arguments.running.store.places.overrides())?;
            wait_for(pause::resume(&config, &arguments))
        }
        Command::Db(command) => {
            let config = load_config(&command.store().places.overrides())?;
            match db::empty(&command) {
                Some(empty) => {
                    wait_for(run_unless_empty(&config, empty, db::run(&config, &command)))
                }
                None => wait_for(db::run(&config, &command)),
            }
        }
        Command::Experiment(command) => {
            let config = load_config(&command.store().places.overrides())?;
            match &command {
                ExperimentCommand::Status(_) => {
                    let empty = EmptyOutput::of(command.store().format, &json!([]));
                    wait_for(run_unless_empty(
                        &config,
                        empty,
                        experiment::run(&config, &command),
                    ))
                }
                ExperimentCommand::Stop(_) => {
                    wait_for(run_if_stored(&config, experiment::run(&config, &command)))
                }
            }
        }
        Command::Override(command) => {
            let config = load_config(&command.store().places.overrides())?;
            match &command {
                OverrideCommand::List(arguments) => {
                    let empty = EmptyOutput::of(arguments.format, &json!([]));
                    wait_for(run_unless_empty(
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
            let config = load_config(&command.places().overrides())?;
            match eval::empty(&command) {
                Some(empty) => wait_for(run_unless_empty(
                    &config,
                    empty,
                    eval::run(&config, &command),
                )),
                None => wait_for(eval::run(&config, &command)),
            }
        }
        Command::Replay(arguments) => {
            let config = load_config(&arguments.places.overrides())?;
            if arguments.input.from_store {
                let empty = EmptyOutput::of(arguments.format, &replay::empty());
                return wait_for(run_unless_empty(
                    &config,
                    empty,
                    replay::run(&config, &arguments),
                ));
            }
            wait_for(replay::run(&config, &arguments))
        }
        Command::Tune(arguments) => {
            let config = load_config(&arguments.store.places.overrides())?;
            if arguments.rollback.is_some() {
                return wait_for(run_if_stored(&config, tune::run(&config, &arguments)));
            }
            let empty = EmptyOutput::of(arguments.store.format, &tune::empty(&arguments));
            wait_for(run_unless_empty(
                &config,
                empty,
                tune::run(&config, &arguments),
            ))
        }
        Command::Data(command) => {
            let config = load_config(&command.store().places.overrides())?;
            match &command {
                DataCommand::Export(_) => {
                    let work = data::run(&config, &command);
                    wait_for(run_unless_empty(&config, EmptyOutput::Remarked, work))
                }
                DataCommand::Delete(arguments) => {
                    data::confirm(arguments)?;
                    let json = data::nothing_deleted();
                    let empty = EmptyOutput::of(arguments.store.format, &json);
                    wait_for(run_unless_empty(
                        &config,
                        empty,
                        data::run(&config, &command),
                    ))
                }
            }
        }
        Command::Model(command) => {
            let config = load_config(&command.store().places.overrides())?;
            wait_for(model::run(&config, command))
        }
        Command::Login(arguments) => {
            let config = load_config(&arguments.places.overrides())?;
            wait_for(login::run(&config, &arguments))
        }
        Command::Demo(arguments) => wait_for(demo::run(arguments)),
        Command::DemoServer { server } => wait_for(demo_servers::serve_stdio(server)),
    }
}

/// Runs a command that changes the configuration, or the files of clients.
fn with_clients(
    places: &LocationArgs,
    command: impl FnOnce(ImportTarget<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    with_configuration(&places.overrides(), command)
}

/// Runs a command with the configuration, which may not have a file yet.
fn with_configuration(
    overrides: &Overrides,
    command: impl FnOnce(ImportTarget<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let process = ProcessEnv::of_process()?;
    let config = match load(overrides, &process) {
        // The file may be about to be made.
        Err(ConfigError::Unreadable { path, source })
            if source.kind() == std::io::ErrorKind::NotFound
                && Some(&path) == overrides.file.as_ref() =>
        {
            let without = Overrides {
                reads_no_file: true,
                ..overrides.clone()
            };
            load(&without, &process)?
        }
        loaded => loaded?,
    };
    command(ImportTarget {
        config: &config,
        process: &process,
        overrides,
    })
}

fn load_config(overrides: &Overrides) -> Result<Config, ConfigError> {
    load(overrides, &ProcessEnv::of_process()?)
}

/// Runs a future on a new runtime.
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
