//! Calls of 1 kB through a proxy with all safeguards, compared with the same calls through a proxy
//! without safeguards.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::load::{Case, Figures, Sample, Target, merge};
use crate::process::{self, Process};

/// Turns all safeguards off, including the ones that are on by default.
const NO_SAFEGUARDS: &str = "
[safeguards.budget]
enabled = false

[safeguards.searches]
enabled = false
";
/// Turns all safeguards on, with limits so high that they change no call.
const SAFEGUARDS: &str = r#"
[safeguards.result_cache]
enabled = true
tools = ["other"]

[safeguards.budget]
tokens = 1000000000000

[safeguards.searches]
tools = ["*search*"]

[safeguards.limits]
max_concurrent = 100

[[safeguards.limits.rules]]
tools = ["ech*"]
calls = 1000
per = "1s"
max_concurrent = 100

[[safeguards.limits.rules]]
tools = ["*search*"]
calls = 5
per = "1m"
"#;
/// Calls to each proxy in a round. They take less than half a second, after which the proxy would
/// count texts of calls in between, and stay below the rate limit.
const N_CALLS: usize = 300;
/// The pause after a round, in which the proxy counts and stores its calls.
const PAUSE_AFTER_ROUND: Duration = Duration::from_millis(400);
/// Rounds with the same processes. New processes are started after them, because the speed of a
/// process depends on its placement in memory and on cores.
const ROUNDS_OF_A_SET: usize = 2;

/// Latencies of calls without safeguards, again without safeguards, and with safeguards.
pub(crate) struct GuardedFigures {
    pub(crate) plain: Figures,
    /// The second proxy without safeguards. Its difference to the first is noise.
    pub(crate) again: Figures,
    pub(crate) guarded: Figures,
    /// The median latency with safeguards minus the mean of both medians without, in microseconds.
    pub(crate) added: MedianInterval,
    /// The median latency of the second proxy without safeguards minus the median of the first, in
    /// microseconds.
    pub(crate) noise: MedianInterval,
}

/// The median over all sets of processes with its 95 % confidence interval, which is meaningful
/// from six sets on.
pub(crate) struct MedianInterval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl MedianInterval {
    /// Returns the median of a non-empty list. The bounds of its interval are two values of the
    /// sorted list. The interval is independent of the distribution and uses the normal
    /// approximation of the number of values below the median.
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_unstable_by(f64::total_cmp);
        let n = figures.len();
        #[expect(clippy::cast_precision_loss, reason = "there are few")]
        let reach = 1.96 * (n as f64).sqrt() / 2.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "it is between 0 and the number of figures"
        )]
        let low = ((n as f64 / 2.0 - reach).floor().max(1.0) as usize) - 1;
        Self {
            median: figures[(n - 1) / 2].midpoint(figures[n / 2]),
            low: figures[low],
            high: figures[n - 1 - low],
        }
    }
}

/// Measures calls of 1 kB through all three proxies in turn. With `cpu`, the proxies run on that
/// core only.
pub(crate) async fn measure(
    program: &Path,
    upstream: SocketAddr,
    cpu: Option<&str>,
    rounds: usize,
) -> GuardedFigures {
    let place = ProxyPlacement {
        program,
        upstream,
        cpu,
    };
    let mut samples = [const { Vec::new() }; 3];
    for set in 0..rounds.div_ceil(ROUNDS_OF_A_SET) {
        let n_rounds = ROUNDS_OF_A_SET.min(rounds - set * ROUNDS_OF_A_SET);
        measure_set(place, (set, n_rounds), &mut samples).await;
    }
    let sets = || {
        let medians = samples.each_ref().map(|all| all.iter().map(Sample::p50));
        let [plain, again, guarded] = medians;
        plain.zip(again).zip(guarded)
    };
    let added = sets().map(|((plain, again), guarded)| guarded - plain.midpoint(again));
    let noise = sets().map(|((plain, again), _)| again - plain);
    let (added, noise) = (
        MedianInterval::of(added.collect()),
        MedianInterval::of(noise.collect()),
    );
    let [plain, again, guarded] = samples.map(|samples| merge(&samples));
    GuardedFigures {
        plain,
        again,
        guarded,
        added,
        noise,
    }
}

/// Measures calls through three new processes and adds their samples.
///
/// The calls alternate between the processes, so that other load on the machine affects all of them
/// alike. The order rotates from call to call.
async fn measure_set(
    place: ProxyPlacement<'_>,
    (set, n_rounds): (usize, usize),
    samples: &mut [Vec<Sample>; 3],
) {
    let mut running = Vec::new();
    for turn in 0..3 {
        let which = (set + turn) % 3;
        running.push((which, RunningProxy::start(place, which).await));
    }
    tokio::time::sleep(PAUSE_AFTER_ROUND).await;
    let before: Vec<Duration> = running.iter().map(|(_, it)| it.client.cpu()).collect();
    let mut latencies = [const { Vec::new() }; 3];
    for _ in 0..n_rounds {
        for n in 0..N_CALLS {
            for turn in 0..3 {
                let (which, running) = &mut running[(n + turn) % 3];
                latencies[*which].push(running.client.time(Case::Call(1_000)).await);
            }
        }
        tokio::time::sleep(PAUSE_AFTER_ROUND).await;
    }
    // One sample for all rounds of a process: its rounds are not independent.
    for ((which, running), before) in running.iter().zip(before) {
        let cpu = running.client.cpu().saturating_sub(before);
        let latencies = std::mem::take(&mut latencies[*which]);
        samples[*which].push(Sample::new(latencies, cpu));
    }
}

#[derive(Clone, Copy)]
struct ProxyPlacement<'a> {
    program: &'a Path,
    upstream: SocketAddr,
    cpu: Option<&'a str>,
}

struct RunningProxy {
    client: Target,
    _process: Process,
    _data: TempDir,
}

impl RunningProxy {
    /// Starts proxy number `which` of three. Only the last one has safeguards.
    async fn start(place: ProxyPlacement<'_>, which: usize) -> Self {
        let data = tempfile::tempdir().expect("a temporary directory");
        let file = data.path().join("safeguards.toml");
        let safeguards = [NO_SAFEGUARDS, NO_SAFEGUARDS, SAFEGUARDS][which];
        std::fs::write(&file, safeguards).expect("a file");
        let mut riglm = process::serve_command(place.program, place.upstream, data.path(), "none");
        riglm.arg("--config").arg(&file);
        let mut riglm = match place.cpu {
            Some(cpu) => pinned_command(&riglm, cpu),
            None => riglm,
        };
        let process = Process::start(&mut riglm);
        let child = Some(process.child.id());
        let mut client = Target::connect("riglm", process.address, child).await;
        client.run(Case::Call(1_000), N_CALLS).await; // Warms up.
        Self {
            client,
            _process: process,
            _data: data,
        }
    }
}

/// Returns a command that runs another command on one core. `taskset` replaces itself with the
/// program, so the process id stays the same.
fn pinned_command(command: &Command, cpu: &str) -> Command {
    let mut pinned = Command::new("taskset");
    pinned
        .args(["--cpu-list", cpu])
        .arg(command.get_program())
        .args(command.get_args())
        .stderr(Stdio::piped());
    pinned
}
