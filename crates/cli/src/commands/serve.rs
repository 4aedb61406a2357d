//! `riglm serve`: the proxy, until a signal stops it.

use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_mcp::downstream::stdio;
use riglm_app::proxy::ClientIdentity;
use riglm_domain::privacy::principal::Principal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::sighup::Hangup;
use super::start_notes::StartNotes;
use crate::compose::{self, Extensions, ReloadSource};
use crate::config::{Downstream, LoadedConfig, Watch};

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
    let watched = "failed to watch for signals";
    let mut terminate = signal(SignalKind::terminate()).context(watched)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(watched)?;
    let hangup = Hangup::new().context(watched)?;
    let asked = Arc::new(Notify::new());
    let terminal_ends = hangup.follow(Arc::clone(&asked));
    let stopped = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
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
            let running = compose::start(config.clone(), following, extensions).await?;
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
            let core = compose::build(&config, following, extensions).await?;
            let notes = StartNotes {
                config: &config,
                file: file.as_deref(),
                control: core.control,
                url: None,
            };
            notes.write();
            let profile = config.profile;
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
    }
}
