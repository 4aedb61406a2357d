//! `riglm serve`: the proxy, until it is told to stop.

use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_mcp::downstream::stdio;
use riglm_app::proxy::Visitor;
use riglm_domain::principal::Principal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::hangup::Hangup;
use super::start_notes::StartNotes;
use crate::compose::{self, Following};
use crate::config::{Downstream, Loaded, Watch};

/// Serves until SIGTERM, SIGINT, the end of its terminal or, over standard input and output, the
/// end of the input. SIGHUP has the configuration loaded again.
///
/// # Errors
///
/// Returns what kept the proxy from starting, or standard input from being read.
pub(super) async fn run(loaded: Loaded, watch: Watch) -> anyhow::Result<()> {
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
    let following = Some(Following {
        loaded,
        watch,
        asked,
    });
    match config.downstream {
        Downstream::Http => {
            let running = compose::start(config.clone(), following).await?;
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
            let core = compose::build(&config, following).await?;
            let notes = StartNotes {
                config: &config,
                file: file.as_deref(),
                control: core.control,
                url: None,
            };
            notes.write();
            let profile = config.profile;
            // Who started the process is the client: there is nobody else to be.
            let visitor = Visitor {
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
                    // Dropped now, it could leave half a line in the output.
                    serving.await
                }
            };
            core.shutdown().await;
            served.context("failed to serve the client")
        }
    }
}
