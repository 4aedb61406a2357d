//! `riglm serve`: the proxy, until a signal stops it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use futures_util::future::join_all;
use riglm_adapters_mcp::downstream::stdio;
use riglm_app::proxy::ClientIdentity;
use riglm_domain::id::ProfileName;
use riglm_domain::privacy::principal::Principal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::control_port::readiness;
use super::sighup::Hangup;
use super::start_notes::StartNotes;
use crate::compose::{self, Extensions, NotListening, ProxyPort, ReloadSource};
use crate::config::{Config, Downstream, LoadedConfig, Watch};

/// The context of an error of the system.
const WATCHED: &str = "failed to watch for signals";

/// Serves until SIGTERM, SIGINT, the end of its terminal or, over standard input and output, the
/// end of the input. SIGHUP reloads the configuration.
///
/// # Errors
///
/// Returns the error of starting the proxy or of reading standard input.
pub(super) async fn run(
    loaded: LoadedConfig,
    watch: Watch,
    extensions: Extensions,
) -> anyhow::Result<()> {
    let hangup = Hangup::new().context(WATCHED)?;
    let asked = Arc::new(Notify::new());
    let terminal_ends = hangup.follow(Arc::clone(&asked));
    let signalled = stop_signal()?;
    let stopped = async {
        tokio::select! {
            () = signalled => {}
            () = terminal_ends => {}
        }
    };
    let config = loaded.config.clone();
    let file = watch.source().file();
    let following = Some(ReloadSource {
        loaded,
        watch,
        asked,
    });
    match config.downstream {
        Downstream::Http => {
            let running = match compose::start(config.clone(), following, extensions).await {
                Ok(running) => running,
                Err(error) => return Err(with_cure(error, &config).await),
            };
            let notes = StartNotes {
                config: &config,
                file: file.as_deref(),
                control: running.control(),
                url: Some(&running.mcp_url()),
            };
            notes.write();
            stopped.await;
            running.shutdown().await;
            Ok(())
        }
        Downstream::Stdio => {
            let core = match compose::build(&config, following, extensions).await {
                Ok(core) => core,
                Err(error) => return Err(with_cure(error, &config).await),
            };
            let notes = StartNotes {
                config: &config,
                file: file.as_deref(),
                control: core.control,
                url: None,
            };
            notes.write();
            serve_process(core, config.profile, stopped).await
        }
    }
}

/// Returns the error of starting. A port that is taken gets a second line, with the cure.
async fn with_cure(error: anyhow::Error, config: &Config) -> anyhow::Error {
    let is_taken = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::AddrInUse);
    let failed = error.downcast_ref::<NotListening>().copied();
    let Some(NotListening { port, .. }) = failed.filter(|_| is_taken) else {
        return error;
    };
    let change = match port {
        ProxyPort::Mcp => "--listen ADDRESS, or address in section listen",
        ProxyPort::Control => "--control ADDRESS, or address in section control",
    };
    let cure = match running_proxy(config).await {
        Some(control) => format!(
            "riglm runs already (control port {control}): use that one, stop it, or choose another \
             port: {change}"
        ),
        None => format!("stop the program that has the port, or choose another port: {change}"),
    };
    anyhow::anyhow!("{error:#}\n{cure}")
}

/// Returns the control port of a proxy that runs on this machine: one of the data directory, or one
/// on a port that this proxy would take.
async fn running_proxy(config: &Config) -> Option<SocketAddr> {
    let announced = readiness(config, None).await.unwrap_or_default();
    let candidates = config.control.addresses();
    let asked = candidates
        .iter()
        .map(|address| readiness(config, Some(*address)));
    let others = join_all(asked).await.into_iter().flatten().flatten();
    let mut all = announced.into_iter().chain(others);
    all.find(|proxy| proxy.report.is_ok())
        .map(|proxy| proxy.address)
}

/// Returns a future that ends at SIGTERM or SIGINT, which are caught from now on.
///
/// # Errors
///
/// Returns the error of the system.
pub(super) fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context(WATCHED)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(WATCHED)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves the process at standard input and output until the end of its input, or until `stopped`.
///
/// # Errors
///
/// Returns the error of reading standard input.
pub(super) async fn serve_process(
    core: compose::Core,
    profile: Option<ProfileName>,
    stopped: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // The parent process is the only client, so no authentication is needed.
    let visitor = ClientIdentity {
        principal: Principal::local(),
        profile,
    };
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let stop = CancellationToken::new();
    let proxy = Arc::clone(&core.proxy);
    let serving = stdio::serve(&proxy, &visitor, input, output, stop.clone());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopped => {
            stop.cancel();
            // Dropping it could leave half a line in the output.
            serving.await
        }
    };
    core.shutdown().await;
    served.context("failed to serve the client")
}
