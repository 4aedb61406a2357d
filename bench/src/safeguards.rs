//! Calls of 1 kB through a proxy with all safeguards, compared with the same calls through a proxy
//! without safeguards.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use crate::load::Load;
use crate::message::{Case, Era, Request};
use crate::process::Process;
use crate::report::print_table;
use crate::riglm::{Behind, CaseArgs, Riglm};
use crate::sequence::Sequence;
use crate::statistics::{Figures, Sample, count};
use crate::upstream::Upstream;
use crate::usage::CpuTime;

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

const HEAD: &str = "| call of 1 kB: p50 / p99 / CPU us | the same again | with all safeguards | added p50 us (95 %) | noise p50 us (95 %) | added CPU us |
|---|---|---|---|---|---|";

/// Latencies of calls without safeguards, again without safeguards, and with safeguards.
struct GuardedFigures {
    plain: Figures,
    /// The second proxy without safeguards. Its difference to the first is noise.
    again: Figures,
    guarded: Figures,
    /// The median latency with safeguards minus the mean of both medians without, in microseconds.
    added: MedianInterval,
    /// The median latency of the second proxy without safeguards minus the median of the first, in
    /// microseconds.
    noise: MedianInterval,
}

/// The median over all sets of processes with its 95 % confidence interval, which is meaningful
/// from six sets on.
struct MedianInterval {
    median: f64,
    low: f64,
    high: f64,
}

impl MedianInterval {
    /// Returns the median of a non-empty list. The bounds of its interval are two values of the
    /// sorted list. The interval is independent of the distribution and uses the normal
    /// approximation of the number of values below the median.
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_unstable_by(f64::total_cmp);
        let n = figures.len();
        let reach = 1.96 * count(n).sqrt() / 2.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and the number of figures"
        )]
        let low = ((count(n) / 2.0 - reach).floor().max(1.0) as usize) - 1;
        Self {
            median: figures[(n - 1) / 2].midpoint(figures[n / 2]),
            low: figures[low],
            high: figures[n - 1 - low],
        }
    }
}

/// Measures calls of 1 kB through all three proxies in turn, and prints the table.
pub(crate) async fn run(arguments: CaseArgs) -> anyhow::Result<()> {
    let riglm = arguments.prepare()?;
    let upstream = Upstream::new(Era::Legacy, 100).start()?;
    let scene = Scene {
        arguments: &arguments,
        riglm,
        upstream,
        call: Case::Call(1_000).request(Era::Legacy),
    };
    let rounds = arguments.rounds() as usize;
    let mut samples = [const { Vec::new() }; 3];
    for set in 0..rounds.div_ceil(ROUNDS_OF_A_SET) {
        let n_rounds = ROUNDS_OF_A_SET.min(rounds - set * ROUNDS_OF_A_SET);
        scene.measure_set(set, n_rounds, &mut samples).await?;
    }
    let sets = || {
        let medians = samples.each_ref().map(|all| all.iter().map(Sample::p50_us));
        let [plain, again, guarded] = medians;
        plain.zip(again).zip(guarded)
    };
    let added = sets().map(|((plain, again), guarded)| guarded - plain.midpoint(again));
    let noise = sets().map(|((plain, again), _)| again - plain);
    let (added, noise) = (
        MedianInterval::of(added.collect()),
        MedianInterval::of(noise.collect()),
    );
    let [plain, again, guarded] = samples.map(|samples| Figures::of(&samples));
    print(&GuardedFigures {
        plain,
        again,
        guarded,
        added,
        noise,
    });
    Ok(())
}

fn print(figures: &GuardedFigures) {
    let GuardedFigures {
        plain,
        again,
        guarded,
        added,
        noise,
    } = figures;
    let cpu = |of: &Figures| of.cpu_us.unwrap_or_default();
    let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50_us, of.p99_us, cpu(of));
    let middle =
        |of: &MedianInterval| format!("{:.1} ({:.1} to {:.1})", of.median, of.low, of.high);
    let row = format!(
        "| {} | {} | {} | {} | {} | {:.1} |",
        cell(plain),
        cell(again),
        cell(guarded),
        middle(added),
        middle(noise),
        cpu(guarded) - cpu(plain).midpoint(cpu(again))
    );
    print_table(HEAD, &[row]);
}

/// The proxies and their upstream.
struct Scene<'a> {
    arguments: &'a CaseArgs,
    riglm: Riglm,
    upstream: SocketAddr,
    call: Request,
}

struct RunningProxy {
    which: usize,
    sequence: Sequence,
    process: Process,
    latencies: Vec<Duration>,
    _configuration: TempDir,
}

impl Scene<'_> {
    /// Measures calls through three new processes and adds their samples.
    ///
    /// The calls alternate between the processes, so that other load on the machine affects all of
    /// them alike. The order rotates from call to call.
    async fn measure_set(
        &self,
        set: usize,
        n_rounds: usize,
        samples: &mut [Vec<Sample>; 3],
    ) -> anyhow::Result<()> {
        let mut running = Vec::new();
        for turn in 0..3 {
            running.push(self.start((set + turn) % 3).await?);
        }
        tokio::time::sleep(PAUSE_AFTER_ROUND).await;
        let cpu = |it: &RunningProxy| CpuTime::of_tree(it.process.id());
        let before: Vec<CpuTime> = running.iter().map(cpu).collect();
        for _ in 0..n_rounds {
            for n in 0..N_CALLS {
                for turn in 0..3 {
                    let proxy = &mut running[(n + turn) % 3];
                    proxy.latencies.push(proxy.sequence.time(&self.call).await?);
                }
            }
            tokio::time::sleep(PAUSE_AFTER_ROUND).await;
        }
        // One sample for all rounds of a process: its rounds are not independent.
        for (proxy, before) in running.into_iter().zip(before) {
            let cpu = Some(cpu(&proxy).since(&before));
            let load = Load {
                elapsed: proxy.latencies.iter().sum(),
                latencies: proxy.latencies,
            };
            samples[proxy.which].push(Sample { load, cpu });
        }
        Ok(())
    }

    /// Starts proxy number `which` of three. Only the last one has safeguards.
    async fn start(&self, which: usize) -> anyhow::Result<RunningProxy> {
        let configuration = TempDir::with_prefix("riglm-bench-")?;
        let file = configuration.path().join("safeguards.toml");
        let safeguards = [NO_SAFEGUARDS, NO_SAFEGUARDS, SAFEGUARDS][which];
        std::fs::write(&file, safeguards)?;
        let riglm = self.riglm.clone();
        let riglm = riglm.with_arguments(["--config".into(), file.into_os_string()]);
        let behind = Behind::Http(self.upstream);
        let process = riglm.start("riglm", &behind, self.arguments.cores())?;
        let mut sequence = Sequence::open("riglm", &process).await?;
        sequence.run(&self.call, N_CALLS).await?; // Warms up.
        Ok(RunningProxy {
            which,
            sequence,
            process,
            latencies: Vec::new(),
            _configuration: configuration,
        })
    }
}
