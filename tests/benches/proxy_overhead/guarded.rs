//! Calls of 1 kB through a proxy with all safeguards, held against the same calls through one with none.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::load::{Case, Figures, Sample, Target, merge};
use crate::process::{self, Process};

/// None of the safeguards, also not those that are on by default.
const NO_SAFEGUARDS: &str = "
[safeguards.budget]
enabled = false

[safeguards.searches]
enabled = false
";
/// All safeguards, so wide that none holds a call back or says anything.
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
/// How many calls each proxy gets in a round: they take less than the half second after which texts of
/// calls are counted in between, and fewer than the limit allows.
const N_CALLS: usize = 300;
/// How long it takes after a round until what came of it is counted and stored.
const REST: Duration = Duration::from_millis(400);
/// How many rounds are measured with the same processes: how fast one is depends on where its memory
/// and its threads happen to lie.
const ROUNDS_OF_A_SET: usize = 2;

/// What calls took without safeguards, without them again, and with them.
pub(crate) struct GuardedFigures {
    pub(crate) plain: Figures,
    /// Another process of the same kind: what it differs by is noise.
    pub(crate) again: Figures,
    pub(crate) guarded: Figures,
    /// What the median with safeguards was above the mean of those without, in microseconds.
    pub(crate) added: Middle,
    /// What the median of the second was above that of the first, likewise.
    pub(crate) noise: Middle,
}

/// The median of a figure of all sets of processes, with its interval of 95 % (from six sets on).
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Middle {
    /// Returns the median of at least one figure. Its interval lies between two of the figures in their
    /// order, whatever their distribution: by the normal approximation of how many are below the median.
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

/// Measures calls of 1 kB through all three proxies by turns, which run on a core of their own where
/// one is named.
pub(crate) async fn measure(
    program: &Path,
    upstream: SocketAddr,
    cpu: Option<&str>,
    rounds: usize,
) -> GuardedFigures {
    let place = Place {
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
    let (added, noise) = (Middle::of(added.collect()), Middle::of(noise.collect()));
    let [plain, again, guarded] = samples.map(|samples| merge(&samples));
    GuardedFigures {
        plain,
        again,
        guarded,
        added,
        noise,
    }
}

/// Measures calls through three new processes, and adds what they took. Calls go through all of them by
/// turns, so that a machine that others use as well is as quick for each; none is always the first.
async fn measure_set(
    place: Place<'_>,
    (set, n_rounds): (usize, usize),
    samples: &mut [Vec<Sample>; 3],
) {
    let mut running = Vec::new();
    for turn in 0..3 {
        let which = (set + turn) % 3;
        running.push((which, Running::start(place, which).await));
    }
    tokio::time::sleep(REST).await;
    let before: Vec<Duration> = running.iter().map(|(_, it)| it.client.cpu()).collect();
    let mut latencies = [const { Vec::new() }; 3];
    for _ in 0..n_rounds {
        for n in 0..N_CALLS {
            for turn in 0..3 {
                let (which, running) = &mut running[(n + turn) % 3];
                latencies[*which].push(running.client.time(Case::Call(1_000)).await);
            }
        }
        tokio::time::sleep(REST).await;
    }
    // Rounds with the same processes are one figure: they are no further evidence.
    for ((which, running), before) in running.iter().zip(before) {
        let cpu = running.client.cpu().saturating_sub(before);
        let latencies = std::mem::take(&mut latencies[*which]);
        samples[*which].push(Sample::new(latencies, cpu));
    }
}

/// Where a proxy runs.
#[derive(Clone, Copy)]
struct Place<'a> {
    program: &'a Path,
    upstream: SocketAddr,
    cpu: Option<&'a str>,
}

/// A proxy with a client.
struct Running {
    client: Target,
    _process: Process,
    _data: TempDir,
}

impl Running {
    /// Starts a proxy: the last of three has safeguards.
    async fn start(place: Place<'_>, which: usize) -> Self {
        let data = tempfile::tempdir().expect("a temporary directory");
        let file = data.path().join("safeguards.toml");
        let safeguards = [NO_SAFEGUARDS, NO_SAFEGUARDS, SAFEGUARDS][which];
        std::fs::write(&file, safeguards).expect("a file");
        let mut riglm = process::serve(place.program, place.upstream, data.path(), "none");
        riglm.arg("--config").arg(&file);
        let mut riglm = match place.cpu {
            Some(cpu) => on_cpu(&riglm, cpu),
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

/// Returns the command that runs another one on one core alone, in the same process.
fn on_cpu(command: &Command, cpu: &str) -> Command {
    let mut pinned = Command::new("taskset");
    pinned
        .args(["--cpu-list", cpu])
        .arg(command.get_program())
        .args(command.get_args())
        .stderr(Stdio::piped());
    pinned
}
