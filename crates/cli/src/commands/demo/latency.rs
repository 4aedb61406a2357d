//! The time that the proxy adds to a call.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rmcp::model::JsonObject;

use super::watch_in;
use crate::compose::{self, Extensions};
use crate::demo::{Connection, DemoClient, DemoServer};

/// The number of measured calls of each kind.
const N_CALLS: usize = 100;
/// The number of calls before the measured ones.
const N_WARM: usize = 10;

/// The medians of calls with and without the proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) n_calls: usize,
    pub(super) direct: Duration,
    pub(super) proxied: Duration,
}

impl Latency {
    /// Returns the added time in milliseconds.
    pub(super) fn added_ms(&self) -> f64 {
        (self.proxied.as_secs_f64() - self.direct.as_secs_f64()) * 1_000.0
    }
}

/// Makes the same call directly and through a proxy, in turns.
///
/// The proxy is another one, with the same servers and the same configuration, and records in a
/// folder of its own: the calls are no part of what an agent did in the demonstration.
///
/// # Errors
///
/// Returns the error of starting the proxy or of a call, and an error for an unexpected answer.
pub(super) async fn measure() -> anyhow::Result<Latency> {
    let folder = tempfile::tempdir().context("failed to create a temporary directory")?;
    let config = watch_in(folder.path())?.load()?.config;
    let started = compose::start(config, None, Extensions::default()).await;
    let running = started.context("failed to start a proxy for the measurement")?;
    let measured = measure_at(&running.mcp_url()).await;
    running.shutdown().await;
    measured
}

async fn measure_at(url: &str) -> anyhow::Result<Latency> {
    let proxied = Connection::open(DemoClient::Earlier, url).await?;
    let (direct, mut process) = Connection::direct(DemoServer::Calc).await?;
    let mut arguments = JsonObject::new();
    arguments.insert("expression".into(), "6 * 7".into());
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for n in 0..N_WARM + N_CALLS {
        let answers = [
            direct.call("evaluate", &arguments).await?,
            proxied.call("calc__evaluate", &arguments).await?,
        ];
        ensure!(
            answers.iter().all(|answer| answer.text == "42"),
            "6 * 7 is not 42 for the calculator"
        );
        if n >= N_WARM {
            let [direct, proxied] = answers;
            without.push(direct.took);
            with.push(proxied.took);
        }
    }
    proxied.close().await?;
    direct.close().await?;
    // It ends with its input; it is killed if that takes long.
    let _ = tokio::time::timeout(Duration::from_secs(2), process.wait()).await;
    Ok(Latency {
        n_calls: N_CALLS,
        direct: median(without),
        proxied: median(with),
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
