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
    let candidates = config.control.addresses();
    let asked = candidates
        .iter()
        .map(|address| answering_proxies(config, Some(*address)));
    let own = answering_proxies(config, None).await;
    let is_own = |other: &SocketAddr| own.iter().any(|own| own.port() == other.port());
    let mut found = join_all(asked).await.into_iter().flatten();
    let another = found.find(|address| !is_own(address));
    let change = match port {
        ProxyPort::Mcp => "--listen ADDRESS, or address in section listen",
        ProxyPort::Control => "--control ADDRESS, or address in section control",
    };
    let cure = match (port, another, own.first()) {
        (ProxyPort::Control, Some(_), _) => {
            format!(
                "riglm of another data directory or user has the port: choose another: {change}"
            )
        }
        (_, _, Some(control)) => format!(
            "riglm runs already (control port {control}): use that one, stop it, or choose another \
             port: {change}"
        ),
        (ProxyPort::Mcp, Some(control), None) => format!(
            "riglm of another data directory or user runs (control port {control}), and may have \
             the port: choose another: {change}"
        ),
        (_, None, None) => {
            format!("stop the program that has the port, or choose another port: {change}")
        }
    };
    anyhow::anyhow!("{error:#}\n{cure}")
}

/// Returns the control ports of the proxies that answer: the one at the address `named`, or those of
/// the data directory.
async fn answering_proxies(config: &Config, named: Option<SocketAddr>) -> Vec<SocketAddr> {
    let all = readiness(config, named).await.unwrap_or_default();
    let answering = all.into_iter().filter(|proxy| proxy.report.is_ok());
    answering.map(|proxy| proxy.address).collect()
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
