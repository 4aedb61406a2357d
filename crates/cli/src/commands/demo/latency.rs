//! The time that the proxy adds to a call.

use std::time::Duration;

use anyhow::ensure;
use rmcp::model::JsonObject;

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

    /// Returns the number of calls that went through the proxy.
    pub(super) fn n_proxied(&self) -> usize {
        N_WARM + self.n_calls
    }
}

/// Makes the same call directly and through the proxy, in turns.
///
/// # Errors
///
/// Returns the error of a call, and an error for an unexpected answer.
pub(super) async fn measure(url: &str) -> anyhow::Result<Latency> {
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
